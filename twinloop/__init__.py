"""Twinloop: captures in, digital twin out."""
