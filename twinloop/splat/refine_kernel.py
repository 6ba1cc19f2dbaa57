# mypy: ignore-errors
"""The Warp kernel of `twinloop.splat.refine`, apart because mypy cannot read Warp types."""

import warp as wp

from twinloop.splat.hull_kernel import bilinear

wp.config.log_level = wp.LOG_ERROR

SIDE = wp.constant(5)
COUNT = wp.constant(25)
PATCH = wp.types.vector(length=25, dtype=wp.float32)


@wp.kernel(enable_backward=False)
def agreement(
    images: wp.array3d(dtype=wp.float32),
    masks: wp.array3d(dtype=wp.uint8),
    intrinsics: wp.array(dtype=wp.vec4),
    rotation: wp.array(dtype=wp.mat33),
    translation: wp.array(dtype=wp.vec3),
    chosen: wp.array2d(dtype=wp.int32),
    points: wp.array(dtype=wp.vec3),
    normals: wp.array(dtype=wp.vec3),
    offsets: wp.array(dtype=wp.float32),
    spacing: float,
    noise: float,
    score: wp.array2d(dtype=wp.float32),
):
    """Mean pairwise correlation, over the chosen views, of a patch moved along its normal."""
    i, k = wp.tid()
    n = normals[i]
    across = wp.vec3(1.0, 0.0, 0.0)
    if wp.abs(n[0]) > 0.7:
        across = wp.vec3(0.0, 1.0, 0.0)
    u = wp.normalize(wp.cross(n, across)) * spacing
    v = wp.normalize(wp.cross(n, u)) * spacing
    middle = points[i] + offsets[k] * n
    last_x = float(images.shape[2] - 1) - 0.001
    last_y = float(images.shape[1] - 1) - 0.001
    total = PATCH()
    views = wp.float32(0.0)
    for c in range(chosen.shape[1]):
        view = chosen[i, c]
        if view >= 0:
            patch = PATCH()
            mean = wp.float32(0.0)
            inside = wp.int32(1)
            for j in range(COUNT):
                x = float(j % SIDE - 2)
                y = float(j // SIDE - 2)
                p = rotation[view] * (middle + x * u + y * v) + translation[view]
                f = intrinsics[view]
                px = wp.clamp(f[0] * p[0] / p[2] + f[2], 0.0, last_x)
                py = wp.clamp(f[1] * p[1] / p[2] + f[3], 0.0, last_y)
                if masks[view, int(py + 0.5), int(px + 0.5)] < wp.uint8(128):
                    inside = wp.int32(0)
                value = bilinear(images, view, px, py)
                patch[j] = value
                mean += value
            mean /= float(COUNT)
            power = float(COUNT) * noise * noise
            for j in range(COUNT):
                patch[j] = patch[j] - mean
                power += patch[j] * patch[j]
            # A patch over the outline shows the background: it would agree at a wrong depth.
            if inside == 1:
                # `noise` keeps a patch without texture from being scaled up to full contrast.
                total += patch / wp.sqrt(power)
                views += 1.0
    if views > 1.5:
        # |sum of unit vectors|^2 = views + sum of pairwise correlations
        score[i, k] = (wp.dot(total, total) - views) / (views * (views - 1.0))
