# mypy: ignore-errors
"""Warp kernels of the 3D Gaussian rasteriser's first half: thin shells around `native.projection`.

Each takes the address of a `Scene`, whose maker keeps the memory alive and checks its sizes.
"""

import warp as wp

from twinloop.splat.native import harmonics, projection, simd

wp.config.log_level = wp.LOG_ERROR
wp.init()
wp.set_module_options(
    {
        "extra_build_options": wp.ModuleBuildOptions(
            extra_cpu_preamble=simd.SOURCE + harmonics.SOURCE + projection.SOURCE
        ),
        "fast_math": True,
        "optimization_level": 3,
    }
)


@wp.func_native("using namespace twinloop::projection; project(*(const Scene*)scene, start, stop);")
def _project(scene: wp.uint64, start: int, stop: int): ...


@wp.func_native(
    "using namespace twinloop::projection; project_adjoint(*(const Scene*)scene, start, stop);"
)
def _project_adjoint(scene: wp.uint64, start: int, stop: int): ...


@wp.kernel(enable_backward=False)
def project(scene: wp.uint64, start: int, stop: int):
    """Project a range of Gaussians and, if their colours are harmonics, shade them."""
    _project(scene, start, stop)


@wp.kernel(enable_backward=False)
def project_adjoint(scene: wp.uint64, start: int, stop: int):
    """Gradients of a range of Gaussians by those of their projections, whole chunks."""
    _project_adjoint(scene, start, stop)
