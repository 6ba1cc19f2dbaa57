"""Differentiable identification of what cannot be seen."""
