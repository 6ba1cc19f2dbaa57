"""Fewer triangles, with the error that this costs measured."""

from __future__ import annotations

from typing import NamedTuple

import fast_simplification
import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry.distance import check_mesh, surface_error
from twinloop.geometry.repair import repair

Float = NDArray[np.float64]
Faces = NDArray[np.int32]
_SAMPLES = 250
_FEW_SAMPLES = 50
_HALVINGS = 5


class Decimated(NamedTuple):
    """A thinned mesh: vertices (v, 3) m, faces (f, 3), and its `error` in m.

    `error` is the largest distance between the two surfaces, measured both ways from vertices and
    dense samples of each to the triangles of the other. The samples are a 250th of the bounding
    box's diagonal apart, so that no point of either surface is off by more than `error` plus 0.24 %
    of the diagonal.
    """

    vertices: Float
    faces: Faces
    error: float


def decimate(
    vertices: Float, faces: Faces, most_faces: int, most_error: float | None = None
) -> Decimated:
    """Thin a solid mesh out to `most_faces`, or to what `most_error` allows; it stays solid.

    Quadric edge collapse (Garland and Heckbert 1997). A collapse can pinch a surface: what is then
    no longer closed and manifold is repaired or tried again in another order and with more faces,
    and as the last resort the mesh comes back whole. Where `most_faces` would exceed `most_error`,
    the error wins: about the smallest number of faces that keeps it is returned.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3), counter-clockwise from outside.
        most_faces: Faces at most.
        most_error: m, largest distance between the surfaces; None: whatever `most_faces` costs.

    Raises:
        InputError: No triangle mesh, fewer than 4 faces asked for, or an error that is no positive
            number.
    """
    check_mesh(vertices, faces)
    if most_faces < 4 or not (most_error is None or most_error > 0):
        raise InputError(
            f"decimation to {most_faces} faces and {most_error} m: expected at least 4 faces and "
            "an error above 0 m"
        )
    whole = Decimated(np.asarray(vertices, np.float64), np.asarray(faces, np.int32), 0.0)
    if len(faces) <= most_faces:
        return whole
    limit = np.inf if most_error is None else most_error
    best = _thinned(whole, most_faces, limit)
    if best.error <= limit:
        return best
    few, many, best = most_faces, len(faces), whole
    for _ in range(_HALVINGS):
        middle = int(np.sqrt(few * many))
        if middle in (few, many):
            break
        tried = _thinned(whole, middle, limit)
        if tried.error <= limit:
            many, best = middle, tried
        else:
            few = middle
    return best


def _thinned(whole: Decimated, target: int, limit: float) -> Decimated:
    """About `target` faces; an error past `limit` m is that of fewer samples, enough to say so.

    The gentlest collapse that reaches the target is tried first: at the same number of faces its
    error is a half to a quarter of what the library's default leaves.
    """
    span = float(np.linalg.norm(np.ptp(whole.vertices, axis=0)))
    for share in (1.0, 1.3, 1.7, 2.5, 4.0):
        count = int(target * share)
        if count >= len(whole.faces):
            break
        for aggression in (1, 2, 3, 5, 7):
            points, triangles = fast_simplification.simplify(
                whole.vertices.astype(np.float32), whole.faces, target_count=count, agg=aggression
            )
            if len(triangles) > count:
                continue
            try:
                thin = repair(points.astype(np.float64), triangles, widest_hole=0.0)
            except InputError:
                continue  # torn or folded flat: another try collapses other edges
            pair = (thin.vertices, thin.faces, whole.vertices, whole.faces)
            error = surface_error(*pair, span / _FEW_SAMPLES).most
            if error <= limit:
                error = surface_error(*pair, span / _SAMPLES).most
            return Decimated(thin.vertices, thin.faces, error)
    return whole
