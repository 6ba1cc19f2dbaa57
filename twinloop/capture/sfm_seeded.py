"""Points and better poses where a tag board gave poses already: triangulate, then adjust.

Incremental structure from motion finds no first pair where the baseline is short.  The board's
poses need no first pair: features are matched, triangulated with them, pictures without a pose are
added by their points, and one bundle adjustment refines all of it, in which the tag corners are
fixed points in metres.  They fix scale, origin and orientation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.projection import Camera
from twinloop.capture.sfm_check import check_texture
from twinloop.capture.sfm_features import (
    FeatureSet,
    Image,
    SfmSettings,
    choose_pairs,
    extract,
    likeness,
    match_pairs,
    name,
    quiet,
    straightened,
    workshop,
    write_database,
)
from twinloop.capture.sfm_model import (
    UNKNOWN_LENS,
    Reconstruction,
    Tracks,
    finish,
    read_poses,
    read_tracks,
    solve,
)
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]
Corners = tuple[Array, Array]
"""Tag corners of a picture: (k, 3) m in the world, and (k, 2) px of the full picture."""

ROUNDS = 2
"""Times that points are triangulated afresh with the adjusted poses."""
LEAST_INLIERS = 25
"""Fewest points that a picture without tags is placed by."""
ROBUST = 1.0
"""Scale of the robust loss of the adjustment, px of the shrunk pictures."""


@dataclass(frozen=True)
class _Corners:
    """All tag corners as fixed points."""

    points: Array
    """Distinct points (c, 3), m."""
    point: tuple[NDArray[np.intp], ...]
    """Which point each corner of each picture is."""
    pixels: tuple[Array, ...]
    """Where it is seen in each picture, px of the shrunk picture without distortion."""


def seeded(
    images: Iterable[Image],
    T_camera_world: Array,
    camera: Camera,
    corners: Sequence[Corners],
    settings: SfmSettings | None = None,
    *,
    sequential: bool = True,
    masks: Sequence[Image | None] | None = None,
    where: str = "pictures",
) -> Reconstruction:
    """Refine known poses and triangulate points, in metres.

    Args:
        images: RGB (height, width, 3) or grey (height, width), one size, read one at a time.
        T_camera_world: Pose of the world in each camera (n, 4, 4) by the board; NaN where unknown.
        camera: The lens at the pictures' full size; it is kept.
        corners: Tag corners that each picture shows; empty arrays where none.
        settings: Size, numbers and seed.
        sequential: Whether the pictures are in the order they were taken.
        masks: Per picture (height, width), 255 where features may lie; None for everywhere.
        where: Name of the capture, for messages.

    Raises:
        InputError: Fewer than two pictures have a pose, too few corners to fix the scale, no
            texture, or fewer than ``settings.min_registered`` of the pictures get a pose.
        MachineError: pycolmap is missing, or the disk is full.
    """
    settings = settings or SfmSettings()
    poses = np.array(T_camera_world, dtype=np.float64)
    _check_start(poses, corners, where)
    with workshop(where) as scratch:
        features = extract(images, masks, settings, where)
        count = len(features.pictures)
        _check_pictures(poses, camera, features, where)
        check_texture(features, where)
        fixed = _gather_corners(corners, features, camera)
        pairs = choose_pairs(likeness(features), settings, sequential)
        work = _Work(scratch, features, camera, pairs, settings)
        known = np.isfinite(poses).all(axis=(1, 2))
        tracks = work.triangulate(poses)
        for _ in range(ROUNDS):
            poses = work.place(poses, tracks)
            tracks = work.triangulate(poses)
            poses, tracks = work.adjust(poses, tracks, fixed)
    registered = int(np.isfinite(poses).all(axis=(1, 2)).sum())
    if registered < settings.min_registered * count:
        raise InputError(
            f"{where}: only {registered} of {count} pictures have a pose ({int(known.sum())} of "
            f"them by tags), at least {settings.min_registered:.0%} are expected. Keep the board "
            "in view, or move more slowly, so that pictures without tags overlap with others."
        )
    note = (
        f"Poses started from the tags of {int(known.sum())} of {count} pictures, "
        f"{registered - int(known.sum())} more were placed by points, and all were adjusted "
        f"together with {len(fixed.points)} tag corners held at their metric places."
    )
    return finish(features, camera, UNKNOWN_LENS.copy(), poses, tracks, (note,))


def _check_start(poses: Array, corners: Sequence[Corners], where: str) -> None:
    """Refuse a start that cannot fix the model, before time is spent on pictures."""
    if poses.ndim != 3 or poses.shape[1:] != (4, 4) or len(corners) != len(poses):
        raise InputError(
            f"{where}: poses have the shape {poses.shape} and tag corners are those of "
            f"{len(corners)} pictures; one pose (4, 4) and one list per picture are expected."
        )
    known = int(np.isfinite(poses).all(axis=(1, 2)).sum())
    if known < 2:
        raise InputError(
            f"{where}: {known} of {len(poses)} pictures have a pose by tags, at least 2 are "
            "needed. Keep the board in view."
        )
    every = np.concatenate([np.reshape(c[0], (-1, 3)) for c in corners])
    count = len(np.unique(every, axis=0)) if len(every) else 0
    if count < 3:
        raise InputError(
            f"{where}: the tags give {count} corners, at least 3 are needed to fix scale and "
            "orientation. Check that the board's description fits the board."
        )


def _check_pictures(poses: Array, camera: Camera, features: FeatureSet, where: str) -> None:
    if len(features.pictures) != len(poses):
        raise InputError(
            f"{where}: {len(features.pictures)} pictures, but {len(poses)} poses; one of each is "
            "expected."
        )
    if features.full != (camera.width, camera.height):
        raise InputError(
            f"{where}: the pictures have {features.full[0]} x {features.full[1]} px, the lens is "
            f"for {camera.width} x {camera.height} px. Scale the lens, or turn it with the "
            "pictures."
        )


def _gather_corners(corners: Sequence[Corners], features: FeatureSet, camera: Camera) -> _Corners:
    """Corners as distinct points; equal coordinates are the same corner."""
    every = np.concatenate([np.reshape(c[0], (-1, 3)) for c in corners]).astype(np.float64)
    points, index = np.unique(every.round(9), axis=0, return_inverse=True)
    ends = np.cumsum([len(c[0]) for c in corners])[:-1]
    pixels = tuple(
        straightened(features.to_small(np.reshape(c[1], (-1, 2))), features, camera)
        if len(c[1])
        else np.zeros((0, 2))
        for c in corners
    )
    return _Corners(points, tuple(np.split(index.reshape(-1), ends)), pixels)


class _Work:
    """The features in a COLMAP database, and what is done with them."""

    def __init__(
        self,
        scratch: Path,
        features: FeatureSet,
        camera: Camera,
        pairs: list[tuple[int, int]],
        settings: SfmSettings,
    ) -> None:
        self.features, self.settings = features, settings
        self.database, self.scratch = scratch / "features.db", scratch
        with quiet() as pycolmap:
            width, height = features.size
            fx, fy, cx, cy = camera.scaled(width, height).intrinsics
            self.pinhole = pycolmap.Camera.create_from_model_name(1, "PINHOLE", fx, width, height)
            self.pinhole.params = [fx, fy, cx + 0.5, cy + 0.5]
            self.pinhole.has_prior_focal_length = True
            self.pictures = write_database(self.database, features, self.pinhole, camera)
            match_pairs(self.database, pairs, settings)
        self.ids = {picture: number for number, picture in self.pictures.items()}
        self.straight = [
            straightened(p.keypoints[:, :2].astype(np.float64), features, camera)
            if len(p.keypoints)
            else np.zeros((0, 2))
            for p in features.pictures
        ]

    def _model(self, poses: Array, extra: _Corners | None = None) -> Any:
        """A COLMAP model of the posed pictures, without points."""
        with quiet() as pycolmap:
            model = pycolmap.Reconstruction()
            model.add_camera_with_trivial_rig(self.pinhole)
            for i, pose in enumerate(poses):
                if not np.isfinite(pose).all():
                    continue
                seen = self.straight[i]
                if extra is not None:
                    seen = np.concatenate([seen, extra.pixels[i]])
                image = pycolmap.Image(name(i), seen + 0.5, 1, self.ids[i])
                model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(pose[:3]))
        return model

    def triangulate(self, poses: Array) -> Tracks:
        """Points from matches and poses."""
        with quiet() as pycolmap:
            options = pycolmap.IncrementalPipelineOptions()
            options.num_threads = options.mapper.num_threads = 1
            options.random_seed = options.mapper.random_seed = self.settings.seed
            options.triangulation.random_seed = self.settings.seed
            options.extract_colors = False
            options.triangulation.ignore_two_view_tracks = False
            output = self.scratch / "points"
            output.mkdir(exist_ok=True)
            pycolmap.set_random_seed(self.settings.seed)
            model = pycolmap.triangulate_points(
                self._model(poses), self.database, self.scratch, output, True, options
            )
            return read_tracks(model, self.pictures)

    def place(self, poses: Array, tracks: Tracks) -> Array:
        """Add pictures without a pose, by the points that matched features of others show."""
        poses = poses.copy()
        known = np.asarray(np.isfinite(poses).all(axis=(1, 2)))
        if known.all() or not len(tracks.points):
            return poses
        point_of = {
            (int(i), int(f)): int(p)
            for i, f, p in zip(tracks.picture, tracks.feature, tracks.point, strict=True)
        }
        for i in np.flatnonzero(~known):
            shown = self._points_shown(int(i), known, point_of)
            if len(shown) < LEAST_INLIERS:
                continue
            feature, point = np.array(sorted(shown.items())).T
            pose = self._pose(self.straight[i][feature], tracks.points[point])
            if pose is not None:
                poses[i] = pose
        return poses

    def _points_shown(
        self, picture: int, known: NDArray[np.bool_], point_of: dict[tuple[int, int], int]
    ) -> dict[int, int]:
        """Point by feature of a picture, by verified matches to pictures with a pose."""
        shown: dict[int, int] = {}
        with quiet() as pycolmap, pycolmap.Database.open(self.database) as database:
            mine = self.ids[picture]
            for other in np.flatnonzero(known):
                theirs = self.ids[int(other)]
                if not database.exists_two_view_geometry(mine, theirs):
                    continue
                view = database.read_two_view_geometry(mine, theirs)
                for a, b in np.asarray(view.inlier_matches, np.int64).reshape(-1, 2):
                    point = point_of.get((int(other), int(b)))
                    if point is not None:
                        shown.setdefault(int(a), point)
        return shown

    def _pose(self, pixels: Array, points: Array) -> Array | None:
        with quiet() as pycolmap:
            options = pycolmap.AbsolutePoseEstimationOptions()
            options.ransac.max_error = 4.0
            options.ransac.random_seed = self.settings.seed
            found = pycolmap.estimate_and_refine_absolute_pose(
                pixels + 0.5, points, self.pinhole, options
            )
        if found is None or found["num_inliers"] < LEAST_INLIERS:
            return None
        pose = np.eye(4)
        pose[:3] = found["cam_from_world"].matrix()
        return pose

    def adjust(self, poses: Array, tracks: Tracks, fixed: _Corners) -> tuple[Array, Tracks]:
        """Adjust poses and points while the corners stay at their metric places."""
        with quiet() as pycolmap:
            model = self._model(poses, fixed)
            known = np.isfinite(poses).all(axis=(1, 2))
            order = np.argsort(tracks.point, kind="stable")
            starts = np.searchsorted(tracks.point[order], np.arange(len(tracks.points) + 1))
            ids: list[int] = []
            for row, place in enumerate(tracks.points):
                mine = order[starts[row] : starts[row + 1]]
                elements = [
                    (self.ids[int(tracks.picture[k])], int(tracks.feature[k])) for k in mine
                ]
                ids.append(_add(pycolmap, model, place, elements))
            seen: dict[int, list[tuple[int, int]]] = {}
            for i in np.flatnonzero(known):
                for k, point in enumerate(fixed.point[i]):
                    seen.setdefault(int(point), []).append(
                        (self.ids[int(i)], len(self.straight[i]) + k)
                    )
            corners = frozenset(
                _add(pycolmap, model, fixed.points[point], elements)
                for point, elements in sorted(seen.items())
            )
            solve(model, self.settings, fixed_points=corners, robust=ROBUST)
            poses = read_poses(model, self.pictures, len(poses))
            points = np.array([model.point3D(number).xyz for number in ids])
        return poses, replace(tracks, points=points.reshape(-1, 3))


def _add(pycolmap: Any, model: Any, place: Array, elements: list[tuple[int, int]]) -> int:
    course = pycolmap.Track()
    for image, feature in elements:
        course.add_element(image, feature)
    return int(model.add_point3D(place, course))


def corner_errors(reconstruction: Reconstruction, corners: Sequence[Corners]) -> Array:
    """Reprojection error of tag corners by the result (c,), px of the full pictures.

    Args:
        reconstruction: The result.
        corners: As given to :func:`seeded`, or others to judge it by.
    """
    errors = []
    for pose, (points, pixels) in zip(reconstruction.T_camera_world, corners, strict=True):
        if len(points) and np.isfinite(pose).all():
            there = reconstruction.camera.project(se3.apply(pose, points))
            errors.append(np.linalg.norm(there - pixels, axis=1))
    return np.concatenate(errors) if errors else np.zeros(0)
