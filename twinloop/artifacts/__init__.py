"""Typed, versioned, sharded Zarr artifacts."""
