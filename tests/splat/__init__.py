"""Tests of twinloop.splat."""
