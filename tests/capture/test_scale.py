"""Metric scale from every source: exact on exact input, honest about noise, loud about units."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import cv2
import numpy as np
import pytest

from tests import realdata
from tests.capture.robot_views import CAMERA
from tests.capture.scene import grid_board
from twinloop.capture.board import Board, Detections, Pose, Tag, detect_tags
from twinloop.capture.projection import Camera
from twinloop.capture.scale import (
    MODEL_STD,
    Clicks,
    Distance,
    MetricFrame,
    check_units,
    from_board,
    from_distance,
    reconcile,
)
from twinloop.capture.scale_depth import SENSOR_STD, from_depth
from twinloop.capture.scale_robot import from_robot_poses
from twinloop.capture.triangulate import Sighting, triangulate
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at

X = se3.exp(np.array([0.03, -0.05, 0.08, 0.3, -0.2, 1.1]))
"""The camera on the flange."""


@dataclass
class Model:
    """A scan in a model world that is 1 / ``scale`` times the metric one, and moved."""

    scale: float
    T_world_model: np.ndarray
    T_world_camera: np.ndarray
    rng: np.random.Generator

    @property
    def T_model_camera(self) -> np.ndarray:  # noqa: N802
        """Poses in the model."""
        T = se3.inverse(self.T_world_model) @ self.T_world_camera
        T[:, :3, 3] /= self.scale
        return T

    def to_model(self, points: np.ndarray) -> np.ndarray:
        """World points in the model."""
        return se3.apply(se3.inverse(self.T_world_model), points) / self.scale

    def jittered(self, metres: float, radians: float) -> np.ndarray:
        """Poses in the model, off by noise of that size in the world."""
        noise = self.rng.normal(size=(len(self.T_world_camera), 6))
        noise *= np.repeat([metres, radians], 3)
        T = self.T_model_camera @ se3.exp(noise)
        T[:, :3, 3] += (self.T_model_camera - T)[:, :3, 3] * (1 - 1 / self.scale)
        return T

    def clicks(self, point: np.ndarray, pictures: list[int], std: float = 0.0) -> Clicks:
        """Where the pictures show a world point."""
        pixels = [
            CAMERA.project(se3.apply(se3.inverse(self.T_world_camera[i]), point[None]))[0]
            for i in pictures
        ]
        return Clicks(
            np.array(pictures), np.array(pixels) + self.rng.normal(0, std, (len(pixels), 2))
        )


def model(seed: int = 0, count: int = 20, radius: float = 0.4) -> Model:
    """Cameras above the origin that look at it, from distances that vary by a quarter."""
    rng = np.random.default_rng([seed, 5])
    azimuth, height = np.linspace(0, 5, count), rng.uniform(0.5, 1.1, count)
    distance = radius * rng.uniform(0.75, 1.25, count)
    eyes = distance[:, None] * np.stack(
        [np.cos(azimuth) * np.cos(height), np.sin(azimuth) * np.cos(height), np.sin(height)], 1
    )
    poses = np.stack([look_at(eye, rng.normal(0, 0.02, 3)) for eye in eyes])
    return Model(float(np.exp(rng.normal(0, 1))), se3.exp(rng.normal(0, 1, 6)), poses, rng)


def test_a_frame_carries_points_and_poses() -> None:
    """Scaled first, then moved; a picture without a pose keeps none."""
    case = model()
    frame = MetricFrame(case.scale, 0.0, case.T_world_model, "board", ())
    np.testing.assert_allclose(frame.points(case.to_model(np.eye(3))), np.eye(3), atol=1e-12)
    poses = case.T_model_camera
    poses[3] = np.nan
    found = frame.poses(poses)
    assert np.isnan(found[3, :3]).all()
    np.testing.assert_allclose(found[4:], case.T_world_camera[4:], atol=1e-12)


def noise_std(frame: MetricFrame) -> float:
    """The part of a scale's uncertainty that is not the model's own bend, which is absent here."""
    return float(np.sqrt(frame.scale_std**2 - MODEL_STD**2))


def board_case(std: float) -> tuple[Model, Board, list[Detections]]:
    """A board off the world's origin, seen by every camera."""
    case = model()
    pose = se3.exp(np.array([0.01, 0.02, -0.03, 0.02, -0.01, 0.4]))
    position, quaternion = se3.to_position_quaternion(pose)
    board = grid_board(3, 2).model_copy(
        update={"T_world_board": Pose(position=tuple(position), quaternion_wxyz=tuple(quaternion))}
    )
    ids = np.array(sorted(board.corners()))
    corners = se3.apply(pose, np.concatenate([board.corners()[i] for i in ids]))
    tags = []
    for T in case.T_world_camera:
        pixels = CAMERA.project(se3.apply(se3.inverse(T), corners))
        pixels += case.rng.normal(0, std, pixels.shape)
        tags.append(Detections(ids, pixels.reshape(-1, 4, 2), 0))
    return case, board, tags


def test_the_board_gives_scale_and_world() -> None:
    """Exact without noise; with 0.2 px and wrong poses within four standard deviations."""
    case, board, tags = board_case(0.0)
    frame = from_board(board, tags, case.T_model_camera, [CAMERA] * 20)
    assert frame.scale == pytest.approx(case.scale, rel=1e-8)
    np.testing.assert_allclose(frame.T_world_model, case.T_world_model, atol=1e-7)
    assert frame.scale_std == pytest.approx(MODEL_STD)
    case, board, tags = board_case(0.2)
    poses = case.T_model_camera
    poses[5] = np.nan
    frame = from_board(board, tags, poses, [CAMERA] * 20)
    assert abs(np.log(frame.scale / case.scale)) < max(4 * frame.scale_std, 1e-5)
    assert MODEL_STD < frame.scale_std < 2e-3


def test_a_board_that_does_not_fit_is_refused() -> None:
    """Another layout than what was filmed; not seen at all."""
    case, board, tags = board_case(0.1)
    other = Board(
        tags=tuple(
            t.model_copy(update={"centre": (t.centre[1] * 3, t.centre[0])}) for t in board.tags
        )
    )
    with pytest.raises(InputError, match="layout of board"):
        from_board(other, tags, case.T_model_camera, [CAMERA] * 20)
    nothing = [Detections(np.zeros(0, np.int64), np.zeros((0, 4, 2)), 3)] * 20
    with pytest.raises(InputError, match="0 tag corners"):
        from_board(board, nothing, case.T_model_camera, [CAMERA] * 20)


@pytest.mark.parametrize("known", [True, False])
def test_robot_poses_give_scale_and_base(known: bool) -> None:
    """Exact without noise, also with the camera's place on the flange unknown."""
    case = model()
    F = case.T_world_camera @ se3.inverse(X)
    found = from_robot_poses(case.T_model_camera, F, X if known else None)
    assert found.frame.scale == pytest.approx(case.scale, rel=1e-6)
    np.testing.assert_allclose(found.frame.T_world_model, case.T_world_model, atol=1e-6)
    np.testing.assert_allclose(found.T_flange_camera, X, atol=1e-6)


@pytest.mark.parametrize("known", [True, False])
def test_the_robots_scale_knows_its_error(known: bool) -> None:
    """1 mm and 0.1 deg of noise over 12 draws: 0.5 % reached, errors as large as they say."""
    errors = []
    for seed in range(12):
        case = model(seed)
        F = case.T_world_camera @ se3.inverse(X)
        found = from_robot_poses(case.jittered(1e-3, 2e-3), F, X if known else None).frame
        errors.append(np.log(found.scale / case.scale) / noise_std(found))
        assert found.scale_std < 5e-3
    assert 0.5 < np.sqrt(np.mean(np.square(errors))) < 1.7


def test_one_settled_picture_too_early_does_not_spoil_the_scale() -> None:
    """A pose that is 15 mm off counts less."""
    case = model()
    F = case.T_world_camera @ se3.inverse(X)
    F[7, :3, 3] += [0.015, 0, 0]
    found = from_robot_poses(case.jittered(3e-4, 5e-4), F, X).frame
    assert found.scale == pytest.approx(case.scale, rel=2e-3)


def test_robot_motions_that_leave_the_scale_open_are_refused() -> None:
    """One axis only, turning on the spot, too few, millimetres, other pictures' poses."""
    case = model()
    C, F = case.T_model_camera, case.T_world_camera @ se3.inverse(X)
    with pytest.raises(InputError, match="unidentifiable from 4 poses"):
        from_robot_poses(C[:4], F[:4])
    with pytest.raises(InputError, match="19 poses for 20 pictures"):
        from_robot_poses(C, F[:19])
    spin = se3.exp(np.linspace(0, 1, 10)[:, None] * [0, 0, 0, 0, 0, 1.0])
    with pytest.raises(InputError, match=r"unidentifiable.*about a second"):
        from_robot_poses(spin @ C[0], spin @ F[0])
    tilts = np.concatenate([np.zeros((10, 3)), case.rng.normal(0, 0.3, (10, 3))], axis=1)
    still = F[0] @ X @ se3.exp(tilts)
    with pytest.raises(InputError, match=r"unidentifiable: the camera moved by 0\.0 mm"):
        from_robot_poses(still, still @ se3.inverse(X), X)
    with pytest.raises(InputError, match="millimetres"):
        from_robot_poses(
            C, np.concatenate([F[:, :, :3], F[:, :, 3:] * [[1e4], [1e4], [1e4], [1]]], 2)
        )
    with pytest.raises(InputError, match=r"clocks!"):
        from_robot_poses(C, np.roll(F, 5, axis=0), X)


ENDS = np.array([[0.05, 0.0, 0.01], [-0.05, 0.02, 0.03]])
LENGTH = float(np.linalg.norm(ENDS[1] - ENDS[0]))


def stated(case: Model, std: float = 0.0, metres: float = LENGTH) -> Distance:
    """A length between two world points, clicked in three pictures each."""
    return Distance(
        (case.clicks(ENDS[0], [0, 6, 12], std), case.clicks(ENDS[1], [2, 8, 15], std)), metres
    )


def test_a_stated_distance_gives_the_scale() -> None:
    """Exact with exact clicks; over 40 draws of 0.5 px the errors are as large as they say."""
    case = model()
    frame = from_distance([stated(case)], case.T_model_camera, [CAMERA] * 20)
    assert frame.scale == pytest.approx(case.scale, rel=1e-8)
    errors = []
    for seed in range(40):
        case = model(seed)
        frame = from_distance([stated(case, 0.5)], case.T_model_camera, [CAMERA] * 20)
        errors.append(np.log(frame.scale / case.scale) / noise_std(frame))
        assert frame.scale_std < 5e-3
    assert 0.7 < np.sqrt(np.mean(np.square(errors))) < 1.4


def test_several_distances_combine_and_must_agree() -> None:
    """Two are surer than one; one in millimetres is named with its number."""
    case = model()
    poses, lenses = case.T_model_camera, [CAMERA] * 20
    one, two = stated(case, 0.5), stated(case, 0.5)
    both = from_distance([one, two], poses, lenses)
    assert both.scale_std < from_distance([one], poses, lenses).scale_std
    with pytest.raises(InputError, match=r"distance 1 \(103\.9.* m\).*factor 1.*millimetres"):
        from_distance([one, replace(two, metres=1e3 * LENGTH)], poses, lenses)
    loose = replace(one, metres_std=0.01 * LENGTH)
    assert from_distance([loose], poses, lenses).scale_std > 0.01


def test_clicks_that_say_nothing_are_refused() -> None:
    """One picture, neighbours, another point, outside, not registered, no length."""
    case = model()
    poses, lenses = case.T_model_camera, [CAMERA] * 20
    good = stated(case)

    def refused(words: str, first: Clicks | None = None, metres: float = LENGTH) -> None:
        with pytest.raises(InputError, match=words):
            from_distance([Distance((first or good.ends[0], good.ends[1]), metres)], poses, lenses)

    refused("clicked in 1 pictures", case.clicks(ENDS[0], [4, 4]))
    off = case.clicks(ENDS[0], [0, 6, 12])
    refused(r"miss each other by \d+", replace(off, pixels=off.pixels + [[0, 0], [60, 0], [0, 60]]))
    far = Distance((replace(off, pixels=off.pixels * [[1], [1.1], [1]]), good.ends[1]), LENGTH)
    words = r"scan\.yaml: distance 0 .* in pictures \[100, 106, 112\]"
    with pytest.raises(InputError, match=words):
        from_distance([far], poses, lenses, numbers=range(100, 120), where="scan.yaml")
    refused("outside picture 6", replace(off, pixels=off.pixels + [[0, 0], [0, 4000], [0, 0]]))
    refused("picture 99 is not registered", replace(off, pictures=np.array([0, 6, 99])))
    refused("above 0", metres=-1.0)
    refused("above 0", metres=float("nan"))
    refused("same point", good.ends[1])
    with pytest.raises(InputError, match="none is given"):
        from_distance([], poses, lenses)
    near = model(count=1000)
    one = near.clicks(ENDS[0], [0, 1])
    near.T_world_camera[1] = near.T_world_camera[0] @ se3.exp(np.array([0.001, 0, 0, 0, 0, 0]))
    one = near.clicks(ENDS[0], [0, 1])
    with pytest.raises(InputError, match=r"differ by 0\.\d deg"):
        from_distance([Distance((one, one), 0.1)], near.T_model_camera, [CAMERA] * 1000)


def depth_case(noise: float = 0.0) -> tuple[Model, np.ndarray, dict[int, np.ndarray]]:
    """Points on the plane z = 0 and its depth pictures at a quarter of the size."""
    case = model()
    points = np.column_stack([case.rng.uniform(-0.08, 0.08, (200, 2)), np.zeros(200)])
    maps = {}
    v, u = np.indices((120, 160), dtype=np.float64)
    pixels = np.stack([(u + 0.5) * 4 - 0.5, (v + 0.5) * 4 - 0.5], -1).reshape(-1, 2)
    rays = np.column_stack([CAMERA.normalize(pixels), np.ones(len(pixels))])
    for i, T in enumerate(case.T_world_camera):
        depth = (-T[2, 3] / (rays @ T[2, :3])).reshape(120, 160)
        maps[i] = depth * (1 + noise * case.rng.normal()) + 1e-3 * case.rng.normal(size=depth.shape)
        maps[i][depth < 0] = np.nan
    return case, points, maps


def test_depth_gives_the_scale() -> None:
    """With 1 mm of noise and 1 % of picture-wise error: 0.5 %, within its own bounds."""
    case, points, maps = depth_case(0.01)
    maps[3][:] = 0
    shown = {i: m for i, m in maps.items() if i != 4}
    frame = from_depth(shown.get, case.to_model(points), case.T_model_camera, [CAMERA] * 20)
    assert frame.scale == pytest.approx(case.scale, rel=1e-2)
    assert SENSOR_STD < frame.scale_std < 1.5e-2
    exact, points, maps = depth_case()
    frame = from_depth(maps.get, exact.to_model(points), exact.T_model_camera, [CAMERA] * 20)
    assert frame.scale == pytest.approx(exact.scale, rel=1e-3)
    hidden = np.vstack([points, points - [0, 0, 0.1]])
    seen = (np.repeat(np.arange(20), 200), np.tile(np.arange(200), 20))
    same = from_depth(maps.get, exact.to_model(hidden), exact.T_model_camera, [CAMERA] * 20, seen)
    assert same.scale == frame.scale


def test_depth_in_millimetres_is_refused_with_both_numbers() -> None:
    """Symptom of a forgotten division by 1000; also one too many, none, nonsense."""
    case, points, maps = depth_case()
    given = (case.to_model(points), case.T_model_camera, [CAMERA] * 20)
    with pytest.raises(InputError, match=r"median depth is \d\d\d\.\d m.*would be 0\.\d* m"):
        from_depth(lambda i: maps[i] * 1e3, *given)
    with pytest.raises(InputError, match="divided by 1000 twice"):
        from_depth(lambda i: maps[i] / 1e3, *given)
    with pytest.raises(InputError, match="0 of 20 registered pictures"):
        from_depth(lambda i: None, *given)
    with pytest.raises(InputError, match="scatter"):
        from_depth(lambda i: maps[i] * (1 + 0.2 * (i % 5)), *given)


def test_a_known_length_on_real_pictures() -> None:
    """RealSense pictures with poses by ViSP: printed tags of 95.5 mm give the scale to 1 %.

    The depth pictures agree within their sensor's error.
    """
    folder = realdata.folder("rbt") / "sequence"
    poses = np.linalg.inv(json.loads((folder / "apriltag_data.json").read_text())["grid"])
    lens = json.loads((folder / "cam.json").read_text())
    camera = Camera(np.array([lens[k] for k in ("px", "py", "u0", "v0")]), np.zeros(5), 640, 480)
    any_tag = Board(
        tags=tuple(
            Tag(id=i, size=0.03, centre=(0.1 * (i % 25), 0.1 * (i // 25))) for i in range(587)
        )
    )
    seen: dict[int, list[tuple[int, np.ndarray]]] = {}
    pictures = range(0, 99, 10)
    for i in pictures:
        grey = np.asarray(
            cv2.imread(str(folder / f"color_image_{i:04d}.jpg"), cv2.IMREAD_GRAYSCALE), np.uint8
        )
        found = detect_tags(grey, any_tag)
        for tag, quad in zip(found.ids.tolist(), found.corners, strict=True):
            seen.setdefault(tag, []).append((i, quad))
    distances, points, rows = [], [], []
    for tag in sorted(seen, key=lambda t: (-len(seen[t]), t))[:6]:
        numbers = np.array([i for i, _ in seen[tag]])
        corners = [Clicks(numbers, np.array([q[k] for _, q in seen[tag]])) for k in range(4)]
        distances += [
            Distance((corners[0], corners[2]), 0.0955 * 2**0.5),
            Distance((corners[1], corners[3]), 0.0955 * 2**0.5),
        ]
        for corner in corners:
            rays = [
                Sighting(p, camera, poses[i])
                for i, p in zip(corner.pictures, corner.pixels, strict=True)
            ]
            point = triangulate(rays, 0.5)
            assert point is not None
            rows += [(i, len(points)) for i in numbers]
            points.append(point.point)
    frame = from_distance(distances, poses, [camera] * 99)
    assert frame.scale == pytest.approx(1.0, rel=0.01)

    def depth(i: int) -> np.ndarray | None:
        path = str(folder / f"depth_image_{i:04d}.png")
        return np.asarray(cv2.imread(path, cv2.IMREAD_UNCHANGED), float) * 1e-3

    by_depth = from_depth(depth, np.array(points), poses, [camera] * 99, tuple(np.array(rows).T))
    assert by_depth.scale == pytest.approx(1.0, rel=3 * SENSOR_STD)
    assert reconcile([frame, by_depth]).source == "distance"


def test_sources_that_contradict_each_other_are_both_named() -> None:
    """Within three joint standard deviations and 1 %: the surest; beyond: both numbers."""
    board = MetricFrame(2.0, 0.001, np.eye(4), "board", ("A.",))
    depth = MetricFrame(2.03, 0.01, np.eye(4), "depth", ("B.",))
    best = reconcile([depth, board])
    assert (best.source, best.scale) == ("board", 2.0)
    assert "depth gives +1.50 %" in best.notes[1]
    with pytest.raises(InputError, match=r"board says 2 m.*depth says 2\.2 m.*factor 1\.1"):
        reconcile([board, replace(depth, scale=2.2)])
    with pytest.raises(InputError, match="millimetres"):
        reconcile([board, replace(depth, scale=2030.0)])
    with pytest.raises(InputError, match="no source"):
        reconcile([])


@pytest.mark.parametrize(
    ("size", "distance", "words"),
    [
        ([120.0, 80, 60], 400.0, r"object is 120 m.*0\.12 m"),
        ([1e-4, 1e-4, 8e-5], 0.0004, r"object is 0\.0001 m.*0\.1 m"),
        ([0.1, 0.1, 0.1], 300.0, r"distance.*300 m.*0\.3 m"),
        ([float("nan")] * 3, 0.3, "object is nan"),
    ],
)
def test_impossible_sizes_are_refused(size: list[float], distance: float, words: str) -> None:
    """The number, and what it would be in the other unit."""
    with pytest.raises(InputError, match=words):
        check_units(np.array(size), distance, "scan")
    check_units(np.array([0.1, 0.05, 0.2]), 0.4, "scan")
