"""Grasp policies and how they are judged."""
