"""The `twinloop` command."""
