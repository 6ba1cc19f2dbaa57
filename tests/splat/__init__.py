"""Tests of tests/splat."""
