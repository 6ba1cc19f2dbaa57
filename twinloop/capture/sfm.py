"""Structure from motion: lens, poses and points from pictures alone, by pycolmap on the CPU.

Features are SIFT (nothing is ever downloaded), pairs are chosen by a few large features, and a
SIMPLE_RADIAL lens is carried through the incremental mapping, because OPENCV's eight numbers run
away on the first pair; they are fitted at the end and kept only where the data determine them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.projection import Camera
from twinloop.capture.sfm_check import check_matches, check_texture, find_turntable
from twinloop.capture.sfm_features import (
    FAST,
    FeatureSet,
    Image,
    SfmSettings,
    choose_pairs,
    extract,
    likeness,
    match_pairs,
    quiet,
    workshop,
    write_database,
)
from twinloop.capture.sfm_model import (
    Reconstruction,
    finish,
    from_colmap,
    read_poses,
    read_tracks,
    solve,
)
from twinloop.errors import InputError
from twinloop.progress import track

__all__ = ["FAST", "Reconstruction", "SfmSettings", "structure_from_motion"]

Array = NDArray[np.float64]

GUESSED_FOCAL = 1.2
"""Focal length where nothing is known, relative to the longer side (COLMAP's guess too)."""
MANY = 10
"""Fewest registered pictures that OPENCV's lens model is fitted to."""
CENTRE_STD = 0.005
"""Largest standard deviation of the principal point at which it is refined, of the longer side."""
CENTRE_SHIFT = 0.08
"""Farthest that the principal point may lie from the middle, of the longer side."""


def structure_from_motion(
    images: Iterable[Image],
    *,
    focal_prior: float | None = None,
    known: Camera | None = None,
    sequential: bool = True,
    masks: Sequence[Image | None] | None = None,
    settings: SfmSettings | None = None,
    where: str = "pictures",
) -> Reconstruction:
    """Find the lens, the camera poses and points of a scene from pictures.

    Args:
        images: RGB (height, width, 3) or grey (height, width), one size, read one at a time.
        focal_prior: Focal length by the pictures' tags, px of the full pictures; it is refined.
        known: The lens when it is known; it is then kept.
        sequential: Whether the pictures are in the order they were taken.
        masks: Per picture (height, width), 255 where features may lie; None for everywhere.
        settings: Size, numbers and seed.
        where: Name of the capture, for messages.

    Returns:
        The model with the most pictures (then points).  World and scale are arbitrary.

    Raises:
        InputError: The pictures cannot give a model (texture, overlap, parallax), or fewer than
            ``settings.min_registered`` of them are registered; says why and what to do.
        MachineError: pycolmap is missing, or the disk is full.

    Everything temporary lies in one temporary folder, which goes whatever happens.
    """
    settings = settings or SfmSettings()
    if focal_prior is not None and not (np.isfinite(focal_prior) and focal_prior > 0):
        focal_prior = None
    with workshop(where) as scratch:
        features = extract(images, masks, settings, where)
        check_texture(features, where)
        notes: list[str] = []
        turntable = find_turntable(features)
        if turntable is not None:
            features = turntable.features
            notes.append(turntable.note)
        pairs = choose_pairs(likeness(features), settings, sequential)
        focal = known.intrinsics[0] if known is not None else focal_prior
        finding = check_matches(features, pairs, focal, where)
        notes.append(finding.text)
        models, pictures = _map(
            scratch, features, pairs, known, focal_prior, finding.angle, settings
        )
        if not models:
            raise InputError(
                f"{where}: no model was found: 0 of {len(features.pictures)} pictures registered. "
                f"{finding.text} {finding.advice}"
            )
        ranked = sorted(
            models.values(),
            key=lambda m: (m.num_reg_images(), m.num_points3D()),
            reverse=True,
        )
        best = ranked[0]
        _gate(ranked, features, finding.text, finding.advice, settings, where)
        if len(ranked) > 1:
            sizes = ", ".join(str(m.num_reg_images()) for m in ranked)
            notes.append(
                f"The pictures fell into {len(ranked)} models of {sizes} pictures; the first was "
                "taken."
            )
        if known is None:
            best, camera, std, said = _fit_lens(best, settings)
            camera = camera.scaled(*features.full)
            std = std * np.array([*np.repeat(features.full[0] / features.size[0], 4), *np.ones(5)])
            notes.append(said)
        else:
            solve(best, settings)
            camera, std = known, np.full(9, np.nan)
        poses = read_poses(best, pictures, len(features.pictures))
        tracks = read_tracks(best, pictures)
    result = finish(features, camera, std, poses, tracks, tuple(notes))
    if not len(result.points):
        raise InputError(
            f"{where}: the model kept no point after its lens was fitted, so it is worthless. "
            "State the focal length or a calibrated lens."
        )
    return result


def _map(
    scratch: Path,
    features: FeatureSet,
    pairs: list[tuple[int, int]],
    known: Camera | None,
    focal_prior: float | None,
    angle: float,
    settings: SfmSettings,
) -> tuple[dict[int, Any], dict[int, int]]:
    """Match and map; returns COLMAP's models, and the picture of each image id."""
    with quiet() as pycolmap:
        width, height = features.size
        if known is not None:
            lens = known.scaled(width, height).intrinsics
            camera = pycolmap.Camera.create_from_model_name(1, "PINHOLE", lens[0], width, height)
            camera.params = [lens[0], lens[1], lens[2] + 0.5, lens[3] + 0.5]
            camera.has_prior_focal_length = True
        else:
            shrink = width / features.full[0]
            focal = focal_prior * shrink if focal_prior else GUESSED_FOCAL * max(width, height)
            camera = pycolmap.Camera.create_from_model_name(
                1, "SIMPLE_RADIAL", focal, width, height
            )
            camera.has_prior_focal_length = focal_prior is not None
        database = scratch / "features.db"
        pictures = write_database(database, features, camera, known)
        match_pairs(database, pairs, settings)
        options = pycolmap.IncrementalPipelineOptions()
        options.num_threads = options.mapper.num_threads = 1
        options.random_seed = settings.seed
        options.mapper.random_seed = options.triangulation.random_seed = settings.seed
        options.extract_colors = False
        if known is not None:
            options.ba_refine_focal_length = options.ba_refine_extra_params = False
            options.mapper.abs_pose_refine_focal_length = False
            options.mapper.abs_pose_refine_extra_params = False
        # The first pair wants 16 degrees; where the pictures offer less, ask for less.
        options.mapper.init_min_tri_angle = float(np.clip(0.5 * angle, 3.0, 16.0))
        options.min_model_size = 3
        pycolmap.set_random_seed(settings.seed)
        output = scratch / "models"
        output.mkdir()
        bar = track(range(len(features.pictures)), "place pictures")
        found = pycolmap.incremental_mapping(
            database, scratch, output, options, next_image_callback=lambda: next(bar, None)
        )
        for _ in bar:
            pass
    return dict(found), pictures


def _gate(
    ranked: list[Any],
    features: FeatureSet,
    finding: str,
    advice: str,
    settings: SfmSettings,
    where: str,
) -> None:
    count = len(features.pictures)
    registered = int(ranked[0].num_reg_images())
    if registered >= settings.min_registered * count:
        return
    raise InputError(
        f"{where}: only {registered} of {count} pictures were registered, at least "
        f"{settings.min_registered:.0%} are expected"
        + (f"; the pictures fell into {len(ranked)} separate models" if len(ranked) > 1 else "")
        + f". {finding} {advice}"
    )


def _fit_lens(model: Any, settings: SfmSettings) -> tuple[Any, Camera, Array, str]:
    """Fit the fullest lens model that the data determine.

    Returns:
        The adjusted COLMAP model, the lens, the standard deviation of its nine numbers for
        residuals of 1 px, and a sentence.
    """
    with quiet() as pycolmap:
        if model.num_reg_images() >= MANY:
            trial = pycolmap.Reconstruction(model)
            f, cx, cy, k = trial.camera(1).params
            trial.camera(1).model = pycolmap.CameraModelId.OPENCV
            trial.camera(1).params = [f, f, cx, cy, k, 0, 0, 0]
            covariance = solve(trial, settings, "free")
            camera = from_colmap(trial.camera(1))
            if covariance is not None and sound_lens(camera):
                std = np.full(9, np.nan)
                std[:8] = np.sqrt(np.maximum(np.diag(covariance), 0))
                # Tangential distortion is told from the principal point only where both are.
                worst = std[2:4].max() * trial.compute_mean_reprojection_error()
                if worst <= CENTRE_STD * max(camera.width, camera.height):
                    said = "All eight numbers of the lens were refined (OPENCV model)."
                    return trial, camera, std, said
        covariance = solve(model, settings, "fixed centre")
        std = np.full(9, np.nan)
        if covariance is not None:
            std[[0, 4]] = np.sqrt(np.maximum(np.diag(covariance), 0))
            std[1] = std[0]
        said = (
            "The pictures determine one focal length and one radial number of the lens; the "
            "principal point stays in the middle (SIMPLE_RADIAL model)."
        )
        return model, from_colmap(model.camera(1)), std, said


def sound_lens(camera: Camera) -> bool:
    """Whether a fitted lens is one that exists, rather than a fit gone astray.

    Focal lengths plausible and alike, principal point near the middle, and no fold: the radius on
    the picture grows with the angle out to the corners.
    """
    fx, fy, cx, cy = camera.intrinsics
    side = max(camera.width, camera.height)
    middle = np.array([(camera.width - 1) / 2, (camera.height - 1) / 2])
    if not np.isfinite(camera.vector).all() or min(fx, fy) < 0.2 * side or max(fx, fy) > 10 * side:
        return False
    if abs(fx / fy - 1) > 0.05 or np.abs(np.array([cx, cy]) - middle).max() > CENTRE_SHIFT * side:
        return False
    k1, k2, _, _, k3 = camera.distortion
    reach = np.hypot(camera.width / fx, camera.height / fy) / 2
    r2 = np.linspace(0, reach, 50) ** 2
    return bool((1 + r2 * (3 * k1 + r2 * (5 * k2 + r2 * 7 * k3)) > 0.05).all())
