# mypy: ignore-errors
"""The Warp kernel of `twinloop.splat.hull`, apart because mypy cannot read Warp types."""

import warp as wp

wp.config.log_level = wp.LOG_ERROR


@wp.func
def bilinear(image: wp.array3d(dtype=wp.float32), view: int, x: float, y: float):
    """Sample a stack of images between pixel centres; the caller stays inside."""
    i = int(wp.floor(x))
    j = int(wp.floor(y))
    a = x - float(i)
    b = y - float(j)
    top = image[view, j, i] * (1.0 - a) + image[view, j, i + 1] * a
    bottom = image[view, j + 1, i] * (1.0 - a) + image[view, j + 1, i + 1] * a
    return top * (1.0 - b) + bottom * b


@wp.kernel(enable_backward=False)
def carve(
    origin: wp.vec3,
    step: float,
    shape: wp.vec3i,
    distance: wp.array3d(dtype=wp.float32),
    corner: wp.array(dtype=wp.vec2),
    intrinsics: wp.array(dtype=wp.vec4),
    rotation: wp.array(dtype=wp.mat33),
    translation: wp.array(dtype=wp.vec3),
    tolerate: int,
    field: wp.array3d(dtype=wp.float32),
):
    """Per grid point the (tolerate + 1)-th smallest metric silhouette distance over the views."""
    i, j, k = wp.tid()
    point = origin + step * wp.vec3(float(i), float(j), float(k))
    views = distance.shape[0]
    last_x = float(distance.shape[2] - 1)
    last_y = float(distance.shape[1] - 1)
    low0 = wp.float32(1.0e3)
    low1 = wp.float32(1.0e3)
    low2 = wp.float32(1.0e3)
    seen = wp.int32(0)
    for v in range(views):
        p = rotation[v] * point + translation[v]
        if p[2] > 0.01:
            f = intrinsics[v]
            x = f[0] * p[0] / p[2] + f[2] - corner[v][0]
            y = f[1] * p[1] / p[2] + f[3] - corner[v][1]
            # Outside the crop there is no object: continue its border's (negative) distance.
            cx = wp.clamp(x, 0.0, last_x - 1.0e-3)
            cy = wp.clamp(y, 0.0, last_y - 1.0e-3)
            d = bilinear(distance, v, cx, cy)
            d -= wp.sqrt((x - cx) * (x - cx) + (y - cy) * (y - cy))
            d *= 2.0 * p[2] / (f[0] + f[1])
            seen += 1
            if d < low0:
                low2 = low1
                low1 = low0
                low0 = d
            elif d < low1:
                low2 = low1
                low1 = d
            elif d < low2:
                low2 = d
    value = low0
    if tolerate == 1:
        value = low1
    if tolerate == 2:
        value = low2
    if 2 * seen < views:
        value = -1.0e3
    field[i, j, k] = value
