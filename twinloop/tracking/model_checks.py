"""Refuse a mesh that cannot be the object in view: other units, another axis up.

A tracker that is given such a mesh finds something all the same.  Scale shows against the camera's
distance and the silhouette, the up axis against gravity and the silhouette.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.tracking.resting import Rest, resting_faces
from twinloop.tracking.solver import WorldCamera, project

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Faces = NDArray[np.integer]

UNITS = {"millimetres": 1e-3, "centimetres": 1e-2, "inches": 0.0254, "kilometres": 1e3}
"""Units that a mesh may be in by mistake, in m."""
LEAST_SIZE = 12.0
"""Fewest px across which an object can be tracked."""
SEEN = (0.5, 6.0)
"""Size of the whole mesh by that of its silhouette: it may be seen from an end, or cut off."""
TURNS = {
    "(x, -z, y)": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]),
    "(x, z, -y)": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]),
    "(-z, y, x)": np.array([[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    "(z, y, -x)": np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]),
    "(x, -y, -z)": np.diag([1.0, -1.0, -1.0]),
}
"""Rotations that bring y, -y, x, -x and -z up, by what vertices (x, y, z) become."""
RESTS = 4.0
"""Largest tilt from a stable pose at which an object may be said to rest, deg."""
FALLS = 10.0
"""Tilt from every stable pose from which on it surely does not, deg."""
BETTER = 0.15
"""By so much must the silhouette of a turned mesh agree better (intersection over union)."""


def check_mesh(vertices: Array, faces: Faces, where: str) -> None:
    """Refuse a mesh that is none.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3) indices of vertices.
        where: The file or object, for messages.

    Raises:
        InputError: Wrong shapes, no face, values that are not finite, indices out of range, or no
            extent.
    """
    if (
        vertices.ndim != 2
        or vertices.shape[1:] != (3,)
        or faces.ndim != 2
        or faces.shape[1:] != (3,)
    ):
        raise InputError(
            f"{where}: vertices have shape {vertices.shape} and faces {faces.shape}; expected "
            "(v, 3) and (f, 3)."
        )
    if len(vertices) < 4 or len(faces) < 4:
        raise InputError(
            f"{where}: {len(vertices)} vertices and {len(faces)} faces; a solid has 4 of each at "
            "least."
        )
    if not np.isfinite(vertices).all():
        i = int(np.flatnonzero(~np.isfinite(vertices).all(axis=1))[0])
        raise InputError(f"{where}: vertex {i} is {vertices[i]}; expected finite numbers.")
    if int(faces.min()) < 0 or int(faces.max()) >= len(vertices):
        raise InputError(
            f"{where}: faces name vertices {int(faces.min())} to {int(faces.max())}, there are "
            f"{len(vertices)}."
        )
    if not float(np.ptp(vertices, axis=0).max()) > 0:
        raise InputError(f"{where}: all vertices are in one place; expected a solid.")


def across(vertices: Array) -> float:
    """Diagonal of the bounding box, m."""
    return float(np.linalg.norm(np.ptp(vertices, axis=0)))


def viewing_distance(camera: WorldCamera) -> float:
    """Distance (m) from the camera to the table along its axis; to the origin if it misses it.

    The axis of a camera that looks past the table, or nearly along it, tells nothing.
    """
    T = se3.inverse(camera.T_camera_world)
    eye, axis = T[:3, 3], T[:3, 2]
    origin = float(np.linalg.norm(eye))
    if axis[2] < -0.05 and eye[2] > 0:
        return min(float(-eye[2] / axis[2]), 3 * origin)
    return origin


def check_scale(
    vertices: Array,
    camera: WorldCamera,
    where: str,
    *,
    distance: float | None = None,
    silhouette: Mask | None = None,
) -> None:
    """Refuse a mesh whose size cannot be that of the object in view.

    Args:
        vertices: (v, 3) as the file has them; they have to be in m.
        camera: Where the camera stands, by the board: its distance sets the scale.
        where: The file or object, for messages.
        distance: m from camera to object, where it is known.
        silhouette: (h, w) bool, where the object is in this camera's picture, where it is known.

    Raises:
        InputError: Names size and distance, the size in the picture, and the unit that would fit.
    """
    size = across(vertices)
    far = viewing_distance(camera) if distance is None else distance
    focal = float(camera.intrinsics[:2].mean())
    pixels = focal * size / far
    picture = float(np.hypot(camera.width, camera.height))
    seen = None if silhouette is None else _extent(silhouette)
    if seen is not None:
        low, high, expected = SEEN[0] * seen, SEEN[1] * seen, f"its silhouette is {seen:.0f} px"
    else:
        low, high = LEAST_SIZE, 1.5 * picture
        expected = f"the picture has {camera.width} x {camera.height} px"
    if low <= pixels <= high and size < far:
        return
    middle = np.sqrt(low * high) if seen is None else seen
    fitting = [
        (abs(np.log(pixels * unit / middle)), name, unit)
        for name, unit in UNITS.items()
        if low <= pixels * unit <= high and size * unit < far
    ]
    hint = " Check the unit of the mesh: metres are expected."
    if fitting:
        _, name, unit = min(fitting)
        hint = f" In {name} it would be {size * unit:.3g} m across: scale the mesh by {unit:g}."
    raise InputError(
        f"{where}: the mesh is {size:.4g} m across at a camera {far:.3g} m away, where it would be "
        f"{pixels:.4g} px large; {expected}.{hint}"
    )


def tilt(rests: Sequence[Rest], up: Array) -> float:
    """Angle (deg) of `up` (3,), the object's direction that points up, to the nearest rest."""
    nearest = max(float(rest.up @ up) for rest in rests)
    return float(np.degrees(np.arccos(np.clip(nearest, -1.0, 1.0))))


def stable_rests(vertices: Array) -> tuple[Rest, ...]:
    """All ways in which the convex hull of vertices (v, 3) m rests.

    Raises:
        InputError: The vertices enclose no volume.
    """
    try:
        hull = ConvexHull(vertices)
    except (QhullError, ValueError) as error:
        raise InputError(
            f"mesh of {len(vertices)} vertices: encloses no volume; expected a solid."
        ) from error
    return resting_faces(vertices[hull.vertices], largest=len(hull.simplices))


def check_rest(vertices: Array, where: str, T_world_object: Array | None = None) -> None:
    """Refuse a mesh that would fall over as it is said to rest, and would not with another axis up.

    Args:
        vertices: (v, 3) m.
        where: The file or object, for messages.
        T_world_object: (4, 4) a pose in which the object rests on the table; None: it rests with
            the mesh's z up.

    Raises:
        InputError: Names the tilt from the nearest stable pose as it is and turned, and how
            vertices have to be turned.
    """
    rests = stable_rests(vertices)
    up = np.array([0.0, 0.0, 1.0]) if T_world_object is None else T_world_object[2, :3]
    now = tilt(rests, up)
    if now <= FALLS:
        return
    # The turned mesh is at rest in direction u where the mesh itself is in Q^T u.
    others = {name: tilt(rests, turn.T @ up) for name, turn in TURNS.items()}
    name = min(others, key=lambda k: (others[k] > RESTS, list(TURNS).index(k)))
    if others[name] > RESTS:
        return
    which = "with its z axis up" if T_world_object is None else "in the given pose"
    raise InputError(
        f"{where}: {which} the object is {now:.0f} deg from the nearest pose in which it stays; "
        f"with vertices (x, y, z) turned to {name} it is {others[name]:.1f} deg. Another axis of "
        "the mesh is up: turn it, or give a pose for the mesh as it is."
    )


def silhouette(vertices: Array, faces: Faces, camera: WorldCamera, pose: Array) -> Mask:
    """The mesh's silhouette (h, w) bool under T_world_object `pose`; faces behind are left out."""
    pixels, depth = project(camera, pose, vertices)
    drawn = np.zeros((camera.height, camera.width), np.uint8)
    ahead = (depth > 1e-3)[faces].all(axis=1)
    limited = np.clip(pixels, -1e6, 1e6)
    fixed = np.rint(limited * 16).astype(np.int32)[faces[ahead]]
    for triangle in fixed:
        cv2.fillConvexPoly(drawn, triangle, 1, cv2.LINE_8, 4)
    return drawn.view(np.bool_)


def overlap(first: Mask, second: Mask) -> float:
    """Intersection over union of two masks; 0 for two empty ones."""
    union = int((first | second).sum())
    return int((first & second).sum()) / union if union else 0.0


def check_silhouette(
    vertices: Array,
    faces: Faces,
    where: str,
    camera: WorldCamera,
    T_world_object: Array,
    seen: Mask,
) -> float:
    """Refuse a mesh whose silhouette in the given pose agrees much better when it is turned.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3).
        where: The file or object, for messages.
        camera: The camera of `seen`.
        T_world_object: (4, 4) the pose that is said to be the object's.
        seen: (h, w) bool, where the object is in the picture.

    Returns:
        Intersection over union of the mesh as it is.

    Raises:
        InputError: Names both overlaps, and how vertices have to be turned.
    """
    now = overlap(silhouette(vertices, faces, camera, T_world_object), seen)
    turned = {
        name: overlap(silhouette(vertices @ turn.T, faces, camera, T_world_object), seen)
        for name, turn in TURNS.items()
    }
    name = max(turned, key=lambda k: turned[k])
    if turned[name] > now + BETTER and turned[name] > 0.5:
        raise InputError(
            f"{where}: in the given pose the mesh covers the object's silhouette by {now:.2f} "
            f"(intersection over union), with vertices (x, y, z) turned to {name} by "
            f"{turned[name]:.2f}. The pose belongs to a mesh with other axes: turn the mesh."
        )
    return now


def _extent(mask: Mask) -> float:
    """Diagonal of the box about a mask, px.

    Raises:
        InputError: The mask is empty.
    """
    rows, columns = np.nonzero(mask)
    if not len(rows):
        raise InputError(
            f"silhouette of {mask.shape[1]} x {mask.shape[0]} px: empty; expected the object's "
            "pixels. Is it in view?"
        )
    # A mask has specks: what a hundredth of its pixels says on either side does not count.
    sides = [np.diff(np.quantile(c, [0.01, 0.99]))[0] + 1 for c in (rows, columns)]
    return float(np.hypot(*sides))
