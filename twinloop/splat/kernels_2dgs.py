# mypy: ignore-errors
"""The Warp kernel of the CPU rasteriser of surfels: it runs the steps of `native.surfel_steps`."""

import warp as wp

from twinloop.splat.native import (
    harmonics,
    simd,
    surfel_adjoint,
    surfel_backward,
    surfel_normals,
    surfel_projection,
    surfel_steps,
    surfels,
)

wp.config.log_level = wp.LOG_ERROR
wp.init()  # from_torch needs it before the first launch
wp.set_module_options(
    {
        "extra_build_options": wp.ModuleBuildOptions(
            extra_cpu_preamble=simd.SOURCE
            + harmonics.SOURCE
            + surfels.SOURCE
            + surfel_backward.SOURCE
            + surfel_projection.SOURCE
            + surfel_adjoint.SOURCE
            + surfel_normals.SOURCE
            + surfel_steps.SOURCE
        ),
        "fast_math": True,
        "optimization_level": 3,
    }
)


@wp.func_native(
    "twinloop::surfels::run(step, slice, slices, {(const int*)whole, (const float*)real, "
    "(const long long*)address});"
)
def _run(
    step: int, slice: int, slices: int, whole: wp.uint64, real: wp.uint64, address: wp.uint64
): ...


@wp.kernel(enable_backward=False)
def run(step: int, slice: int, slices: int, whole: wp.uint64, real: wp.uint64, address: wp.uint64):
    """Run one slice of a step, whose arguments are at these addresses; a launch of size one."""
    _run(step, slice, slices, whole, real, address)
