"""Tests of tests/capture/logs."""
