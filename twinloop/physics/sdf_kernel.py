# mypy: ignore-errors
"""Warp kernel: signed distance of grid nodes to a triangle mesh (negative inside)."""

import warp as wp

wp.set_module_options({"enable_backward": False})


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
