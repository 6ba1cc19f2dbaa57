# mypy: ignore-errors
"""The Warp kernel of `twinloop.geometry.raycast`, apart because mypy cannot read Warp types."""

import warp as wp

wp.config.log_level = wp.LOG_ERROR  # no banner, no warning that there is no GPU


@wp.kernel(enable_backward=False)
def cast_rays(
    mesh: wp.uint64,
    width: int,
    intrinsics: wp.vec4,
    rotation: wp.mat33,
    origin: wp.vec3,
    near: float,
    far: float,
    depth: wp.array(dtype=wp.float32),
    face: wp.array(dtype=wp.int32),
    barycentric: wp.array(dtype=wp.vec3),
    normal: wp.array(dtype=wp.vec3),
):
    """One ray per pixel; arrays are flat images, row by row."""
    i = wp.tid()
    x = float(i % width)
    y = float(i // width)
    ray = wp.vec3((x - intrinsics[2]) / intrinsics[0], (y - intrinsics[3]) / intrinsics[1], 1.0)
    length = wp.length(ray)
    direction = rotation * (ray / length)
    start = origin + direction * (near * length)
    hit = wp.mesh_query_ray(mesh, start, direction, (far - near) * length)
    if hit.result:
        depth[i] = near + hit.t / length
        face[i] = hit.face
        barycentric[i] = wp.vec3(hit.u, hit.v, 1.0 - hit.u - hit.v)
        normal[i] = wp.normalize(hit.normal)
