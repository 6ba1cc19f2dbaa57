"""Longer checks: `python -m benchmarks.NAME` measures figures and writes results/NAME.json."""
