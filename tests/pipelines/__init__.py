"""Tests of the executor, the graph and the flows."""
