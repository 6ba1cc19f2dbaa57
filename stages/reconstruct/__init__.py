"""Stage `reconstruct`: masked frames to mesh, convex parts, Gaussians and object frame."""
