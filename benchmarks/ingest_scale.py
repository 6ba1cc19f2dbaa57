"""Figures of metric scale and hand-eye calibration.

The pictures are the lab's phone
scans.  Robot poses, clicks and depth are the lab's truth with the noise of such devices; the model
whose scale is sought comes from structure from motion on the pictures, which knows no board.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import Figure
from tests.capture.robot_views import CAMERA, robot_views
from twinloop.capture.board import Board, Detections, load_board
from twinloop.capture.hand_eye import calibrate_hand_eye
from twinloop.capture.projection import Camera
from twinloop.capture.scale import Clicks, Distance, MetricFrame, from_board, from_distance
from twinloop.capture.scale_depth import from_depth
from twinloop.capture.scale_robot import from_robot_poses
from twinloop.capture.scan import select
from twinloop.capture.sfm import Reconstruction, SfmSettings, structure_from_motion
from twinloop.capture.similarity import align
from twinloop.capture.survey import candidates, shots, survey
from twinloop.capture.video import Video
from twinloop.geometry import se3
from twinloop.lab.objects import build_object
from twinloop.lab.scan import ScanSettings, ScanTruth, shoot_scan
from twinloop.lab.spec import load_preset

Array = NDArray[np.float64]

PRESETS = ("spam", "letter_a", "ketchup")
SCAN = ScanSettings(frames=60)
"""A third of the frames of the default scan: the same path and blur, less time to film."""
PICTURES = 36
"""Pictures that structure from motion gets."""
TRIALS = 20
"""Draws of the devices' noise."""
ROBOT = (3e-4, float(np.radians(0.03)))
"""Repeatability of the robot, m and rad per axis."""
X = se3.exp(np.array([0.03, -0.05, 0.08, 0.3, -0.2, 1.1]))
"""The camera on the flange."""


def hand_eye(seeds: int = 100) -> list[Figure]:
    """15 poses, 0.3 px, robot 0.3 mm and 0.03 deg; camera in the hand and beside the robot."""
    figures = []
    for eye_in_hand in (True, False):
        places, turns, inside = [], [], 0
        for seed in range(seeds):
            case = robot_views(seed, 15, eye_in_hand=eye_in_hand)
            found = calibrate_hand_eye(
                case.T_base_flange, case.views, CAMERA, eye_in_hand=eye_in_hand
            )
            off = se3.inverse(case.T_mount_camera) @ found.T_mount_camera
            place, turn = np.linalg.norm(off[:3, 3]), np.linalg.norm(se3.log(off)[3:])
            places.append(1e3 * place)
            turns.append(np.degrees(turn))
            inside += int(place <= found.translation_95) + int(turn <= found.rotation_95)
        where = "eye in hand" if eye_in_hand else "eye beside the robot"
        for name, values, unit, target in (
            ("position", places, "mm", 1.5),
            ("rotation", turns, "deg", 0.15),
        ):
            for word, share in (("median", 0.5), ("95th percentile", 0.95)):
                value = float(np.quantile(values, share))
                label = f"hand-eye {name}, {where}, {word}"
                figures.append(Figure(label, value, unit, target, "lower", seeds))
        figures.append(
            Figure(
                f"hand-eye 95 % bounds hold the truth, {where} ({inside}/{2 * seeds})",
                inside / (2 * seeds),
                "",
                0.9,
                "higher",
                2 * seeds,
            )
        )
    return figures


@dataclass(frozen=True)
class Scan:
    """A filmed lab object, its board, and a model of it by structure from motion."""

    truth: ScanTruth
    board: Board
    index: NDArray[np.int64]
    """Frames that the model holds."""
    model: Reconstruction
    tags: list[Detections]
    board_error: float
    """Relative scale error of the board path."""

    @property
    def T_world_camera(self) -> Array:  # noqa: N802
        """True poses of the model's frames."""
        return self.truth.T_world_camera[self.index]

    @property
    def scale(self) -> float:
        """True metres per model unit."""
        return align(self.model.T_world_camera[:, :3, 3], self.T_world_camera[:, :3, 3]).scale


def film(name: str) -> Scan:
    """Film a preset, take the board path and structure from motion."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        spec = load_preset(name)
        truth = shoot_scan(build_object(spec, name), folder, SCAN, spec.noise, 0)
        video, board = folder / "video.mp4", load_board(folder / "board.yaml")
        pictures = Video(video)
        rated = survey(pictures)
        chosen, verdict = candidates(rated, pictures.sizes, 80, 0.6, 0.3)
        found = list(shots(pictures, chosen, board, 240))
        kept = select(
            found,
            rated,
            verdict,
            board,
            count=50,
            min_tags=2,
            min_frames=6,
            max_rms=1.0,
            where=name,
        )
        board_index = np.array([shot.index for shot in kept.shots])
        places = kept.calibration.T_board_camera[:, :3, 3]
        board_error = align(places, truth.T_world_camera[board_index, :3, 3]).scale - 1
        index = chosen[np.linspace(0, len(chosen) - 1, min(PICTURES, len(chosen))).astype(int)]
        images = [frame.image for frame in pictures.read(index.tolist())]
    model = structure_from_motion(images, settings=SfmSettings(), where=name)
    by_index = {shot.index: shot.tags for shot in found}
    if not model.registered.all():
        raise RuntimeError(f"{name}: {int(model.registered.sum())} of {len(index)} registered")
    return Scan(truth, board, index, model, [by_index[int(i)] for i in index], board_error)


def scale(name: str) -> list[Figure]:
    """Scale of one preset's scan by each source."""
    scan = film(name)
    model, true = scan.model, scan.scale
    cameras = [model.camera] * len(scan.index)
    figures = [
        Figure(
            f"{name}: scale error of the video with the board",
            100 * abs(scan.board_error),
            "%",
            0.2,
            "lower",
            1,
        )
    ]
    by_board = from_board(scan.board, scan.tags, model.T_world_camera, cameras)
    off = np.log(by_board.scale / true)
    figures += [
        _figure(name, "board on a model without one", np.array([off]), [by_board.scale_std], 0.2)
    ]
    sources: dict[str, Callable[[np.random.Generator], MetricFrame]] = {
        "robot poses, camera on the flange known": partial(_robot, scan, X),
        "robot poses, camera on the flange unknown": partial(_robot, scan, None),
        "one stated distance": partial(_distance, scan, cameras),
        "depth": partial(_depth, scan, cameras),
    }
    for source, find in sources.items():
        frames = [find(np.random.default_rng([seed, 31])) for seed in range(TRIALS)]
        errors = np.log([frame.scale / true for frame in frames])
        figures.append(_figure(name, source, errors, [frame.scale_std for frame in frames], 0.5))
    return figures


def _figure(name: str, source: str, errors: Array, stds: list[float], target: float) -> Figure:
    rms = float(np.sqrt((errors**2).mean()))
    low, high = 100 * np.quantile(np.abs(errors), [0.025, 0.975])
    said = 100 * float(np.median(stds))
    return Figure(
        f"{name}: scale error by {source}, rms (said: {said:.2g} %)",
        100 * rms,
        "%",
        target,
        "lower",
        len(errors),
        [float(low), float(high)] if len(errors) > 1 else None,
    )


def _robot(scan: Scan, known: Array | None, rng: np.random.Generator) -> MetricFrame:
    noise = rng.normal(size=(len(scan.index), 6)) * np.repeat(ROBOT, 3)
    F = scan.T_world_camera @ se3.inverse(X) @ se3.exp(noise)
    return from_robot_poses(scan.model.T_world_camera, F, known).frame


def _distance(scan: Scan, cameras: Sequence[Camera], rng: np.random.Generator) -> MetricFrame:
    """Two opposite corners of the board, each clicked in four pictures that show it."""
    low, high = scan.board.bounds()
    ends = np.array([[*low, 0.0], [*high, 0.0]])
    clicks = []
    for end in ends:
        pixels = np.array([scan.truth.camera.project(end[None], T)[0] for T in scan.T_world_camera])
        size = [scan.truth.camera.width - 10, scan.truth.camera.height - 10]
        shown = np.flatnonzero(((pixels > 10) & (pixels < size)).all(axis=1))
        pictures = shown[np.linspace(0, len(shown) - 1, 4).astype(int)]
        clicks.append(Clicks(pictures, pixels[pictures] + rng.normal(0, 0.5, (4, 2))))
    length = float(np.linalg.norm(ends[1] - ends[0]))
    return from_distance(
        [Distance((clicks[0], clicks[1]), length)], scan.model.T_world_camera, cameras
    )


def _depth(scan: Scan, cameras: Sequence[Camera], rng: np.random.Generator) -> MetricFrame:
    """Depth of the table at 120 x 212 px: 3 mm of noise, 1 % of error per picture."""
    camera = scan.truth.camera
    lens = cameras[0]
    width, height = camera.width // 4, camera.height // 4
    v, u = np.indices((height, width), dtype=np.float64)
    rays = np.stack([(u + 0.5) * 4 - 0.5, (v + 0.5) * 4 - 0.5], axis=-1).reshape(-1, 2)
    rays = np.column_stack([lens.normalize(rays), np.ones(len(rays))])
    world = from_board(scan.board, scan.tags, scan.model.T_world_camera, cameras)
    flat = np.abs(world.points(scan.model.points)[:, 2]) < 2e-3
    table = flat[scan.model.observation_point]
    seen = (scan.model.observation_picture[table], scan.model.observation_point[table])
    errors = 1 + 0.01 * rng.normal(size=len(scan.index))

    def read(picture: int) -> Array:
        T = scan.T_world_camera[picture]
        distance = -T[2, 3] / (rays @ T[2, :3])
        depth = (distance * errors[picture]).reshape(height, width)
        depth += 3e-3 * cv2.blur(rng.normal(size=depth.shape), (3, 3)) * 3
        return np.where(depth > 0, depth, np.nan)

    return from_depth(read, scan.model.points, scan.model.T_world_camera, cameras, seen)
