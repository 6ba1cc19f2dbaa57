"""Tests of tests/physics."""
