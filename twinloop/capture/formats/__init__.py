"""Readers of what other tools export: pictures with lenses, poses, points, masks and depth."""
