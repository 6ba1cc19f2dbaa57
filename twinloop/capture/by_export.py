"""Lens and poses as another tool exported them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.crop import undistorters
from twinloop.capture.located import Located, LocateSettings
from twinloop.capture.metric_world import Model, place
from twinloop.capture.projection import Camera
from twinloop.capture.source import Scan
from twinloop.capture.sparse_points import sparse_points
from twinloop.capture.survey import Shot, Survey

Array = NDArray[np.float64]

MOST_DEPTH_POINTS = 400
"""Points taken from one depth picture."""


def poses_of(scan: Scan) -> Array | None:
    """Camera poses (source, 4, 4) in the export's world; None when it has none.

    Where the export follows the object (BOP), the object's frame is the world: it may be moved.
    """
    if scan.posed is None:
        return None
    if scan.posed.T_world_object is not None:
        camera = scan.posed.T_world_camera
        T_camera_world = np.eye(4) if camera is None else _inverse(camera)
        return _inverse(np.asarray(T_camera_world @ scan.posed.T_world_object))
    return scan.posed.T_world_camera


def locate_by_export(
    scan: Scan,
    shots: list[Shot],
    poses: Array,
    rated: Survey,
    verdict: NDArray[np.int8],
    settings: LocateSettings,
) -> Located:
    """Take an export's lenses and poses; find metres and the table.

    Args:
        scan: The scan, opened.
        shots: Candidates, all with a pose.
        poses: T_model_camera (source, 4, 4).
        rated: The survey.
        verdict: Verdict so far (source,).
        settings: How many pictures to keep.

    Raises:
        InputError: There are no metres, or no table.
    """
    posed = scan.posed
    assert posed is not None
    index = [shot.index for shot in shots]
    cameras = tuple(scan.lens or posed.cameras[i] for i in index)
    points = posed.points
    if points is None and posed.depth is not None and not scan.file.scale.depth:
        # Where depth is to be compared with points, they must not come from it.
        points = _depth_points(scan, index, poses)
    if points is None:
        points = _matched_points(shots, cameras, poses[index])
    model = Model(
        way=f"export ({scan.format})",
        shots=shots,
        cameras=cameras,
        T_model_camera=poses[index],
        points=points,
        metric=posed.metric,
        up=posed.up,
        has_table=posed.T_world_object is None,
    )
    return place(scan, model, rated, verdict, settings)


def _inverse(T: Array) -> Array:
    """Inverse of rigid poses (..., 4, 4); NaN stays NaN."""
    out = np.array(T, dtype=np.float64)
    turned = np.swapaxes(T[..., :3, :3], -1, -2)
    out[..., :3, :3] = turned
    out[..., :3, 3] = -np.einsum("...ij,...j->...i", turned, T[..., :3, 3])
    return out


def _matched_points(shots: list[Shot], cameras: tuple[Camera, ...], poses: Array) -> Array:
    """Points (m, 3) by matching the small pictures, where the export has none."""
    height, width = shots[0].small.shape[:2]
    lenses = undistorters([c.scaled(width, height) for c in cameras], 1.0)
    images = np.stack([u.image(s.small) for u, s in zip(lenses, shots, strict=True)])
    return sparse_points(images, np.stack([u.intrinsics for u in lenses]), poses)


def _depth_points(scan: Scan, index: list[int], poses: Array) -> Array:
    """Points (m, 3) of the export's depth pictures, its world."""
    assert scan.posed is not None
    assert scan.posed.depth is not None
    rng = np.random.default_rng(0)
    found = []
    for i in index:
        depth = scan.posed.depth(i)
        if depth is None:
            continue
        rows, columns = np.nonzero(np.isfinite(depth) & (depth > 0))
        if not len(rows):
            continue
        pick = rng.choice(len(rows), min(MOST_DEPTH_POINTS, len(rows)), replace=False)
        v, u = rows[pick].astype(np.float64), columns[pick].astype(np.float64)
        camera = scan.posed.cameras[i].scaled(depth.shape[1], depth.shape[0])
        xy = camera.normalize(np.column_stack([u, v]))
        z = depth[rows[pick], columns[pick]]
        local = np.column_stack([xy * z[:, None], z])
        found.append(local @ poses[i, :3, :3].T + poses[i, :3, 3])
    return np.concatenate(found) if found else np.zeros((0, 3))
