"""Stage `identify`: pushes and mesh to physical parameters with intervals and verdicts."""
