# mypy: ignore-errors
"""Warp kernels of the CPU rasteriser: projection and colour by Warp's adjoint, compositing native.

Warp differentiates straight-line kernels correctly, so projection and spherical harmonics are
ordinary kernels whose adjoints Warp generates; the compositing loop is not (see `compositing`).
"""

import warp as wp

from twinloop.splat.compositing import RECORD, SOURCE

wp.config.log_level = wp.LOG_ERROR
wp.init()  # from_torch needs it before the first launch
wp.set_module_options(
    {
        "extra_build_options": wp.ModuleBuildOptions(extra_cpu_preamble=SOURCE),
        "fast_math": True,
        "optimization_level": 3,
    }
)

STRIDE = wp.constant(RECORD)


@wp.func_native(
    "total.data[0] = twinloop::bin(count, order.data, (const twinloop::Gaussian*)records.data, "
    "width, height, capacity, start.data, list.data);"
)
def _bin(
    count: int,
    order: wp.array(dtype=wp.int32),
    records: wp.array(dtype=wp.float32),
    width: int,
    height: int,
    capacity: int,
    start: wp.array(dtype=wp.int32),
    list: wp.array(dtype=wp.int32),
    total: wp.array(dtype=wp.int32),
): ...


@wp.func_native(
    "twinloop::forward_tile(tile, width, height, start.data, list.data, "
    "(const twinloop::Gaussian*)records.data, image.data, transmittance.data);"
)
def _forward_tile(
    tile: int,
    width: int,
    height: int,
    start: wp.array(dtype=wp.int32),
    list: wp.array(dtype=wp.int32),
    records: wp.array(dtype=wp.float32),
    image: wp.array(dtype=wp.float32),
    transmittance: wp.array(dtype=wp.float32),
): ...


@wp.func_native(
    "twinloop::backward_tile(tile, width, height, start.data, list.data, "
    "(const twinloop::Gaussian*)records.data, image.data, transmittance.data, "
    "image_gradient.data, transmittance_gradient.data, gradient.data);"
)
def _backward_tile(
    tile: int,
    width: int,
    height: int,
    start: wp.array(dtype=wp.int32),
    list: wp.array(dtype=wp.int32),
    records: wp.array(dtype=wp.float32),
    image: wp.array(dtype=wp.float32),
    transmittance: wp.array(dtype=wp.float32),
    image_gradient: wp.array(dtype=wp.float32),
    transmittance_gradient: wp.array(dtype=wp.float32),
    gradient: wp.array(dtype=wp.float32),
): ...


@wp.kernel(enable_backward=False)
def bin_gaussians(
    count: int,
    order: wp.array(dtype=wp.int32),
    records: wp.array(dtype=wp.float32),
    width: int,
    height: int,
    capacity: int,
    start: wp.array(dtype=wp.int32),
    list: wp.array(dtype=wp.int32),
    total: wp.array(dtype=wp.int32),
):
    """Sort Gaussians, given in depth order, into tiles; one launch of size one."""
    _bin(count, order, records, width, height, capacity, start, list, total)


@wp.kernel(enable_backward=False)
def forward(
    slice: int,
    slices: int,
    tiles: int,
    width: int,
    height: int,
    start: wp.array(dtype=wp.int32),
    list: wp.array(dtype=wp.int32),
    records: wp.array(dtype=wp.float32),
    image: wp.array(dtype=wp.float32),
    transmittance: wp.array(dtype=wp.float32),
):
    """Composite the tiles of one slice."""
    tile = wp.tid() * slices + slice
    if tile < tiles:
        _forward_tile(tile, width, height, start, list, records, image, transmittance)


@wp.kernel(enable_backward=False)
def backward(
    slice: int,
    slices: int,
    tiles: int,
    width: int,
    height: int,
    start: wp.array(dtype=wp.int32),
    list: wp.array(dtype=wp.int32),
    records: wp.array(dtype=wp.float32),
    image: wp.array(dtype=wp.float32),
    transmittance: wp.array(dtype=wp.float32),
    image_gradient: wp.array(dtype=wp.float32),
    transmittance_gradient: wp.array(dtype=wp.float32),
    gradient: wp.array(dtype=wp.float32),
):
    """Back-propagate through the tiles of one slice into the slice's own gradient buffer."""
    tile = wp.tid() * slices + slice
    if tile < tiles:
        _backward_tile(
            tile,
            width,
            height,
            start,
            list,
            records,
            image,
            transmittance,
            image_gradient,
            transmittance_gradient,
            gradient,
        )


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


@wp.kernel
def project(
    means: wp.array(dtype=wp.vec3),
    quats: wp.array(dtype=wp.vec4),
    scales: wp.array(dtype=wp.vec3),
    rotation: wp.mat33,
    translation: wp.vec3,
    intrinsics: wp.vec4,
    size: wp.vec2,
    near: float,
    far: float,
    eps2d: float,
    means2d: wp.array(dtype=wp.vec2),
    conics: wp.array(dtype=wp.vec3),
    depths: wp.array(dtype=wp.float32),
    compensations: wp.array(dtype=wp.float32),
):
    """Perspective projection of 3D Gaussians (EWA, Zwicker et al. 2002), as gsplat does it.

    Gaussians outside near..far or without area get a conic of zeros and a depth of zero.
    """
    i = wp.tid()
    p = rotation * means[i] + translation
    if p[2] > near and p[2] < far:
        fx = intrinsics[0]
        fy = intrinsics[1]
        rz = 1.0 / p[2]
        # The linearisation is clamped to a little outside the image, as everywhere in 3DGS.
        margin_x = 0.15 * size[0] / fx
        margin_y = 0.15 * size[1] / fy
        ux = wp.clamp(
            p[0] * rz, -intrinsics[2] / fx - margin_x, (size[0] - intrinsics[2]) / fx + margin_x
        )
        uy = wp.clamp(
            p[1] * rz, -intrinsics[3] / fy - margin_y, (size[1] - intrinsics[3]) / fy + margin_y
        )
        m = rotation * rotation_of(quats[i]) * wp.diag(scales[i])
        u = fx * rz * (wp.vec3(m[0, 0], m[0, 1], m[0, 2]) - ux * wp.vec3(m[2, 0], m[2, 1], m[2, 2]))
        v = fy * rz * (wp.vec3(m[1, 0], m[1, 1], m[1, 2]) - uy * wp.vec3(m[2, 0], m[2, 1], m[2, 2]))
        a = wp.dot(u, u)
        b = wp.dot(u, v)
        c = wp.dot(v, v)
        plain = a * c - b * b
        det = (a + eps2d) * (c + eps2d) - b * b
        if det > 0.0:
            means2d[i] = wp.vec2(fx * p[0] * rz + intrinsics[2], fy * p[1] * rz + intrinsics[3])
            conics[i] = wp.vec3((c + eps2d) / det, -b / det, (a + eps2d) / det)
            depths[i] = p[2]
            compensations[i] = wp.sqrt(wp.max(plain / det, 0.0))


@wp.kernel
def harmonics(
    bases: int,
    means: wp.array(dtype=wp.vec3),
    eye: wp.vec3,
    coefficients: wp.array2d(dtype=wp.vec3),
    colors: wp.array(dtype=wp.vec3),
):
    """Colour from real spherical harmonics to degree 3, plus a half, not below zero."""
    i = wp.tid()
    colour = 0.2820947917738781 * coefficients[i, 0]
    if bases > 1:
        d = wp.normalize(means[i] - eye)
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
    colors[i] = wp.max(colour + wp.vec3(0.5, 0.5, 0.5), wp.vec3(0.0, 0.0, 0.0))


@wp.kernel(enable_backward=False)
def pack(
    means2d: wp.array(dtype=wp.vec2),
    conics: wp.array(dtype=wp.vec3),
    opacities: wp.array(dtype=wp.float32),
    features: wp.array(dtype=wp.vec4),
    records: wp.array(dtype=wp.float32),
):
    """Write the compositor's records, with the outline on which alpha falls to 1/255."""
    i = wp.tid()
    j = i * STRIDE
    a = conics[i][0]
    b = conics[i][1]
    c = conics[i][2]
    det = a * c - b * b
    records[j] = means2d[i][0]
    records[j + 1] = means2d[i][1]
    records[j + 2] = a
    records[j + 3] = b
    records[j + 4] = c
    records[j + 5] = opacities[i]
    level = 2.0 * wp.log(wp.max(255.0 * opacities[i], 1.0))
    if det > 0.0 and level > 0.0:
        records[j + 6] = wp.sqrt(level * a / det)
        records[j + 7] = -b / a
        records[j + 8] = level / a
        records[j + 9] = det / (a * a)
        records[j + 10] = -b / c * wp.sqrt(level * c / det)
    else:
        records[j + 6] = -1.0
    for k in range(4):
        records[j + 12 + k] = features[i][k]
