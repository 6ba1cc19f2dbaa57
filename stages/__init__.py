"""One package per step of the graph."""
