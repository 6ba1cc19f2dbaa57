"""Tests of tests/cli."""
