# mypy: ignore-errors
"""The Warp kernel of `twinloop.tracking.contour`, apart because mypy cannot read Warp types."""

import warp as wp

wp.config.log_level = wp.LOG_ERROR  # no banner, no warning that there is no GPU


@wp.kernel(enable_backward=False)
def bisect_outline(
    mesh: wp.uint64,
    intrinsics: wp.vec4,
    rotation: wp.mat33,
    origin: wp.vec3,
    start: wp.array(dtype=wp.vec2),
    direction: wp.array(dtype=wp.vec2),
    reach: float,
    rounds: int,
    where: wp.array(dtype=wp.float32),
    depth: wp.array(dtype=wp.float32),
):
    """How far along `direction` (px) from `start` the mesh's silhouette ends, by halving.

    The ray at -reach must hit and the one at +reach miss; otherwise depth stays 0. `rotation` turns
    camera directions into the mesh frame, `origin` is the camera's centre there.
    """
    i = wp.tid()
    inside = wp.float32(-reach)
    outside = wp.float32(reach)
    last = wp.float32(0.0)
    valid = wp.int32(1)
    for k in range(rounds + 2):
        at = 0.5 * (inside + outside)
        if k == 0:
            at = outside
        if k == 1:
            at = inside
        p = start[i] + direction[i] * at
        ray = wp.vec3(
            (p[0] - intrinsics[2]) / intrinsics[0], (p[1] - intrinsics[3]) / intrinsics[1], 1.0
        )
        length = wp.length(ray)
        hit = wp.mesh_query_ray(mesh, origin, rotation * (ray / length), 100.0)
        if k == 0:
            if hit.result:
                valid = 0
        elif hit.result:
            inside = at
            last = hit.t / length
        else:
            outside = at
            if k == 1:
                valid = 0
    if valid == 1:
        where[i] = 0.5 * (inside + outside)
        depth[i] = last
