"""Tests of the readers of other tools' captures."""
