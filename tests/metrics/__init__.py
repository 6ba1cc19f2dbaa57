"""Tests of tests/metrics."""
