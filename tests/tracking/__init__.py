"""Tests of tests/tracking."""
