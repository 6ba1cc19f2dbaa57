"""Tests of tests/lab."""
