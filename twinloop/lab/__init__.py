"""A world to capture from, with the truth locked away."""
