"""Tests of tracking, and the made-up captures they share."""
