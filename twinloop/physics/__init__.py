"""Identification of what cannot be seen: engine, estimator, intervals and verdicts."""
