"""Tests of `twinloop.policy`."""
