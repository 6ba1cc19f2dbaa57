"""The robust Gauss-Newton of one pose: derivatives, outliers, covariance, table contact."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tracking.box_scene import look_at, pose, rotation
from twinloop.tracking.priors import (
    Contact,
    PosePrior,
    RestPrior,
    contact_system,
    motion,
    rest_system,
)
from twinloop.tracking.solver import (
    Correspondences,
    PointTerm,
    WorldCamera,
    line_jacobian,
    median,
    perturb,
    point_system,
    project,
    rotation_exp,
    rotation_log,
    solve_pose,
)

EYE = look_at(np.array([0.1, -0.5, 0.3]), np.array([0.0, 0.0, 0.04]))
CAMERA = WorldCamera(np.array([600.0, 605.0, 319.5, 239.5]), np.linalg.inv(EYE), 640, 480)
TRUE = pose(
    rotation("z", 0.4) @ rotation("x", 0.2) @ rotation("y", 0.1), np.array([0.02, 0.01, 0.05])
)
BOX = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * [0.05, 0.03, 0.04]


def error(estimate: np.ndarray) -> np.ndarray:
    """(6,) position (m) and rotation (rad) by which the truth differs from the estimate."""
    turn = rotation_log(TRUE[:3, :3] @ estimate[:3, :3].T)
    return np.concatenate([TRUE[:3, 3] - estimate[:3, 3], turn])


def seen(rng: np.random.Generator, count: int, noise: float) -> Correspondences:
    """Noisy projections of random object points."""
    points = rng.uniform(-0.05, 0.05, (count, 3))
    pixels = project(CAMERA, TRUE, points)[0] + rng.normal(0, noise, (count, 2))
    return Correspondences(points, pixels, np.full(count, max(noise, 0.1)))


def test_jacobians_equal_finite_differences() -> None:
    """Derivatives of projections, contact and resting residuals by central differences."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-0.05, 0.05, (5, 3))
    pixels = np.zeros((5, 2))
    contact = Contact(BOX, 0.0, 0.001, 1e6)
    rest = RestPrior(np.array([0.0, 0.0, 1.0]), 0.04, 0.001, 0.01)
    analytic = (
        point_system(CAMERA, TRUE, points, pixels)[1].reshape(-1, 6),
        contact_system(TRUE, contact)[1],
        rest_system(TRUE, rest)[1],
    )
    h = 1e-6
    for k in range(6):
        step = np.eye(6)[k] * h
        up, down = perturb(TRUE, step), perturb(TRUE, -step)
        pairs = (
            [point_system(CAMERA, p, points, pixels)[0].ravel() for p in (up, down)],
            [contact_system(p, contact)[0] for p in (up, down)],
            [rest_system(p, rest)[0] for p in (up, down)],
        )
        for (high, low), jacobian in zip(pairs, analytic, strict=True):
            # Residuals are measured minus predicted, hence the sign.
            assert (low - high) / (2 * h) == pytest.approx(jacobian[:, k], rel=1e-5, abs=1e-5)


def test_line_jacobian_is_the_points_along_their_normals() -> None:
    """The derivative along a normal is the normal times that of the point."""
    rng = np.random.default_rng(1)
    points = rng.uniform(-0.05, 0.05, (7, 3))
    normals = rng.normal(0, 1, (7, 2))
    both = point_system(CAMERA, TRUE, points, np.zeros((7, 2)))[1]
    expected = np.einsum("nk,nki->ni", normals, both)
    assert line_jacobian(CAMERA, TRUE, points, normals) == pytest.approx(expected, abs=1e-9)


def test_one_rotation_is_as_many() -> None:
    """Single rotations take another way than arrays of them, with the same result; all angles."""
    rng = np.random.default_rng(2)
    axes = rng.normal(0, 1, (200, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    angles = np.concatenate([np.logspace(-14, -1, 100), np.linspace(0.1, np.pi - 1e-6, 100)])
    vectors = axes * angles[:, None]
    matrices = rotation_exp(vectors)
    for vector, matrix in zip(vectors, matrices, strict=True):
        assert rotation_exp(vector) == pytest.approx(matrix, abs=1e-14)
        assert rotation_log(matrix) == pytest.approx(rotation_log(matrix[None])[0], abs=1e-9)
    assert rotation_log(np.eye(3)) == pytest.approx(np.zeros(3))


def test_rotations_stay_rotations() -> None:
    """Rounding does not add up over many steps, and a poor rotation is mended."""
    rng = np.random.default_rng(3)
    moved = TRUE.copy()
    moved[:3, :3] *= 1 + 1e-5
    for _ in range(300):
        moved = perturb(moved, rng.normal(0, 0.1, 6))
    assert moved[:3, :3].T @ moved[:3, :3] == pytest.approx(np.eye(3), abs=1e-14)


@pytest.mark.parametrize("count", [1, 2, 7, 10])
def test_median(count: int) -> None:
    """The same as NumPy's."""
    values = np.random.default_rng(count).normal(0, 1, count)
    assert median(values) == np.median(values)


def test_a_third_of_outliers_does_not_move_the_pose() -> None:
    """From 20 mm and 0.2 rad away, with every third point wrong by tens of px, within 1 mm."""
    rng = np.random.default_rng(1)
    clean = seen(rng, 60, 0.2)
    pixels = clean.pixels.copy()
    pixels[::3] += rng.uniform(20, 60, pixels[::3].shape)
    start = perturb(TRUE, np.array([0.02, -0.01, 0.01, 0.1, -0.1, 0.15]))
    term = PointTerm(CAMERA, Correspondences(clean.points, pixels, clean.sigma))
    solution = solve_pose(start, [term])
    assert np.linalg.norm(error(solution.pose)[:3]) < 0.001
    assert solution.systems[0].used == 40
    assert not (solution.systems[0].weights[::3] > 0.1).any()


def test_covariance_is_honest_for_independent_noise() -> None:
    """Normalised error squared of 120 trials has the mean of a chi square of six freedoms."""
    rng = np.random.default_rng(2)
    values = []
    for _ in range(120):
        solution = solve_pose(TRUE, [PointTerm(CAMERA, seen(rng, 40, 0.5), correlated=1e9)])
        e = error(solution.pose)
        values.append(e @ np.linalg.solve(solution.covariance, e))
    assert 4.0 < np.mean(values) < 9.0


def test_contact_holds_the_height_that_the_camera_sees_badly() -> None:
    """With four points only, the table contact brings the lowest corner to z = 0."""
    rng = np.random.default_rng(3)
    lowest = float((BOX @ TRUE[:3, :3].T + TRUE[:3, 3])[:, 2].min())
    contact = Contact(BOX, lowest, 0.0002, 0.02)
    few = PointTerm(CAMERA, seen(rng, 5, 1.0))
    solution = solve_pose(TRUE, [few, contact])
    found = float((BOX @ solution.pose[:3, :3].T + solution.pose[:3, 3])[:, 2].min())
    assert found == pytest.approx(lowest, abs=0.0006)
    free = solve_pose(TRUE, [few])
    assert solution.covariance[2, 2] < free.covariance[2, 2]


def test_object_in_the_air_is_not_pulled_down() -> None:
    """Far above the table the contact weighs nothing."""
    rng = np.random.default_rng(4)
    contact = Contact(BOX, -0.05, 0.001, 0.006)
    points = PointTerm(CAMERA, seen(rng, 40, 0.2))
    assert solve_pose(TRUE, [points, contact]).pose == pytest.approx(
        solve_pose(TRUE, [points]).pose, abs=1e-12
    )
    tilted = RestPrior(np.array([0.0, 0.0, 1.0]), 0.05, 0.001, 0.01, cutoff=0.08)
    assert tilted.system(TRUE, 0) is None


def test_two_cameras_see_what_one_cannot() -> None:
    """A second camera at a right angle takes away the first one's error along its line of sight."""
    rng = np.random.default_rng(5)
    side = look_at(np.array([0.5, 0.1, 0.3]), np.array([0.0, 0.0, 0.04]))
    other = WorldCamera(CAMERA.intrinsics, np.linalg.inv(side), 640, 480)
    points = rng.uniform(-0.05, 0.05, (40, 3))
    pixels = project(other, TRUE, points)[0] + rng.normal(0, 0.5, (40, 2))
    terms = [
        PointTerm(CAMERA, seen(rng, 40, 0.5)),
        PointTerm(other, Correspondences(points, pixels, np.full(40, 0.5))),
    ]
    alone, both = (solve_pose(TRUE, t).covariance for t in (terms[:1], terms))
    sight = EYE[:3, 2]
    assert sight @ both[:3, :3] @ sight < 0.2 * (sight @ alone[:3, :3] @ sight)
    assert np.abs(error(solve_pose(TRUE, terms).pose)).max() < 0.003


def test_a_prior_alone_is_returned_with_its_covariance() -> None:
    """Without measurements the expected pose comes back, as wide as it was said to be."""
    moved = perturb(TRUE, np.array([0.004, -0.003, 0.002, 0.05, -0.04, 0.03]))
    spread = np.diag([1e-4, 2e-4, 1e-4, 1e-3, 1e-3, 2e-3])
    solution = solve_pose(moved, [PosePrior(TRUE, spread)], 20)
    assert np.abs(motion(TRUE, solution.pose)).max() < 1e-4
    assert np.diag(solution.covariance) == pytest.approx(np.diag(spread), rel=0.01)
    assert not solution.information.any()
