# mypy: ignore-errors
"""The Warp kernel of the CPU rasteriser of surfels: it runs the steps of `native.surfel_steps`."""

import warp as wp

from twinloop.splat.native import simd, surfel_projection, surfel_steps, surfels

wp.config.log_level = wp.LOG_ERROR
wp.init()  # from_torch needs it before the first launch
wp.set_module_options(
    {
        "extra_build_options": wp.ModuleBuildOptions(
            extra_cpu_preamble=simd.SOURCE
            + surfels.SOURCE
            + surfel_projection.SOURCE
            + surfel_steps.SOURCE
        ),
        "fast_math": True,
        "optimization_level": 3,
    }
)


@wp.func_native(
    "twinloop::surfels::run(step, slice, slices, {whole.data, real.data, "
    "(const long long*)address.data});"
)
def _run(
    step: int,
    slice: int,
    slices: int,
    whole: wp.array(dtype=wp.int32),
    real: wp.array(dtype=wp.float32),
    address: wp.array(dtype=wp.int64),
): ...


@wp.kernel(enable_backward=False)
def run(
    step: int,
    slice: int,
    slices: int,
    whole: wp.array(dtype=wp.int32),
    real: wp.array(dtype=wp.float32),
    address: wp.array(dtype=wp.int64),
):
    """Run one slice of a step; a launch of size one."""
    _run(step, slice, slices, whole, real, address)
