# mypy: ignore-errors
"""Warp: distance of points to a triangle mesh, and what a distance grid says inside a kernel.

`grid_sample` and `grid_sample_cubic` give the values of `DistanceGrid` to rounding.
"""

import warp as wp

wp.set_module_options({"enable_backward": False})


@wp.func
def grid_sample(grid: wp.array3d(dtype=wp.float64), u: wp.vec3d):
    """Trilinear value and gradient (per cell) at ``u`` in cell units; the caller checks bounds."""
    i = wp.min(int(wp.floor(u[0])), grid.shape[0] - 2)
    j = wp.min(int(wp.floor(u[1])), grid.shape[1] - 2)
    k = wp.min(int(wp.floor(u[2])), grid.shape[2] - 2)
    a = u[0] - wp.float64(i)
    b = u[1] - wp.float64(j)
    c = u[2] - wp.float64(k)
    v000 = grid[i, j, k]
    v001 = grid[i, j, k + 1]
    v010 = grid[i, j + 1, k]
    v011 = grid[i, j + 1, k + 1]
    v100 = grid[i + 1, j, k]
    v101 = grid[i + 1, j, k + 1]
    v110 = grid[i + 1, j + 1, k]
    v111 = grid[i + 1, j + 1, k + 1]
    x00 = v000 + a * (v100 - v000)
    x01 = v001 + a * (v101 - v001)
    x10 = v010 + a * (v110 - v010)
    x11 = v011 + a * (v111 - v011)
    y0 = x00 + b * (x10 - x00)
    y1 = x01 + b * (x11 - x01)
    gx0 = (v100 - v000) + b * ((v110 - v010) - (v100 - v000))
    gx1 = (v101 - v001) + b * ((v111 - v011) - (v101 - v001))
    gy0 = x10 - x00
    gy1 = x11 - x01
    return wp.vec4d(
        y0 + c * (y1 - y0),
        gx0 + c * (gx1 - gx0),
        gy0 + c * (gy1 - gy0),
        y1 - y0,
    )


@wp.func
def keys_weight(t: wp.float64):
    """Weights of the four nodes around a point at ``t`` between the middle two (Keys 1981)."""
    h = wp.float64(0.5)
    p = wp.float64(1.5)
    q = wp.float64(2.5)
    return wp.vec4d(
        t * (-h + t * (wp.float64(1.0) - h * t)),
        wp.float64(1.0) + t * t * (-q + p * t),
        t * (h + t * (wp.float64(2.0) - p * t)),
        t * t * (-h + h * t),
    )


@wp.func
def keys_slope(t: wp.float64):
    """Derivatives of ``keys_weight``."""
    h = wp.float64(0.5)
    p = wp.float64(1.5)
    r = wp.float64(4.5)
    return wp.vec4d(
        -h + t * (wp.float64(2.0) - p * t),
        t * (wp.float64(-5.0) + r * t),
        h + t * (wp.float64(4.0) - r * t),
        t * (wp.float64(-1.0) + p * t),
    )


@wp.func
def grid_sample_cubic(padded: wp.array3d(dtype=wp.float64), u: wp.vec3d):
    """Cubic value and gradient (per cell) at ``u`` in cell units; the caller checks bounds.

    ``padded`` is ``DistanceGrid.padded``: the values with one extrapolated layer around.
    """
    i = wp.min(int(wp.floor(u[0])), padded.shape[0] - 4)
    j = wp.min(int(wp.floor(u[1])), padded.shape[1] - 4)
    k = wp.min(int(wp.floor(u[2])), padded.shape[2] - 4)
    a = u[0] - wp.float64(i)
    b = u[1] - wp.float64(j)
    c = u[2] - wp.float64(k)
    wx = keys_weight(a)
    wy = keys_weight(b)
    wz = keys_weight(c)
    sx = keys_slope(a)
    sy = keys_slope(b)
    sz = keys_slope(c)
    out = wp.vec4d()
    # A count that Warp does not know keeps it from unrolling 64 turns, which takes long to compile.
    count = wp.min(padded.shape[0], 4)
    for x in range(count):
        for y in range(count):
            for z in range(count):
                v = padded[i + x, j + y, k + z]
                out += v * wp.vec4d(
                    wx[x] * wy[y] * wz[z],
                    sx[x] * wy[y] * wz[z],
                    wx[x] * sy[y] * wz[z],
                    wx[x] * wy[y] * sz[z],
                )
    return out


@wp.kernel
def signed_distance(
    mesh: wp.uint64,
    nodes: wp.array(dtype=wp.vec3),
    reach: wp.float32,
    out: wp.array(dtype=wp.float32),
):
    """Distance by closest point, sign by winding number (robust to small holes)."""
    t = wp.tid()
    node = nodes[t]
    hit = wp.mesh_query_point_sign_winding_number(mesh, node, reach)
    closest = wp.mesh_eval_position(mesh, hit.face, hit.u, hit.v)
    out[t] = hit.sign * wp.length(node - closest)


@wp.kernel
def closest_point(
    mesh: wp.uint64,
    points: wp.array(dtype=wp.vec3),
    reach: wp.float32,
    out: wp.array(dtype=wp.vec3),
    face: wp.array(dtype=wp.int32),
):
    """Nearest point of the mesh, and its face; -1 where nothing is within ``reach``."""
    t = wp.tid()
    hit = wp.mesh_query_point_no_sign(mesh, points[t], reach)
    face[t] = -1
    if hit.result:
        out[t] = wp.mesh_eval_position(mesh, hit.face, hit.u, hit.v)
        face[t] = hit.face
