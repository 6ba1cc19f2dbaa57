"""Figures against the truth where there is one, else inside the twin."""
