"""6-DoF object pose tracking."""
