"""From a model (poses and points of some tool) to metres and a table, and to the kept pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import inside
from twinloop.capture.flange_poses import at_pictures
from twinloop.capture.given_masks import has_masks
from twinloop.capture.located import Located, LocateSettings
from twinloop.capture.posed import DepthReader
from twinloop.capture.projection import Camera
from twinloop.capture.scale import (
    Clicks,
    Distance,
    MetricFrame,
    check_units,
    from_board,
    from_distance,
    reconcile,
)
from twinloop.capture.scale_depth import from_depth
from twinloop.capture.scale_robot import from_robot_poses
from twinloop.capture.scan_file import StatedDistance
from twinloop.capture.select import spread_viewpoints
from twinloop.capture.source import Scan
from twinloop.capture.survey import Shot, Survey, Verdict
from twinloop.capture.table_plane import find_table_plane, looked_at, world_from_plane
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]

EXPORT_STD = 0.01
"""Scale error of tools that promise metres from inertial sensors or depth, relative, 1 sigma."""
DOUBTFUL_PLANE = 0.7
"""Points of the second-best plane, relative to the table's, from which the choice is doubtful."""


@dataclass(frozen=True)
class Model:
    """Candidates with lens and pose in a model's own world."""

    way: str
    """How poses were found."""
    shots: list[Shot]
    """Candidates, in order."""
    cameras: tuple[Camera, ...]
    """Lens of each (n,)."""
    T_model_camera: Array
    """Poses (n, 4, 4); NaN where not registered."""
    points: Array | None
    """Sparse points (m, 3), the model's world."""
    metric: bool
    """Whether the model is in metres."""
    up: Array | None = None
    """Direction against gravity (3,), the model's world, where it is known."""
    has_table: bool = True
    """Whether the model's world is the table's; else it is the object's, which may be moved."""
    seen: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    """Picture and point of each observation (k,), (k,)."""
    rms: Array | None = None
    """Reprojection error of each picture (n,), px."""
    camera_std: Array | None = None
    """Standard deviation of the common lens (9,)."""
    scale: MetricFrame | None = None
    """Metres that are known already: the model was fixed to the board."""
    notes: tuple[str, ...] = ()


def place(
    scan: Scan,
    model: Model,
    rated: Survey,
    verdict: NDArray[np.int8],
    settings: LocateSettings,
) -> Located:
    """Find metres and the table, and keep the pictures with the most different viewpoints.

    Raises:
        InputError: Too few pictures have a pose; no source of metres, or two that disagree; no
            table.
    """
    verdict = verdict.copy()
    registered = np.asarray(np.isfinite(model.T_model_camera).all(axis=(1, 2)))
    for shot, ok in zip(model.shots, registered, strict=True):
        if not ok:
            verdict[shot.index] = Verdict.NOT_REGISTERED
    if registered.sum() < settings.min_frames:
        raise InputError(
            f"{scan.pictures.path}: {int(registered.sum())} of {len(registered)} candidates have a "
            f"pose ({model.way}), at least {settings.min_frames} are needed."
        )
    frame, on_board = metres(scan, model)
    T_metric_camera = frame.poses(model.T_model_camera)
    points = None if model.points is None else frame.points(model.points)
    T_table_metric, T_world_table, notes = _table(
        scan, model, frame, T_metric_camera, points, on_board=on_board
    )
    T_table_camera = T_table_metric @ T_metric_camera
    target = looked_at(T_table_camera[registered])
    distance = np.linalg.norm(T_table_camera[registered, :3, 3] - target, axis=1)
    check_units(np.full(3, 0.3 * np.median(distance)), float(np.median(distance)), frame.source)

    usable = np.flatnonzero(registered)
    quality = rated.sharpness[[model.shots[i].index for i in usable]]
    keep = spread_viewpoints(T_table_camera[usable, :3, 3], target, quality, settings.frames)
    wanted = [i for i in usable if model.shots[i].index in scan.file.pointed_at]
    kept = sorted({*(int(usable[k]) for k in keep), *(int(i) for i in wanted)})
    for i in usable:
        verdict[model.shots[i].index] = Verdict.KEPT if i in kept else Verdict.REDUNDANT
    chosen = np.array(kept)
    index = {model.shots[i].index for i in kept}
    return Located(
        way=model.way,
        shots=[model.shots[i] for i in kept],
        cameras=tuple(model.cameras[i] for i in kept),
        camera_std=model.camera_std,
        T_camera_table=se3.inverse(T_table_camera[chosen]),
        T_world_table=T_world_table,
        rms=None if model.rms is None else np.nan_to_num(model.rms[chosen]),
        points=None if points is None else se3.apply(T_table_metric, points),
        verdict=verdict,
        rest=[shot for shot in model.shots if shot.index not in index],
        scale_source=frame.source,
        scale_std=frame.scale_std,
        board=scan.board if on_board else None,
        has_table=on_board or model.has_table or not has_masks(scan),
        notes=(*model.notes, *frame.notes, *notes),
    )


def require_scale(scan: Scan) -> None:
    """Refuse a scan that nothing gives metres to, before minutes are spent on its poses.

    Raises:
        InputError: There is no board, no stated scale, and no export in metres.
    """
    given = scan.file.scale
    stated = bool(given.distances or given.robot_poses or given.depth)
    if scan.board is None and not stated and not (scan.posed is not None and scan.posed.metric):
        raise InputError(
            f"{scan.pictures.path}: nothing says how large anything is: there is no "
            f"{scan.folder / 'board.yaml'} of a tag board in view, and scan.yaml states no scale. "
            "Print a board with `twinloop board`, or state a measured distance between two points, "
            "robot poses, or depth under `scale` (docs/captures.md)."
        )


def metres(scan: Scan, model: Model) -> tuple[MetricFrame, bool]:
    """Scale by every source there is; they must agree.

    Returns:
        The most certain scale, and whether the frame is the board's: where a board gives metres it
        stays the world, whichever source knows the scale best.

    Raises:
        InputError: There is no source, one is damaged, or two disagree.
    """
    found: list[MetricFrame] = []
    if model.scale is not None:
        found.append(model.scale)
    elif scan.board is not None:
        tags = [shot.tags for shot in model.shots]
        found.append(
            _on_table(
                from_board(scan.board, tags, model.T_model_camera, model.cameras),
                scan.board.T_world_board.matrix,
                scan.file.board_size_std,
            )
        )
    given = scan.file.scale
    if given.distances:
        number = {shot.index: i for i, shot in enumerate(model.shots)}
        found.append(
            from_distance(
                [_distance(scan, d, number) for d in given.distances],
                model.T_model_camera,
                model.cameras,
                numbers=[shot.index for shot in model.shots],
                where=str(scan.folder / "scan.yaml"),
            )
        )
    if given.robot_poses:
        T_base_flange = _flange_poses(scan, model)
        X = None if given.T_flange_camera is None else given.T_flange_camera.matrix
        found.append(from_robot_poses(model.T_model_camera, T_base_flange, X).frame)
    if given.depth:
        found.append(_by_depth(scan, model))
    if model.metric:
        # Said by the tool, not measured by us: the least certain source, but a check on the others.
        promise = MetricFrame(
            1.0,
            EXPORT_STD,
            np.eye(4),
            "export",
            (f"The {scan.format} export is taken to be in metres, to {100 * EXPORT_STD:g} %.",),
        )
        found.append(promise)
    best = reconcile(found)
    board = next((frame for frame in found if frame.source == "board"), None)
    if board is None or best.source == "board":
        return best, board is not None
    # The print is a little larger or smaller than it says: stretched about the board's origin.
    T = board.T_world_model.copy()
    T[:3, 3] *= best.scale / board.scale
    return replace(best, T_world_model=T), True


def _on_table(frame: MetricFrame, T_world_board: Array, size_std: float) -> MetricFrame:
    """The frame of the board instead of the world it lies in; the print's size is uncertain too."""
    T = se3.inverse(T_world_board) @ frame.T_world_model
    std = float(np.hypot(frame.scale_std, size_std))
    return MetricFrame(frame.scale, std, T, frame.source, frame.notes)


def _distance(scan: Scan, distance: StatedDistance, number: dict[int, int]) -> Distance:
    ends = []
    for clicks in (distance.first, distance.second):
        for picture, _, _ in clicks:
            if picture not in number:
                raise InputError(
                    f"{scan.folder / 'scan.yaml'}: the distance of {distance.metres:g} m is "
                    f"clicked in picture {picture}, which is not used (there are "
                    f"{len(scan.pictures.times)} pictures; it is blurred, of another size, or has "
                    f"no pose). Click in others, for example {sorted(number)[:10]}."
                )
        ends.append(
            Clicks(
                np.array([number[c[0]] for c in clicks], dtype=np.int64),
                np.array([c[1:] for c in clicks], dtype=np.float64),
            )
        )
    return Distance((ends[0], ends[1]), distance.metres, distance.metres_std)


def _flange_poses(scan: Scan, model: Model) -> Array:
    """Robot poses at the candidates (n, 4, 4)."""
    assert scan.file.scale.robot_poses is not None
    path = inside(scan.folder, scan.file.scale.robot_poses, scan.folder / "scan.yaml")
    index = np.array([shot.index for shot in model.shots])
    return at_pictures(path, scan.pictures.times, index)


def _by_depth(scan: Scan, model: Model) -> MetricFrame:
    """Scale from the export's depth pictures."""
    depth = None if scan.posed is None else scan.posed.depth
    if depth is None:
        raise InputError(
            f"{scan.folder / 'scan.yaml'}: scale.depth is true, but the {scan.format} capture has "
            "no depth pictures."
        )
    if model.points is None or not len(model.points):
        raise InputError(
            f"{scan.folder / 'scan.yaml'}: scale.depth compares depth with sparse points, and the "
            f"{scan.format} capture has none."
        )
    index = [shot.index for shot in model.shots]
    reader: DepthReader = lambda i: depth(index[i])  # noqa: E731 - one line, with its type
    return from_depth(reader, model.points, model.T_model_camera, model.cameras, model.seen)


def _table(
    scan: Scan,
    model: Model,
    frame: MetricFrame,
    T_metric_camera: Array,
    points: Array | None,
    *,
    on_board: bool,
) -> tuple[Array, Array, tuple[str, ...]]:
    """T_table_metric, T_world_table, and what was decided."""
    if scan.board is not None and on_board:
        return np.eye(4), scan.board.T_world_board.matrix, ()
    registered = T_metric_camera[np.isfinite(T_metric_camera).all(axis=(1, 2))]
    if not model.has_table:
        return _table_of_object(scan, registered, points)
    if points is None or len(points) < 20:
        raise InputError(
            f"{scan.pictures.path}: {0 if points is None else len(points)} points are known, too "
            "few to find the table that the object stands on. Film with a tag board in view."
        )
    up = None if model.up is None else frame.T_world_model[:3, :3] @ model.up
    plane = find_table_plane(points, registered, up=up, where=str(scan.pictures.path))
    T_table_metric = world_from_plane(plane, looked_at(registered))
    note = (
        f"The table is the plane that holds {plane.share:.0%} of the points near the object; its "
        f"tilt is known to {plane.tilt_std:.2g} deg, its height to {1e3 * plane.offset_std:.2g} mm."
    )
    doubt = (
        f"Another plane holds {plane.rival:.0%} as many points: look whether the object stands "
        "upright in the pictures of the report."
    )
    notes = (note, doubt) if plane.rival > DOUBTFUL_PLANE else (note,)
    return T_table_metric, np.eye(4), notes


def _table_of_object(
    scan: Scan, T_object_camera: Array, points: Array | None
) -> tuple[Array, Array, tuple[str, ...]]:
    """The same where poses follow the object, whose frame may lie and point anywhere in it.

    Masks that are given need no table.  Else one is there as long as the object stands still.
    """
    target = looked_at(T_object_camera)
    if has_masks(scan):
        # Nothing of the object may lie below the table: put it farther away than the cameras are.
        T = np.eye(4)
        T[2, 3] = np.linalg.norm(T_object_camera[:, :3, 3] - target, axis=1).max() - target[2]
        note = "Poses follow the object, and no table is known: z = 0 lies far below it."
        return T, np.eye(4), (note,)
    cloud = np.zeros((0, 3)) if points is None else points
    try:
        plane = find_table_plane(cloud, T_object_camera, where=str(scan.pictures.path))
    except InputError as error:
        raise InputError(
            f"{error} Poses follow the object here, so a table is seen only while it stands still; "
            "with masks none is needed."
        ) from error
    note = "Poses follow the object; it is taken to stand still on the plane around it."
    return world_from_plane(plane, target), np.eye(4), (note,)
