"""Robot logs of every kind: one module per container, and what they have in common."""
