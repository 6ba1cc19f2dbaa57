# mypy: ignore-errors
"""Warp: many points of one distance grid, by the functions that contact calls.

A module of its own, so that asking a grid does not compile the queries of meshes.
"""

import warp as wp

from twinloop.geometry.sdf_kernel import grid_sample, grid_sample_cubic

wp.set_module_options({"enable_backward": False})


@wp.kernel
def linear_at(
    grid: wp.array3d(dtype=wp.float64),
    cell: wp.array(dtype=wp.vec3d),
    out: wp.array(dtype=wp.vec4d),
):
    """Trilinear value and gradient (per cell) of ``DistanceGrid.value`` at each cell position."""
    t = wp.tid()
    out[t] = grid_sample(grid, cell[t])


@wp.kernel
def cubic_at(
    padded: wp.array3d(dtype=wp.float64),
    cell: wp.array(dtype=wp.vec3d),
    out: wp.array(dtype=wp.vec4d),
):
    """Cubic value and gradient (per cell) of ``DistanceGrid.padded`` at each cell position."""
    t = wp.tid()
    out[t] = grid_sample_cubic(padded, cell[t])
