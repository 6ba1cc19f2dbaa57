"""Readers of what a camera and a robot record."""
