"""What structure from motion gives, and the bundle adjustment that both ways to it share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.projection import Camera, project_with_jacobian
from twinloop.capture.sfm_features import FeatureSet, SfmSettings, colmap
from twinloop.geometry import se3

Array = NDArray[np.float64]
UNKNOWN_LENS = np.full(9, np.nan)


@dataclass(frozen=True)
class Reconstruction:
    """Lens, poses and points that explain the features of a set of pictures.

    The world is the model's own: its scale and orientation are arbitrary unless a board fixed them.
    """

    camera: Camera
    """The lens, at the full size of the pictures."""
    camera_std: Array
    """Standard deviation of its nine numbers (9,), from the residuals' scatter; NaN where a number
    was given or kept fixed."""
    T_camera_world: Array
    """Poses (n, 4, 4); NaN where a picture is not registered."""
    points: Array
    """Points (m, 3) in the world."""
    point_std: Array
    """Standard deviation (m,) of a point's place (root of the mean over the three axes), given the
    poses; a lower bound, since poses err too."""
    colours: NDArray[np.uint8]
    """RGB of the points (m, 3)."""
    track_length: NDArray[np.int64]
    """Number of pictures that see each point (m,)."""
    observation_picture: NDArray[np.int64]
    """Picture of each observation (k,)."""
    observation_point: NDArray[np.int64]
    """Point of each observation (k,)."""
    observation_pixel: Array
    """Where it was seen (k, 2), px of the full pictures."""
    rms: Array
    """Reprojection error of each picture (n,), px of the full pictures; NaN without any."""
    notes: tuple[str, ...] = ()
    """What was decided, one sentence each, for the report."""

    @property
    def T_world_camera(self) -> Array:  # noqa: N802
        """Camera poses (n, 4, 4) in the world; NaN where not registered."""
        return se3.inverse(self.T_camera_world)

    @property
    def registered(self) -> NDArray[np.bool_]:
        """Which pictures have a pose (n,)."""
        return np.asarray(np.isfinite(self.T_camera_world).all(axis=(1, 2)))


@dataclass(frozen=True)
class Tracks:
    """Points and where they are seen, pixels of the full pictures."""

    points: Array
    """(m, 3) in the world."""
    picture: NDArray[np.int64]
    """(k,)."""
    point: NDArray[np.int64]
    """(k,)."""
    feature: NDArray[np.int64]
    """Number of the feature in its picture (k,)."""


def read_tracks(model: Any, pictures: dict[int, int]) -> Tracks:
    """Points of a COLMAP model, sorted by id, and their observations.

    Args:
        model: The COLMAP model.
        pictures: Picture by id.
    """
    points, rows = [], []
    for row, number in enumerate(sorted(model.points3D)):
        point = model.points3D[number]
        points.append(point.xyz)
        seen = sorted((pictures[e.image_id], e.point2D_idx) for e in point.track.elements)
        rows += [(picture, row, feature) for picture, feature in seen]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Tracks(
        np.array(points, dtype=np.float64).reshape(-1, 3), table[:, 0], table[:, 1], table[:, 2]
    )


def read_poses(model: Any, pictures: dict[int, int], count: int) -> Array:
    """Poses T_camera_world (count, 4, 4) of a COLMAP model; NaN where not registered."""
    poses = np.full((count, 4, 4), np.nan)
    for number in model.reg_image_ids():
        pose = np.eye(4)
        pose[:3] = model.image(number).cam_from_world().matrix()
        poses[pictures[number]] = pose
    return poses


def solve(
    model: Any,
    settings: SfmSettings,
    lens: str = "",
    fixed_points: frozenset[int] = frozenset(),
    robust: float = 0.0,
) -> NDArray[np.float64] | None:
    """Adjust poses, points and lens of a COLMAP model in place, on one thread.

    Args:
        model: The model; its camera has the id 1.
        settings: Only the seed matters.
        lens: "" to keep the lens, "fixed centre" to refine all but the principal point, "free" to
            refine all of it.
        fixed_points: Ids of points that stay; with three or more of them they fix the gauge.
        robust: Scale of Cauchy's loss, px; 0 for plain squares.

    Returns:
        Covariance of the lens's refined numbers for residuals of 1 px; None when the lens is kept
        or the problem is singular.
    """
    pycolmap = colmap()
    pycolmap.set_random_seed(settings.seed)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    options.refine_focal_length = options.refine_extra_params = bool(lens)
    options.refine_principal_point = lens == "free"
    # Sums over threads come in any order; on one thread equal inputs give equal bytes.
    options.ceres.solver_options.num_threads = 1
    options.ceres.solver_options.max_num_iterations = 60
    options.ceres.solver_options.function_tolerance = 1e-9
    if robust:
        options.ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
        options.ceres.loss_function_scale = robust
    config = pycolmap.BundleAdjustmentConfig()
    for number in model.reg_image_ids():
        config.add_image(number)
    if fixed_points:
        for number in sorted(fixed_points):
            config.add_constant_point(number)
    else:
        config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(options, config, model)
    adjuster.solve()
    if not lens:
        return None
    covariance = pycolmap.estimate_ba_covariance(pycolmap.BACovarianceOptions(), model, adjuster)
    found = covariance and covariance.get_other_params_cov(model.camera(1).params)
    return None if found is None else np.asarray(found, np.float64)


def from_colmap(camera: Any) -> Camera:
    """Read pycolmap's OPENCV, SIMPLE_RADIAL or PINHOLE camera as our lens."""
    values = np.asarray(camera.params, np.float64)
    k = np.zeros(5)
    if camera.model_name == "SIMPLE_RADIAL":
        intrinsics = np.array([values[0], values[0], values[1], values[2]])
        k[0] = values[3]
    else:
        intrinsics = values[:4].copy()
        k[: len(values) - 4] = values[4:]
    intrinsics[2:] -= 0.5
    return Camera(intrinsics, k, camera.width, camera.height)


def finish(
    features: FeatureSet,
    camera: Camera,
    camera_std: Array,
    poses: Array,
    tracks: Tracks,
    notes: tuple[str, ...],
    limit: float = 4.0,
) -> Reconstruction:
    """Measure errors and put the result together.

    Args:
        features: All features.
        camera: The lens at full size.
        camera_std: Of its nine numbers (9,), for residuals of 1 px of the shrunk pictures.
        poses: T_camera_world (n, 4, 4), NaN where not registered.
        tracks: Points and observations, of registered pictures.
        notes: What was decided.
        limit: Observations that err by more are dropped, px of the shrunk pictures; points that
            keep fewer than two go with them.
    """
    pixels, colours = gather(features, tracks)
    shrink = features.full[0] / features.size[0]
    error, jacobian = _residuals(camera, poses, tracks, pixels)
    keep = np.linalg.norm(error, axis=1) <= limit * shrink
    seen = np.bincount(tracks.point[keep], minlength=len(tracks.points))
    keep &= seen[tracks.point] >= 2
    error, jacobian, pixels = error[keep], jacobian[keep], pixels[keep]
    kept, point = np.unique(tracks.point[keep], return_inverse=True)
    picture = tracks.picture[keep]
    square = (error**2).sum(axis=1)
    count = np.bincount(picture, minlength=len(poses))
    with np.errstate(invalid="ignore", divide="ignore"):
        rms = np.sqrt(np.bincount(picture, square, minlength=len(poses)) / count)
    length = np.bincount(point, minlength=len(kept))
    # Two numbers per observation, less three per point and six per pose that were fitted.
    freedom = max(2 * len(square) - 3 * len(kept) - 6 * int((count > 0).sum()), 1)
    variance = float(square.sum()) / freedom
    colour = (
        np.stack(
            [np.bincount(point, colours[keep][:, c], minlength=len(kept)) for c in range(3)], axis=1
        )
        / np.maximum(length, 1)[:, None]
    )
    return Reconstruction(
        camera=camera,
        camera_std=camera_std * np.sqrt(variance) / shrink,
        T_camera_world=poses,
        points=tracks.points[kept],
        point_std=_point_std(jacobian, point, len(kept), variance),
        colours=np.rint(colour).astype(np.uint8),
        track_length=length.astype(np.int64),
        observation_picture=picture,
        observation_point=point.astype(np.int64),
        observation_pixel=pixels,
        rms=rms,
        notes=notes,
    )


def gather(features: FeatureSet, tracks: Tracks) -> tuple[Array, NDArray[np.uint8]]:
    """Pixels (k, 2) of the full pictures and colours (k, 3) of all observations."""
    pixels = np.zeros((len(tracks.picture), 2))
    colours = np.zeros((len(tracks.picture), 3), np.uint8)
    for i, found in enumerate(features.pictures):
        mine = tracks.picture == i
        pixels[mine] = found.keypoints[tracks.feature[mine], :2]
        colours[mine] = found.colours[tracks.feature[mine]]
    return features.to_full(pixels), colours


def _residuals(camera: Camera, poses: Array, tracks: Tracks, pixels: Array) -> tuple[Array, Array]:
    """Errors (k, 2) px and their derivatives by the points (k, 2, 3)."""
    T = poses[tracks.picture]
    places = np.einsum("kij,kj->ki", T[:, :3, :3], tracks.points[tracks.point]) + T[:, :3, 3]
    behind = places[:, 2] <= 1e-9
    places[behind, 2] = 1e-9
    projected, by_place, _ = project_with_jacobian(camera, places)
    error = projected - pixels
    error[behind] = np.inf
    return error, by_place @ T[:, :3, :3]


def _point_std(jacobian: Array, point: NDArray[np.intp], count: int, variance: float) -> Array:
    information = np.zeros((count, 3, 3))
    np.add.at(information, point, np.swapaxes(jacobian, 1, 2) @ jacobian)
    # A point seen under almost no parallax is as good as unknown along its ray, not an error.
    floor = np.trace(information, axis1=1, axis2=2)[:, None, None] * 1e-12 * np.eye(3)
    covariance = np.linalg.inv(information + floor) if count else information
    return np.asarray(np.sqrt(variance * np.trace(covariance, axis1=1, axis2=2) / 3))
