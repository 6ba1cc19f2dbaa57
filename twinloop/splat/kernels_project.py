# mypy: ignore-errors
"""Warp kernels of the 3D Gaussian rasteriser's first half: projection and colour.

Warp differentiates straight-line kernels correctly, so these are ordinary kernels whose adjoints
Warp generates; compositing is native (see `kernels`).
"""

import warp as wp

wp.config.log_level = wp.LOG_ERROR
wp.init()
wp.set_module_options({"fast_math": True, "optimization_level": 3})

vec6 = wp.types.vector(length=6, dtype=wp.float32)
CHUNK = 512
"""Gaussians that share one copy of the camera, so that its gradient is summed in a fixed order."""
PER_CAMERA = wp.constant(CHUNK)

Floats = wp.array(dtype=wp.float32)


@wp.func
def turn_back(w: float, axis: wp.vec3, v: wp.vec3):
    """Vector turned by the inverse of the unit quaternion (w, axis)."""
    t = 2.0 * wp.cross(v, axis)
    return v + w * t + wp.cross(t, axis)


@wp.kernel
def project(
    offset: int,
    means: wp.array(dtype=wp.vec3),
    quats: wp.array(dtype=wp.vec4),
    scales: wp.array(dtype=wp.vec3),
    opacities: Floats,
    rotations: wp.array(dtype=wp.mat33),
    translations: wp.array(dtype=wp.vec3),
    intrinsics: wp.vec4,
    size: wp.vec2,
    near: float,
    far: float,
    eps2d: float,
    antialiased: int,
    geometry: wp.array(dtype=vec6),
    depths: Floats,
):
    """Perspective projection of 3D Gaussians (EWA, Zwicker et al. 2002), as gsplat does it.

    Writes x, y px, the factored conic p, s, q, and the opacity. Gaussians outside near..far get
    zeros and a depth of zero.
    """
    i = wp.tid() + offset
    camera = i / PER_CAMERA
    rotation = rotations[camera]
    p = rotation * means[i] + translations[camera]
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
        # Rows of the image's Jacobian by world position, then by the Gaussian's own axes.
        ahead = rotation[2]
        row_u = fx * rz * (rotation[0] - ux * ahead)
        row_v = fy * rz * (rotation[1] - uy * ahead)
        q = quats[i] / wp.max(wp.length(quats[i]), 1.0e-12)
        axis = wp.vec3(q[1], q[2], q[3])
        u = wp.cw_mul(turn_back(q[0], axis, row_u), scales[i])
        v = wp.cw_mul(turn_back(q[0], axis, row_v), scales[i])
        a = wp.dot(u, u)
        b = wp.dot(u, v)
        c = wp.max(wp.dot(v, v), 1.0e-15)
        area = wp.cross(u, v)  # a c - b^2 without cancellation
        plain = wp.dot(area, area)
        det = wp.max(plain + eps2d * (a + c) + eps2d * eps2d, 1.0e-30)
        alpha = opacities[i]
        if antialiased != 0:
            alpha = alpha * wp.sqrt(wp.max(plain / det, 1.0e-12))
        geometry[i] = vec6(
            fx * p[0] * rz + intrinsics[2],
            fy * p[1] * rz + intrinsics[3],
            (c + eps2d) / det,
            -b / (c + eps2d),
            1.0 / (c + eps2d),
            alpha,
        )
        depths[i] = p[2]
    else:
        geometry[i] = vec6()
        depths[i] = 0.0


@wp.kernel
def shade(
    offset: int,
    bases: int,
    means: wp.array(dtype=wp.vec3),
    eyes: wp.array(dtype=wp.vec3),
    coefficients: wp.array2d(dtype=wp.vec3),
    depths: Floats,
    features: wp.array(dtype=wp.vec4),
):
    """Colour from real spherical harmonics to degree 3, plus a half, not below zero; and depth."""
    i = wp.tid() + offset
    if depths[i] > 0.0:
        colour = 0.2820947917738781 * coefficients[i, 0]
        if bases > 1:
            d = wp.normalize(means[i] - eyes[i / PER_CAMERA])
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
        colour = wp.max(colour + wp.vec3(0.5, 0.5, 0.5), wp.vec3(0.0, 0.0, 0.0))
        features[i] = wp.vec4(colour[0], colour[1], colour[2], depths[i])
    else:
        features[i] = wp.vec4()
