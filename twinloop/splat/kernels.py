# mypy: ignore-errors
"""Warp kernels of the 3D Gaussian compositor on the CPU: thin shells around native code.

See `native.gaussians`; Warp's automatic differentiation of the compositing loop would be wrong.
Each takes the address of a `View`, whose maker keeps the memory alive and checks its sizes.
"""

import warp as wp

from twinloop.splat.native import gaussians, simd

wp.config.log_level = wp.LOG_ERROR
wp.init()
wp.set_module_options(
    {
        "extra_build_options": wp.ModuleBuildOptions(
            extra_cpu_preamble=simd.SOURCE + gaussians.SOURCE
        ),
        "fast_math": True,
        "optimization_level": 3,
    }
)


@wp.func_native("twinloop::pack_and_bin(*(const twinloop::View*)view, again != 0, radius_clip);")
def _pack_and_bin(view: wp.uint64, again: int, radius_clip: float): ...


@wp.func_native("twinloop::pack_features(*(const twinloop::View*)view);")
def _pack_features(view: wp.uint64): ...


@wp.func_native(
    """
    using namespace twinloop;
    const View& v = *(const View*)view;
    if (v.part == 4) forward_tile<4>(v, tile);
    else forward_tile<3>(v, tile);
    """
)
def _forward(view: wp.uint64, tile: int): ...


@wp.func_native(
    """
    using namespace twinloop;
    const View& v = *(const View*)view;
    if (v.part == 4) backward_tile<4>(v, tile);
    else backward_tile<3>(v, tile);
    """
)
def _backward(view: wp.uint64, tile: int): ...


@wp.func_native("twinloop::gather(*(const twinloop::View*)view, start, stop);")
def _gather(view: wp.uint64, start: int, stop: int): ...


@wp.kernel(enable_backward=False)
def pack_and_bin(view: wp.uint64, again: int, radius_clip: float):
    """Sort by depth, pack what can be seen, sort into tiles; `again` does the last only."""
    _pack_and_bin(view, again, radius_clip)


@wp.kernel(enable_backward=False)
def pack_features(view: wp.uint64):
    """Put the feature channels of this pass into the packed records."""
    _pack_features(view)


@wp.kernel(enable_backward=False)
def forward(view: wp.uint64, slice: int, slices: int, tiles: int):
    """Composite the tiles of one slice."""
    tile = wp.tid() * slices + slice
    if tile < tiles:
        _forward(view, tile)


@wp.kernel(enable_backward=False)
def backward(view: wp.uint64, slice: int, slices: int, tiles: int):
    """Back-propagate through the tiles of one slice into the rows of their list entries."""
    tile = wp.tid() * slices + slice
    if tile < tiles:
        _backward(view, tile)


@wp.kernel(enable_backward=False)
def gather(view: wp.uint64, start: int, stop: int):
    """Sum the gradient rows of a range of Gaussians."""
    _gather(view, start, stop)
