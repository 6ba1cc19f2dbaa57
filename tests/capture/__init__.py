"""Tests of the readers of what a camera and a robot record."""
