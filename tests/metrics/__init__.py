"""Tests of `twinloop.metrics`."""
