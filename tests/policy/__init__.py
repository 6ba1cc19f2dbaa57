"""Tests of tests/policy."""
