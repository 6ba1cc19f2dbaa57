# mypy: ignore-errors
"""Warp kernels of the 3D Gaussian compositor on the CPU: thin shells around native code.

See `native.gaussians`; Warp's automatic differentiation of the compositing loop would be wrong.
"""

import warp as wp

from twinloop.splat.native import gaussians, simd

wp.config.log_level = wp.LOG_ERROR
wp.init()  # from_torch needs it before the first launch
wp.set_module_options(
    {
        "extra_build_options": wp.ModuleBuildOptions(
            extra_cpu_preamble=simd.SOURCE + gaussians.SOURCE
        ),
        "fast_math": True,
        "optimization_level": 3,
    }
)

Floats = wp.array(dtype=wp.float32)
Ints = wp.array(dtype=wp.int32)


@wp.func_native(
    """
    using namespace twinloop;
    Gaussian* packed = (Gaussian*)records.data;
    const int n = pack(count, geometry.data, depths.data, width, height, radius_clip, scratch.data,
                       order.data, rank.data, radii.data, packed);
    pack_features(n, order.data, features.data, stride, 0, channels < 4 ? channels : 4, packed);
    totals.data[0] = n;
    """
)
def _pack(
    count: int,
    geometry: Floats,
    depths: Floats,
    features: Floats,
    stride: int,
    channels: int,
    width: int,
    height: int,
    radius_clip: float,
    scratch: Ints,
    order: Ints,
    rank: Ints,
    radii: Ints,
    records: Floats,
    totals: Ints,
): ...


@wp.func_native(
    """
    using namespace twinloop;
    totals.data[1] = bin(totals.data[0], (const Gaussian*)records.data, (width + 15) / 16,
                         (height + 15) / 16, capacity, start.data, begin.data, place.data,
                         list.data);
    """
)
def _bin(
    records: Floats,
    width: int,
    height: int,
    capacity: int,
    start: Ints,
    begin: Ints,
    place: Ints,
    list: Ints,
    totals: Ints,
): ...


@wp.func_native(
    "twinloop::pack_features(visible, order.data, features.data, stride, first, count, "
    "(twinloop::Gaussian*)records.data);"
)
def _pack_features(
    visible: int,
    order: Ints,
    features: Floats,
    stride: int,
    first: int,
    count: int,
    records: Floats,
): ...


@wp.func_native(
    """
    using namespace twinloop;
    if (count == 4)
      forward_tile<4>(tile, width, height, stride, count, start.data, list.data,
                      (const Gaussian*)records.data, image.data + first, transmittance.data,
                      (unsigned*)used.data);
    else
      forward_tile<3>(tile, width, height, stride, count, start.data, list.data,
                      (const Gaussian*)records.data, image.data + first, transmittance.data,
                      (unsigned*)used.data);
    """
)
def _forward_tile(
    tile: int,
    width: int,
    height: int,
    stride: int,
    first: int,
    count: int,
    start: Ints,
    list: Ints,
    records: Floats,
    image: Floats,
    transmittance: Floats,
    used: Ints,
): ...


@wp.func_native(
    """
    using namespace twinloop;
    const float* alpha = first == 0 ? alpha_gradient.data : (const float*)0;
    if (count == 4)
      backward_tile<4>(tile, width, height, stride, count, start.data, list.data,
                       (const Gaussian*)records.data, image.data + first, transmittance.data,
                       (const unsigned*)used.data, image_gradient.data + first, alpha,
                       gradient.data);
    else
      backward_tile<3>(tile, width, height, stride, count, start.data, list.data,
                       (const Gaussian*)records.data, image.data + first, transmittance.data,
                       (const unsigned*)used.data, image_gradient.data + first, alpha,
                       gradient.data);
    """
)
def _backward_tile(
    tile: int,
    width: int,
    height: int,
    stride: int,
    first: int,
    count: int,
    start: Ints,
    list: Ints,
    records: Floats,
    image: Floats,
    transmittance: Floats,
    used: Ints,
    image_gradient: Floats,
    alpha_gradient: Floats,
    gradient: Floats,
): ...


@wp.func_native(
    "twinloop::gather(start, stop, geometry.data, rank.data, begin.data, place.data, "
    "(const unsigned*)used.data, gradient.data, stride, first, count, geometry_gradient.data, "
    "feature_gradient.data);"
)
def _gather(
    start: int,
    stop: int,
    geometry: Floats,
    rank: Ints,
    begin: Ints,
    place: Ints,
    used: Ints,
    gradient: Floats,
    stride: int,
    first: int,
    count: int,
    geometry_gradient: Floats,
    feature_gradient: Floats,
): ...


@wp.kernel(enable_backward=False)
def pack_and_bin(
    repeat: int,
    count: int,
    geometry: Floats,
    depths: Floats,
    features: Floats,
    stride: int,
    channels: int,
    width: int,
    height: int,
    radius_clip: float,
    capacity: int,
    scratch: Ints,
    order: Ints,
    rank: Ints,
    radii: Ints,
    records: Floats,
    start: Ints,
    begin: Ints,
    place: Ints,
    list: Ints,
    totals: Ints,
):
    """Sort by depth, pack what can be seen, sort into tiles; `repeat` does the last again."""
    if repeat == 0:
        _pack(
            count,
            geometry,
            depths,
            features,
            stride,
            channels,
            width,
            height,
            radius_clip,
            scratch,
            order,
            rank,
            radii,
            records,
            totals,
        )
    _bin(records, width, height, capacity, start, begin, place, list, totals)


@wp.kernel(enable_backward=False)
def pack_features(
    visible: int,
    order: Ints,
    features: Floats,
    stride: int,
    first: int,
    count: int,
    records: Floats,
):
    """Put other feature channels into the packed records."""
    _pack_features(visible, order, features, stride, first, count, records)


@wp.kernel(enable_backward=False)
def forward(
    slice: int,
    slices: int,
    width: int,
    height: int,
    stride: int,
    first: int,
    count: int,
    start: Ints,
    list: Ints,
    records: Floats,
    image: Floats,
    transmittance: Floats,
    used: Ints,
):
    """Composite the tiles of one slice."""
    tile = wp.tid() * slices + slice
    if tile < start.shape[0] - 1:
        _forward_tile(
            tile,
            width,
            height,
            stride,
            first,
            count,
            start,
            list,
            records,
            image,
            transmittance,
            used,
        )


@wp.kernel(enable_backward=False)
def backward(
    slice: int,
    slices: int,
    width: int,
    height: int,
    stride: int,
    first: int,
    count: int,
    start: Ints,
    list: Ints,
    records: Floats,
    image: Floats,
    transmittance: Floats,
    used: Ints,
    image_gradient: Floats,
    alpha_gradient: Floats,
    gradient: Floats,
):
    """Back-propagate through the tiles of one slice into the rows of their list entries."""
    tile = wp.tid() * slices + slice
    if tile < start.shape[0] - 1:
        _backward_tile(
            tile,
            width,
            height,
            stride,
            first,
            count,
            start,
            list,
            records,
            image,
            transmittance,
            used,
            image_gradient,
            alpha_gradient,
            gradient,
        )


@wp.kernel(enable_backward=False)
def gather(
    start: int,
    stop: int,
    geometry: Floats,
    rank: Ints,
    begin: Ints,
    place: Ints,
    used: Ints,
    gradient: Floats,
    stride: int,
    first: int,
    count: int,
    geometry_gradient: Floats,
    feature_gradient: Floats,
):
    """Sum the gradient rows of a range of Gaussians."""
    _gather(
        start,
        stop,
        geometry,
        rank,
        begin,
        place,
        used,
        gradient,
        stride,
        first,
        count,
        geometry_gradient,
        feature_gradient,
    )
