"""Moving splats: colours by direction turn along, so that a camera that moves too sees the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.geometry.camera import look_at
from twinloop.splat import harmonics
from twinloop.splat.cameras import Camera
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.render import render
from twinloop.splat.surfels import Surfels
from twinloop.splat.transform import transformed

NAMES = ("means", "quaternions", "scales", "opacities", "sh")


def some(degree: int = 3, count: int = 150) -> Gaussians:
    """A cloud of Gaussians, 10 cm wide, whose colours depend on direction."""
    random = np.random.default_rng(3)
    q = quaternion.normalize(random.normal(size=(count, 4)))
    return Gaussians(
        random.normal(size=(count, 3)).astype(np.float32) * np.float32(0.05),
        q.astype(np.float32),
        np.exp(random.uniform(-6.5, -4.5, (count, 3))).astype(np.float32),
        random.uniform(0.1, 0.95, count).astype(np.float32),
        random.normal(size=(count, (degree + 1) ** 2, 3)).astype(np.float32) * np.float32(0.3),
    )


def pose(seed: int) -> np.ndarray:
    """A random rigid transform."""
    random = np.random.default_rng(seed)
    return se3.exp(random.normal(size=6) * [0.2, 0.2, 0.2, 1.5, 1.5, 1.5])


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_a_camera_that_moves_along_sees_the_same(degree: int, scale: float) -> None:
    """The moved splats from the moved camera give the same picture to 1e-5."""
    splats, T = some(degree), pose(degree)
    T_world_camera = look_at([0.3, -0.2, 0.15], [0, 0, 0])
    k = np.array([110.0, 110.0, 39.5, 29.5])
    before = render(splats, Camera(k, 80, 60, T_world_camera), layers=())
    far = T_world_camera.copy()
    far[:3, 3] *= scale
    after = render(transformed(splats, T, scale), Camera(k, 80, 60, T @ far), layers=())
    assert before.alpha.max() > 0.9
    np.testing.assert_allclose(after.rgb, before.rgb, atol=1e-5)
    np.testing.assert_allclose(after.alpha, before.alpha, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 3))
def test_the_basis_turns_exactly(seed: int, degree: int) -> None:
    """c(R^T d) equals the turned coefficients at d, for any direction; and turns compose."""
    random = np.random.default_rng(seed)
    R = quaternion.to_matrix(quaternion.normalize(random.normal(size=4)))
    S = quaternion.to_matrix(quaternion.normalize(random.normal(size=4)))
    directions = random.normal(size=(7, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    matrices = harmonics.rotation_matrices(R, degree)
    for k, matrix in enumerate(matrices):
        band = slice(k * k, (k + 1) ** 2)
        values = harmonics.basis(directions)[:, band]
        np.testing.assert_allclose(
            values @ matrix, harmonics.basis(directions @ R)[:, band], atol=1e-13
        )
        # The basis is orthonormal, so a rotation of it is orthogonal.
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(2 * k + 1), atol=1e-13)
    both = harmonics.rotation_matrices(S @ R, degree)
    for one, two, together in zip(
        matrices, harmonics.rotation_matrices(S, degree), both, strict=True
    ):
        np.testing.assert_allclose(two @ one, together, atol=1e-13)


def test_the_basis_is_orthonormal() -> None:
    """Over the sphere: a closed form that pins every constant (degree 3 needs few directions)."""
    z, weight = np.polynomial.legendre.leggauss(8)
    turn = 2 * np.pi * np.arange(16) / 16
    r = np.sqrt(1 - z * z)[:, None]
    directions = np.stack(
        [r * np.cos(turn), r * np.sin(turn), np.broadcast_to(z[:, None], (8, 16))], axis=-1
    )
    values = harmonics.basis(directions).reshape(-1, 16)
    weights = np.repeat(weight, 16) * 2 * np.pi / 16
    np.testing.assert_allclose(values.T * weights @ values, np.eye(16), atol=1e-13)


def same(a: Gaussians | Surfels, b: Gaussians | Surfels, tolerance: float) -> None:
    """The same splats; quaternions up to their sign."""
    for name in NAMES:
        x, y = getattr(a, name), getattr(b, name)
        if name == "quaternions":
            y = y * np.sign((x * y).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("flat", [False, True])
def test_back_and_in_two_steps(flat: bool) -> None:
    """The inverse brings splats back; two transforms do as their product; surfels too."""
    splats: Gaussians | Surfels = some()
    if flat:
        splats = Surfels(
            splats.means, splats.quaternions, splats.scales[:, :2], splats.opacities, splats.sh
        )
    A, B = pose(8), pose(9)
    there = transformed(splats, A, 2.0)
    back = transformed(transformed(there, se3.inverse(A)), np.eye(4), 0.5)
    same(back, splats, 2e-6)
    same(transformed(transformed(splats, A), B), transformed(splats, B @ A), 2e-6)
    assert type(there) is type(splats)


def test_an_identity_changes_no_bit() -> None:
    """Not even the last one, and opacities never change."""
    splats = some()
    still = transformed(splats, np.eye(4))
    for name in NAMES:
        np.testing.assert_array_equal(getattr(still, name), getattr(splats, name))
    assert transformed(splats, pose(2)).opacities is splats.opacities


@pytest.mark.parametrize(
    ("T", "scale", "message"),
    [
        (np.diag([1, 1, -1, 1.0]), 1.0, "determinant -1"),
        (np.diag([2, 2, 2, 1.0]), 1.0, "Take a scale out of it"),
        (np.full((4, 4), np.nan), 1.0, "4x4 finite numbers"),
        (np.eye(3), 1.0, "4x4"),
        (np.eye(4), 0.0, "expected a positive number"),
        (np.eye(4), 1e300, "scales inf to inf m"),
        (np.eye(4), 1e-300, "scales 0 to 0 m"),
        (se3.from_position_quaternion([1e39, 0, 0], [1, 0, 0, 0]), 1.0, "farther away than"),
        (np.eye(4), np.nan, "expected a positive number"),
        (np.eye(4) + np.eye(4)[[3, 0, 1, 2]] * 0.5, 1.0, "no rotation|last row"),
    ],
)
def test_what_is_no_rigid_transform(T: np.ndarray, scale: float, message: str) -> None:
    """Mirrors, shears, scales inside the matrix and NaN are refused."""
    with pytest.raises(InputError, match=message):
        transformed(some(1, 4), T, scale)
