# mypy: ignore-errors
"""The Warp kernel of `twinloop.splat.tsdf`, apart because mypy cannot read Warp types."""

import warp as wp

from twinloop.splat.hull_kernel import bilinear

wp.config.log_level = wp.LOG_ERROR


@wp.kernel(enable_backward=False)
def fuse_depth(
    first: int,
    origin: wp.vec3,
    step: float,
    reach: float,
    slope: float,
    outline: wp.array3d(dtype=wp.float32),
    inverse: wp.array3d(dtype=wp.float32),
    cosine: wp.array3d(dtype=wp.float32),
    corner: wp.array(dtype=wp.vec2),
    intrinsics: wp.array(dtype=wp.vec4),
    rotation: wp.array(dtype=wp.mat33),
    translation: wp.array(dtype=wp.vec3),
    tolerate: int,
    surface: wp.array3d(dtype=wp.float32),
    hull: wp.array3d(dtype=wp.float32),
):
    """Distances (m, positive inside) at grid points, slices `first` and after.

    `surface` gets that to the surface of the depths, `hull` that to the hull of the outlines.
    """
    i, j, k = wp.tid()
    i += first
    point = origin + step * wp.vec3(float(i), float(j), float(k))
    views = inverse.shape[0]
    last_x = float(inverse.shape[2] - 1) - 1.0e-3
    last_y = float(inverse.shape[1] - 1) - 1.0e-3
    low0 = wp.float32(1.0e3)
    low1 = wp.float32(1.0e3)
    low2 = wp.float32(1.0e3)
    total = wp.float32(0.0)
    weight = wp.float32(0.0)
    shown = wp.int32(0)
    v = wp.int32(0)
    while v < views:
        p = rotation[v] * point + translation[v]
        if p[2] > 0.01:
            shown += 1
            f = intrinsics[v]
            x = f[0] * p[0] / p[2] + f[2] - corner[v][0]
            y = f[1] * p[1] / p[2] + f[3] - corner[v][1]
            cx = wp.clamp(x, 0.0, last_x)
            cy = wp.clamp(y, 0.0, last_y)
            out = bilinear(outline, v, cx, cy)
            out -= wp.sqrt((x - cx) * (x - cx) + (y - cy) * (y - cy))
            out = 2.0 * out * p[2] / (f[0] + f[1])
            if out < low0:
                low2 = low1
                low1 = low0
                low0 = out
            elif out < low1:
                low2 = low1
                low1 = out
            elif out < low2:
                low2 = out
            if out < -4.0 * step and tolerate == 0:
                v = views  # outside for certain
            elif x == cx and y == cy:
                column = int(x)
                row = int(y)
                i00 = inverse[v, row, column]
                i01 = inverse[v, row, column + 1]
                i10 = inverse[v, row + 1, column]
                i11 = inverse[v, row + 1, column + 1]
                near = wp.max(wp.max(i00, i01), wp.max(i10, i11))
                far = wp.min(wp.min(i00, i01), wp.min(i10, i11))
                if far > 0.0:
                    ray = wp.length(p) / p[2]
                    # A depth edge belongs to two surfaces: no depth between them means anything.
                    if 1.0 / far - 1.0 / near < slope / wp.min(f[0], f[1]) / near:
                        # Along a plane the inverse of depth, not depth, is linear in the pixel.
                        d = 1.0 / bilinear(inverse, v, x, y)
                        c = bilinear(cosine, v, x, y)
                        # Distance to the tangent plane: along the ray it would be too long.
                        s = (p[2] - d) * ray * c
                        if s < reach and (p[2] - d) * ray < 3.0 * reach:
                            w = c * c * wp.min(1.0, 2.0 - 2.0 * s / reach)
                            total += w * wp.max(s, -reach)
                            weight += w
                    elif (p[2] - 1.0 / near) * ray < -reach:
                        total -= 0.1 * reach
                        weight += 0.1
        v += 1
    bound = low0
    if tolerate == 1:
        bound = low1
    if tolerate == 2:
        bound = low2
    if 2 * shown < views and low0 > -4.0 * step:
        bound = -reach
    value = reach
    # What no camera reached lies behind the surface: inside, as far as the outlines allow.
    if weight > 1.0e-3:
        value = total / weight
    surface[i, j, k] = value
    hull[i, j, k] = wp.max(bound, -4.0 * step)
