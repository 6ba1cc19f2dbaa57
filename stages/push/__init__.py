"""Stage `push`: robot logs and tracks to fingertip motion, contact force and one clock."""
