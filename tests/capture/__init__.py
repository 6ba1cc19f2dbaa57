"""Tests of tests/capture."""
