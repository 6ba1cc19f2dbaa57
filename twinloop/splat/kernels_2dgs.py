# mypy: ignore-errors
"""Warp kernels of the CPU rasteriser of surfels: projection by Warp's adjoint, compositing native.

`outline` finds which surfels can be seen and where; `project` writes the compositor's records of
those, in depth order, and is differentiated by Warp; the rest wraps the compositor in
`twinloop.splat.native.surfels`.
"""

import warp as wp

from twinloop.splat.native import simd, surfels

wp.config.log_level = wp.LOG_ERROR
wp.init()  # from_torch needs it before the first launch
wp.set_module_options(
    {
        "extra_build_options": wp.ModuleBuildOptions(
            extra_cpu_preamble=simd.SOURCE + surfels.SOURCE
        ),
        "fast_math": True,
        "optimization_level": 3,
    }
)

STRIDE = wp.constant(surfels.RECORD)
OUTLINE = wp.constant(17)
FEATURES = wp.constant(surfels.FEATURES)
EVERYWHERE = wp.constant(1.0e6)
EDGE_ON = wp.constant(1.0e-4)
THIN = wp.constant(1.0e-4)
Floats = wp.array(dtype=wp.float32)
Ints = wp.array(dtype=wp.int32)


@wp.func
def rotation_of(q: wp.vec4):
    """Rotation matrix of a quaternion wxyz of any length."""
    n = q / wp.length(q)
    w = n[0]
    x = n[1]
    y = n[2]
    z = n[3]
    return wp.mat33(
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - w * z),
        2.0 * (x * z + w * y),
        2.0 * (x * y + w * z),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - w * x),
        2.0 * (x * z - w * y),
        2.0 * (y * z + w * x),
        1.0 - 2.0 * (x * x + y * y),
    )


@wp.func
def rotation_in(camera: Floats):
    """World to camera."""
    return wp.mat33(
        camera[0],
        camera[1],
        camera[2],
        camera[3],
        camera[4],
        camera[5],
        camera[6],
        camera[7],
        camera[8],
    )


@wp.func
def centre_of(m0: wp.vec3, m1: wp.vec3, z: wp.vec3):
    """Centre of the surfel's one-sigma ellipse in the image (px), which gsplat calls means2d.

    Where the surfel reaches behind the camera that is no ellipse: its mean's image instead.
    """
    d = z[0] * z[0] + z[1] * z[1] - z[2] * z[2]
    if d < 0.0:
        f = wp.vec3(z[0] / d, z[1] / d, -z[2] / d)
        return wp.vec2(wp.dot(m0, f), wp.dot(m1, f))
    return wp.vec2(m0[2] / z[2], m1[2] / z[2])


@wp.kernel(enable_backward=False)
def outline(
    camera: Floats,
    width: int,
    height: int,
    near: float,
    far: float,
    clip: float,
    strength: float,
    means: wp.array(dtype=wp.vec3),
    quats: wp.array(dtype=wp.vec4),
    scales: wp.array2d(dtype=wp.float32),
    opacities: Floats,
    depths: Floats,
    centres: wp.array(dtype=wp.vec2),
    outlines: wp.array2d(dtype=wp.float32),
    radii: wp.array2d(dtype=wp.int32),
):
    """Depth (zero where nothing shows), centre, outline and radii (px) of each surfel."""
    i = wp.tid()
    R = rotation_in(camera)
    p = R * means[i] + wp.vec3(camera[9], camera[10], camera[11])
    level = 2.0 * wp.log(255.0 * wp.max(opacities[i], 1.0e-9))
    if p[2] <= near or p[2] >= far or level < 0.0:
        return
    G = R * rotation_of(quats[i])
    su = scales[i, 0]
    sv = scales[i, 1]
    z = wp.vec3(G[2, 0] * su, G[2, 1] * sv, p[2])
    # Rows of K [tu tv p], shifted to the mean's image, then to the low-pass disc's centre.
    x = p[0] / p[2]
    y = p[1] / p[2]
    m0 = camera[12] * (wp.vec3(G[0, 0] * su, G[0, 1] * sv, p[0]) - x * z)
    m1 = camera[13] * (wp.vec3(G[1, 0] * su, G[1, 1] * sv, p[1]) - y * z)
    c = centre_of(m0, m1, z)
    m0 -= c[0] * z
    m1 -= c[1] * z
    cx = camera[12] * x + camera[14] + c[0]
    cy = camera[13] * y + camera[15] + c[1]
    # The outline u^2 + v^2 = level is an ellipse with covariance sxx, sxy, syy if all of it is in
    # front of the camera; if not, it may be anywhere.
    ex = wp.float32(0.0)
    ey = wp.float32(0.0)
    sxx = EVERYWHERE * EVERYWHERE
    sxy = wp.float32(0.0)
    syy = EVERYWHERE * EVERYWHERE
    reach = z[2] * z[2] - level * (z[0] * z[0] + z[1] * z[1])
    if reach > 1.0e-3 * z[2] * z[2]:
        ex = (m0[2] * z[2] - level * (m0[0] * z[0] + m0[1] * z[1])) / reach
        ey = (m1[2] * z[2] - level * (m1[0] * z[0] + m1[1] * z[1])) / reach
        sxx = ex * ex + (level * (m0[0] * m0[0] + m0[1] * m0[1]) - m0[2] * m0[2]) / reach
        sxy = ex * ey + (level * (m0[0] * m1[0] + m0[1] * m1[1]) - m0[2] * m1[2]) / reach
        syy = ey * ey + (level * (m1[0] * m1[0] + m1[1] * m1[1]) - m1[2] * m1[2]) / reach
        sxx = wp.max(sxx, 0.0) * (1.0 + 2.0e-6) + 1.0e-4
        syy = wp.max(syy, 0.0) * (1.0 + 2.0e-6) + 1.0e-4
    half_width = wp.sqrt(sxx)
    half_height = wp.sqrt(syy)
    disc = wp.sqrt(level / strength)
    # The disc is left out where the ellipse surely holds it: its shorter half axis reaches past it.
    middle = 0.5 * (sxx + syy)
    shorter = wp.sqrt(wp.max(middle - wp.sqrt(0.25 * (sxx - syy) * (sxx - syy) + sxy * sxy), 0.0))
    if shorter > disc + wp.sqrt(ex * ex + ey * ey):
        disc = wp.float32(0.0)
    left = wp.max(half_width - ex, disc)
    right = wp.max(half_width + ex, disc)
    top = wp.max(half_height - ey, disc)
    bottom = wp.max(half_height + ey, disc)
    if cx + right <= 0.0 or cx - left >= float(width):
        return
    if cy + bottom <= 0.0 or cy - top >= float(height):
        return
    rx = wp.max(left, right)
    ry = wp.max(top, bottom)
    if rx <= clip and ry <= clip:
        return
    depths[i] = p[2]
    centres[i] = wp.vec2(cx, cy)
    radii[i, 0] = int(wp.ceil(wp.min(rx, EVERYWHERE)))
    radii[i, 1] = int(wp.ceil(wp.min(ry, EVERYWHERE)))
    rest = wp.max(sxx - sxy * sxy / syy, 0.0) + 2.0e-6 * wp.min(sxx, EVERYWHERE)
    outlines[i, 0] = disc
    outlines[i, 1] = cx + ex
    outlines[i, 2] = cy + ey
    outlines[i, 3] = half_height
    outlines[i, 4] = sxy / syy
    outlines[i, 5] = rest
    outlines[i, 6] = rest / syy
    outlines[i, 7] = sxy / half_width


@wp.func
def harmonics(bases: int, d: wp.vec3, coefficients: wp.array2d(dtype=wp.vec3), i: int):
    """Colour from real spherical harmonics to degree 3 in direction d, plus a half, not below 0."""
    colour = 0.2820947917738781 * coefficients[i, 0]
    if bases > 1:
        x = d[0]
        y = d[1]
        z = d[2]
        colour += 0.48860251190292 * (
            z * coefficients[i, 2] - y * coefficients[i, 1] - x * coefficients[i, 3]
        )
        if bases > 4:
            colour += (
                1.092548430592079 * (x * y * coefficients[i, 4] - y * z * coefficients[i, 5])
                + (0.9461746957575601 * z * z - 0.3153915652525201) * coefficients[i, 6]
                - 1.092548430592079 * x * z * coefficients[i, 7]
                + 0.5462742152960395 * (x * x - y * y) * coefficients[i, 8]
            )
        if bases > 9:
            colour += (
                -0.5900435899266435 * y * (3.0 * x * x - y * y) * coefficients[i, 9]
                + 2.890611442640554 * x * y * z * coefficients[i, 10]
                - 0.4570457994644657 * y * (5.0 * z * z - 1.0) * coefficients[i, 11]
                + 0.3731763325901154 * z * (5.0 * z * z - 3.0) * coefficients[i, 12]
                - 0.4570457994644657 * x * (5.0 * z * z - 1.0) * coefficients[i, 13]
                + 1.445305721320277 * z * (x * x - y * y) * coefficients[i, 14]
                - 0.5900435899266435 * x * (x * x - 3.0 * y * y) * coefficients[i, 15]
            )
    return wp.max(colour + wp.vec3(0.5, 0.5, 0.5), wp.vec3(0.0, 0.0, 0.0))


@wp.kernel
def project(
    start: int,
    end: int,
    order: Ints,
    strength: float,
    crossing: float,
    bases: int,
    channels: int,
    centres: wp.array(dtype=wp.vec2),
    outlines: wp.array2d(dtype=wp.float32),
    camera: Floats,
    means: wp.array(dtype=wp.vec3),
    quats: wp.array(dtype=wp.vec4),
    scales: wp.array2d(dtype=wp.float32),
    opacities: Floats,
    coefficients: wp.array2d(dtype=wp.vec3),
    colors: wp.array2d(dtype=wp.float32),
    records: Floats,
):
    """Records of the surfels in `order`, from `start` to `end`.

    `strength` is the low-pass filter's factor; `crossing` 1 takes depth where the ray crosses the
    surfel, 0 at its mean. Colours are harmonics if there are any `bases`, else up to 3 `channels`.
    """
    n = start + wp.tid()
    if n >= end:
        return
    i = order[n]
    j = n * STRIDE
    R = rotation_in(camera)
    t = wp.vec3(camera[9], camera[10], camera[11])
    p = R * means[i] + t
    W = rotation_of(quats[i])
    G = R * W
    su = scales[i, 0]
    sv = scales[i, 1]
    z = wp.vec3(G[2, 0] * su, G[2, 1] * sv, p[2])
    # `centres` is a constant: single precision is exact near it, and its gradient is none.
    c = centres[i]
    m0 = camera[12] * wp.vec3(G[0, 0] * su, G[0, 1] * sv, p[0]) + (camera[14] - c[0]) * z
    m1 = camera[13] * wp.vec3(G[1, 0] * su, G[1, 1] * sv, p[1]) + (camera[15] - c[1]) * z
    centre = c + centre_of(m0, m1, z)
    records[j] = centre[0]
    records[j + 1] = centre[1]
    records[j + 2] = opacities[i]
    records[j + 3] = strength
    facing = G[0, 2] * p[0] + G[1, 2] * p[1] + G[2, 2] * p[2]
    thickness = wp.min(wp.abs(su), wp.abs(sv)) * wp.min(camera[12], camera[13])
    if wp.abs(facing) > EDGE_ON * wp.length(p) and thickness > THIN * p[2]:
        a = wp.cross(m0, m1)
        b = wp.cross(m1, z)
        d = wp.cross(z, m0)
        for k in range(3):
            records[j + 4 + k] = a[k]
            records[j + 7 + k] = b[k]
            records[j + 10 + k] = d[k]
    else:  # seen edge on, or without area: only the low-pass disc shows
        records[j + 4] = 1.0e9
        records[j + 6] = 1.0
    records[j + 13] = crossing * z[0]
    records[j + 14] = crossing * z[1]
    records[j + 15] = p[2]
    for k in range(8):
        records[j + 16 + k] = outlines[i, k]
    if bases > 0:
        eye = -(wp.transpose(R) * t)
        colour = harmonics(bases, wp.normalize(means[i] - eye), coefficients, i)
        records[j + FEATURES] = colour[0]
        records[j + FEATURES + 1] = colour[1]
        records[j + FEATURES + 2] = colour[2]
    else:
        if channels > 0:
            records[j + FEATURES] = colors[i, 0]
        if channels > 1:
            records[j + FEATURES + 1] = colors[i, 1]
        if channels > 2:
            records[j + FEATURES + 2] = colors[i, 2]
    side = wp.float32(-1.0)
    if facing < 0.0:
        side = 1.0
    records[j + FEATURES + 3] = side * W[0, 2]
    records[j + FEATURES + 4] = side * W[1, 2]
    records[j + FEATURES + 5] = side * W[2, 2]


@wp.func_native(
    "found.data[0] = twinloop::depth_order(count, depths.data, scratch.data, order.data);"
)
def _depth_order(count: int, depths: Floats, scratch: Ints, order: Ints, found: Ints): ...


@wp.func_native(
    "total.data[0] = twinloop::bin(count, (const twinloop::surfels::Surfel*)records.data, across, "
    "down, capacity, start.data, begin.data, place.data, list.data);"
)
def _bin(
    count: int,
    records: Floats,
    across: int,
    down: int,
    capacity: int,
    start: Ints,
    begin: Ints,
    place: Ints,
    list: Ints,
    total: Ints,
): ...


@wp.func_native(
    """
  using namespace twinloop::surfels;
  const Pixels out{width, height, colour.data, channels, first, taken, normal.data, depth_channel,
                   expected, alpha.data, distortion.data, median.data};
  forward(depth, tile, out, start.data, list.data, records.data,
          features.data + feature_offset, stride, near, background.data, transmittance.data);
"""
)
def _forward(
    tile: int,
    depth: int,
    width: int,
    height: int,
    channels: int,
    first: int,
    taken: int,
    depth_channel: int,
    expected: int,
    near: float,
    start: Ints,
    list: Ints,
    records: Floats,
    features: Floats,
    feature_offset: int,
    stride: int,
    background: Floats,
    colour: Floats,
    normal: Floats,
    alpha: Floats,
    distortion: Floats,
    median: Floats,
    transmittance: Floats,
): ...


@wp.func_native(
    """
  using namespace twinloop::surfels;
  const Pixels image{width, height, colour.data, channels, first, taken, normal.data,
                     depth_channel, expected, nullptr, distortion.data, nullptr};
  const Pixels back{width, height, v_colour.data, channels, first, taken, v_normal.data,
                    depth_channel, expected, v_alpha.data, v_distortion.data, v_median.data};
  backward(depth, tile, image, back, start.data, list.data, records.data,
           features.data + feature_offset, stride, near, background.data, transmittance.data,
           gradient.data);
"""
)
def _backward(
    tile: int,
    depth: int,
    width: int,
    height: int,
    channels: int,
    first: int,
    taken: int,
    depth_channel: int,
    expected: int,
    near: float,
    start: Ints,
    list: Ints,
    records: Floats,
    features: Floats,
    feature_offset: int,
    stride: int,
    background: Floats,
    colour: Floats,
    normal: Floats,
    distortion: Floats,
    transmittance: Floats,
    v_colour: Floats,
    v_alpha: Floats,
    v_normal: Floats,
    v_distortion: Floats,
    v_median: Floats,
    gradient: Floats,
): ...


@wp.func_native(
    "twinloop::surfels::gather(from_, to, begin.data, place.data, "
    "(const twinloop::surfels::Surfel*)records.data, gradient.data, stride, first != 0, "
    "v_records.data, v_features.data + feature_offset, screen.data);"
)
def _gather(
    from_: int,
    to: int,
    first: int,
    begin: Ints,
    place: Ints,
    records: Floats,
    gradient: Floats,
    v_records: Floats,
    v_features: Floats,
    feature_offset: int,
    stride: int,
    screen: Floats,
): ...


@wp.kernel(enable_backward=False)
def depth_order(count: int, depths: Floats, scratch: Ints, order: Ints, found: Ints):
    """Sort what is seen from near to far; one launch of size one."""
    _depth_order(count, depths, scratch, order, found)


@wp.kernel(enable_backward=False)
def bin_surfels(
    count: int,
    records: Floats,
    across: int,
    down: int,
    capacity: int,
    start: Ints,
    begin: Ints,
    place: Ints,
    list: Ints,
    total: Ints,
):
    """Sort records, given in depth order, into tiles; one launch of size one."""
    _bin(count, records, across, down, capacity, start, begin, place, list, total)


@wp.kernel(enable_backward=False)
def forward(
    slice: int,
    slices: int,
    tiles: int,
    depth: int,
    width: int,
    height: int,
    channels: int,
    first: int,
    taken: int,
    depth_channel: int,
    expected: int,
    near: float,
    start: Ints,
    list: Ints,
    records: Floats,
    features: Floats,
    feature_offset: int,
    stride: int,
    background: Floats,
    colour: Floats,
    normal: Floats,
    alpha: Floats,
    distortion: Floats,
    median: Floats,
    transmittance: Floats,
):
    """Composite the tiles of one slice."""
    tile = wp.tid() * slices + slice
    if tile < tiles:
        _forward(
            tile,
            depth,
            width,
            height,
            channels,
            first,
            taken,
            depth_channel,
            expected,
            near,
            start,
            list,
            records,
            features,
            feature_offset,
            stride,
            background,
            colour,
            normal,
            alpha,
            distortion,
            median,
            transmittance,
        )


@wp.kernel(enable_backward=False)
def backward(
    slice: int,
    slices: int,
    tiles: int,
    depth: int,
    width: int,
    height: int,
    channels: int,
    first: int,
    taken: int,
    depth_channel: int,
    expected: int,
    near: float,
    start: Ints,
    list: Ints,
    records: Floats,
    features: Floats,
    feature_offset: int,
    stride: int,
    background: Floats,
    colour: Floats,
    normal: Floats,
    distortion: Floats,
    transmittance: Floats,
    v_colour: Floats,
    v_alpha: Floats,
    v_normal: Floats,
    v_distortion: Floats,
    v_median: Floats,
    gradient: Floats,
):
    """Back-propagate through the tiles of one slice, into the entries of their lists."""
    tile = wp.tid() * slices + slice
    if tile < tiles:
        _backward(
            tile,
            depth,
            width,
            height,
            channels,
            first,
            taken,
            depth_channel,
            expected,
            near,
            start,
            list,
            records,
            features,
            feature_offset,
            stride,
            background,
            colour,
            normal,
            distortion,
            transmittance,
            v_colour,
            v_alpha,
            v_normal,
            v_distortion,
            v_median,
            gradient,
        )


@wp.kernel(enable_backward=False)
def gather(
    start: int,
    end: int,
    first: int,
    begin: Ints,
    place: Ints,
    records: Floats,
    gradient: Floats,
    v_records: Floats,
    v_features: Floats,
    feature_offset: int,
    stride: int,
    screen: Floats,
):
    """Add the entries' gradients up for the records from `start` to `end`; a launch of size one."""
    _gather(
        start,
        end,
        first,
        begin,
        place,
        records,
        gradient,
        v_records,
        v_features,
        feature_offset,
        stride,
        screen,
    )
