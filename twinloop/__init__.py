"""Twinloop: captures in, digital twin out."""

__version__ = "0.1.0"
