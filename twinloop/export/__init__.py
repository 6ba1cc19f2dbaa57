"""The twin as files that other tools read."""
