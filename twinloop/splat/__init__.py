"""Visual hull, Gaussians and their rasteriser."""
