"""Tests of tests/pipelines."""
