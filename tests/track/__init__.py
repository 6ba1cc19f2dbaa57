"""Tests of tests/track."""
