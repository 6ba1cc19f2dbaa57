"""The lens model, its derivatives, and undistortion."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.capture.crop import crop_windows
from twinloop.capture.projection import Camera, project_with_jacobian, undistorter
from twinloop.geometry import camera as pinhole
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at

LENS = Camera(
    np.array([310.0, 315.0, 165.0, 117.0]), np.array([0.09, -0.14, 0.001, -0.002, 0.03]), 320, 240
)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_derivatives_match_finite_differences(seed: int) -> None:
    """Analytic derivatives by point and lens agree with central differences."""
    rng = np.random.default_rng(seed)
    points = np.column_stack([rng.uniform(-0.3, 0.3, (4, 2)), rng.uniform(0.6, 1.5, 4)])
    _, by_point, by_lens = project_with_jacobian(LENS, points)
    h = 1e-6
    for axis in range(3):
        step = np.zeros(3)
        step[axis] = h
        numeric = (LENS.project(points + step) - LENS.project(points - step)) / (2 * h)
        np.testing.assert_allclose(by_point[:, :, axis], numeric, atol=1e-4)
    for k in range(9):
        step = np.zeros(9)
        step[k] = h
        numeric = (LENS.moved(step).project(points) - LENS.moved(-step).project(points)) / (2 * h)
        np.testing.assert_allclose(by_lens[:, :, k], numeric, atol=1e-4)


def test_lens_agrees_with_opencv() -> None:
    """The same lens in OpenCV gives the same pixels, and normalising inverts projecting."""
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-0.4, 0.4, (50, 2)), np.ones(50)])
    expected, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), LENS.matrix, LENS.distortion)
    pixels = LENS.project(points)
    np.testing.assert_allclose(pixels, np.asarray(expected).reshape(-1, 2), atol=1e-9)
    np.testing.assert_allclose(LENS.normalize(pixels), points[:, :2], atol=1e-7)


def test_scaled_lens_keeps_areas() -> None:
    """The corner of the image area, not the centre of the first pixel, stays in place."""
    half = LENS.scaled(160, 120)
    corner = (LENS.intrinsics[2:] + 0.5) / LENS.intrinsics[:2]
    np.testing.assert_allclose((half.intrinsics[2:] + 0.5) / half.intrinsics[:2], corner)


@pytest.mark.parametrize("k1", [0.15, -0.2])
def test_undistorted_images_have_no_border(k1: float) -> None:
    """Every pixel of the pinhole image comes from inside the source, at most a pixel unused."""
    lens = Camera(LENS.intrinsics, np.array([k1, 0, 0, 0, 0]), 320, 240)
    target = undistorter(lens, 1.0)
    white = target.image(np.full((240, 320), 255, np.uint8))
    assert white.min() == 255
    u, v = target._maps
    assert u.min() > -0.51
    assert v.min() > -0.51
    assert u.max() < 319.51
    assert v.max() < 239.51


def test_undistorted_line_is_straight() -> None:
    """A line in space, drawn through the lens, is a line in the pinhole image, where predicted."""
    image = np.zeros((240, 320), np.uint8)
    points = np.stack([np.linspace(-0.45, 0.45, 4000), np.full(4000, -0.25), np.ones(4000)], axis=1)
    u, v = np.rint(LENS.project(points)).astype(int).T
    ok = (u >= 0) & (u < 320) & (v >= 0) & (v < 240)
    image[v[ok], u[ok]] = 255
    target = undistorter(LENS, 1.0)
    found = target.image(image)
    rows = np.arange(240)[:, None]
    columns = np.flatnonzero(found.sum(axis=0) > 100)
    centre = (found * rows).sum(axis=0)[columns] / found.sum(axis=0)[columns]
    expected = pinhole.project(points[:1], target.intrinsics)[0, 1]
    assert np.abs(centre - expected).max() < 0.75


def test_windows_hold_the_object_and_shift_the_principal_point() -> None:
    """Cropped pixels are those of the whole picture, and the box lies inside each window."""
    poses = np.stack(
        [look_at((0.5 * np.cos(a), 0.5 * np.sin(a), 0.4), (0.03, 0, 0)) for a in range(6)]
    )
    T = se3.inverse(poses)
    box = (np.array([-0.04, -0.03, 0.0]), np.array([0.04, 0.03, 0.08]))
    lenses, windows = crop_windows([LENS] * len(T), box, T, 64, 0.2)
    lens = lenses[0]
    assert windows[:, 2:].max() <= 64
    assert len(np.unique(windows[:, 2:], axis=0)) == 1
    corners = np.array(np.meshgrid(*np.stack(box, axis=1), indexing="ij")).reshape(3, -1).T
    picture = np.random.default_rng(0).integers(0, 255, (240, 320, 3)).astype(np.uint8)
    whole = lens.image(picture)
    for pose, (x, y, w, h) in zip(T, windows, strict=True):
        k = lens.intrinsics - [0, 0, x, y]
        pixels = pinhole.project(se3.apply(pose, corners), k)
        assert (pixels > 0).all()
        assert (pixels < [w - 1, h - 1]).all()
        part = lens.image(picture, (int(x), int(y), int(w), int(h)))
        np.testing.assert_array_equal(part, whole[y : y + h, x : x + w])
