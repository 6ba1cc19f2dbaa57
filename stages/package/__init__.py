"""Stage `package`: the twin as files that other tools read."""
