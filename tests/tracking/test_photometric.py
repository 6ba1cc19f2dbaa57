"""The twin's picture against the live image: drawn boxes whose pose is known exactly."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from tests.tracking.box_scene import BoxScene, look_at, pose, rotation
from twinloop.tracking.appearance import Shape
from twinloop.tracking.photometric import (
    Patches,
    PhotometricTerm,
    Picture,
    inner_pixels,
    matching_blurs,
    picture_term,
    sample,
)
from twinloop.tracking.solver import WorldCamera, perturb, project, solve_pose

EYE = look_at(np.array([0.1, -0.3, 0.25]), np.array([0.0, 0.0, 0.03]))
CAMERA = WorldCamera(np.array([500.0, 500.0, 159.5, 119.5]), np.linalg.inv(EYE), 320, 240)
TRUE = pose(rotation("z", 0.5) @ rotation("x", 0.1), np.array([0.01, 0.0, 0.05]))
OFF = np.array([0.0003, -0.0002, 0.0002, 0.002, -0.001, 0.003])
"""Moves the box by half a pixel or so."""
SCENE = BoxScene(noise=0.0)
VERTICES, FACES, _ = SCENE.mesh()
SHAPE = Shape(VERTICES, FACES)


def drawn(where: np.ndarray) -> np.ndarray:
    """The scene's grey image with the box under `where`."""
    rgb = SCENE.render(CAMERA.intrinsics, EYE, where, CAMERA.width, CAMERA.height)
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))


def picture(where: np.ndarray) -> Picture:
    """What a perfect twin shows under `where`: the box on black."""
    reference = SHAPE.reference(drawn(where), CAMERA.intrinsics, CAMERA.T_camera_world @ where)
    fx, fy, cx, cy = reference.intrinsics
    z, T = reference.depth, reference.T_camera_object.astype(np.float32)
    rows, columns = np.mgrid[0 : z.shape[0], 0 : z.shape[1]].astype(np.float32)
    p = np.stack([(columns - cx) / fx * z, (rows - cy) / fy * z, z], -1) - T[:3, 3]
    inner = inner_pixels(z, z > 0, float(fx))
    return Picture(reference.image.astype(np.float32), p @ T[:3, :3], inner, (0, 0))


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Largest move of a corner in the image, px."""
    a, b = (project(CAMERA, p, SHAPE.hull)[0] for p in (first, second))
    return float(np.linalg.norm(a - b, axis=1).max())


def typical(where: np.ndarray, points: np.ndarray) -> float:
    """Root mean square, px, by which a pose carries object points off their true places."""
    p = points.astype(np.float64)
    off = project(CAMERA, where, p)[0] - project(CAMERA, TRUE, p)[0]
    return float(np.sqrt((off**2).sum(1).mean()))


@pytest.fixture(scope="module")
def start() -> np.ndarray:
    """The pose that the tracker would hand over."""
    return perturb(TRUE, OFF)


@pytest.fixture(scope="module")
def made(start: np.ndarray) -> Picture:
    """The picture there."""
    return picture(start)


@pytest.fixture(scope="module")
def live() -> np.ndarray:
    """The live image."""
    return drawn(TRUE)


def solved(live: np.ndarray, start: np.ndarray, made: Picture, **options: object) -> np.ndarray:
    """The pose from the pictures alone."""
    term = picture_term(live, CAMERA, start, made, **options)  # type: ignore[arg-type]
    assert term is not None
    return solve_pose(start, [term], 8).pose


def test_part_of_a_pixel_is_found(live: np.ndarray, start: np.ndarray, made: Picture) -> None:
    """Half a pixel off is brought back, from the pictures alone."""
    assert 0.3 < distance(start, TRUE) < 1.5
    found = solved(live, start, made)
    assert distance(found, TRUE) < 0.05
    # Where the pixels are, it is closer still than at the far corners.
    assert typical(found, made.points[made.inner]) < 0.02


@pytest.mark.parametrize(
    ("gain", "offset", "blur"), [(0.5, 20, 0.0), (1.15, -10, 0.0), (1, 0, 1.2)]
)
def test_light_and_blur_do_not_move_it(
    live: np.ndarray, start: np.ndarray, made: Picture, gain: float, offset: float, blur: float
) -> None:
    """Neither exposure nor a shutter's blur looks like a move."""
    other = live.astype(np.float32) * gain + offset
    # Brighter on the left than on the right.
    other = other * np.linspace(1.0, 0.9, other.shape[1], dtype=np.float32)
    if blur:
        other = cv2.GaussianBlur(other, (0, 0), blur)
    other = np.clip(np.rint(other), 0, 255).astype(np.uint8)
    assert distance(solved(other, start, made), solved(live, start, made)) < 0.05


def test_noise_averages_out(live: np.ndarray, start: np.ndarray, made: Picture) -> None:
    """Thousands of pixels leave little of four grey levels of noise."""
    rng = np.random.default_rng(0)
    noisy = np.clip(live + rng.normal(0, 4, live.shape), 0, 255).astype(np.uint8)
    assert distance(solved(noisy, start, made), TRUE) < 0.1


def test_what_hides_half_does_not_move_it(
    live: np.ndarray, start: np.ndarray, made: Picture
) -> None:
    """Half of the object is enough, whatever moves before the other half."""
    x0, _ = made.corner
    h, w = made.grey.shape
    hidden = live.copy()
    half = x0 + w // 2
    # Something with a texture of its own, which moves otherwise.
    hidden[:, half:] = np.roll(live, (3, -4), (0, 1))[:, half:]
    known = np.ones((h, w), np.bool_)
    known[:, half - x0 :] = False
    found = solved(hidden, start, made, known=known)
    assert typical(found, made.points[made.inner & known]) < 0.05
    # The other body itself moves nothing: the half alone gives the same pose without it.
    assert distance(found, solved(live, start, made, known=known)) < 0.02


def test_jacobian_is_the_difference_of_residuals(start: np.ndarray, made: Picture) -> None:
    """Finite differences of the residuals agree with the picture's gradients."""
    # With the picture itself as live image the linearisation is exact.
    image = np.zeros((CAMERA.height, CAMERA.width), np.uint8)
    x0, y0 = made.corner
    h, w = made.grey.shape
    image[y0 : y0 + h, x0 : x0 + w] = np.rint(made.grey)
    term = picture_term(image, CAMERA, start, made, match=False)
    assert isinstance(term, PhotometricTerm)
    assert np.abs(term.residual(start)).max() < 1e-5
    for k, step in enumerate([1e-4] * 3 + [1e-3] * 3):
        d = np.zeros(6)
        d[k] = step
        change = (term.residual(perturb(start, -d)) - term.residual(perturb(start, d))) / (2 * step)
        # Linear interpolation between pixels is smoother than the gradient by Sobel's filter.
        slope = float((change @ term.jacobian[:, k]) / (term.jacobian[:, k] ** 2).sum())
        assert abs(slope - 1) < 0.05
        assert np.corrcoef(change, term.jacobian[:, k])[0, 1] > 0.99


def test_information_is_that_of_as_many_points(
    live: np.ndarray, start: np.ndarray, made: Picture
) -> None:
    """All pixels together tell what the stated number of points would."""

    def traces(correlated: float, sigma: float) -> float:
        term = picture_term(live, CAMERA, start, made, correlated=correlated, sigma=sigma)
        assert term is not None
        system = term.system(TRUE, 0)
        assert system is not None
        return float(np.trace(system.information[:3, :3]))

    one = traces(25.0, 0.8)
    assert traces(50.0, 0.8) == pytest.approx(2 * one)
    assert traces(25.0, 1.6) == pytest.approx(one / 4)
    # A point tells (f / z)^2 / sigma^2 of each of the two directions across the line of sight.
    z = float((CAMERA.T_camera_world @ TRUE)[2, 3])
    assert one == pytest.approx(2 * 25 * (500 / z / 0.8) ** 2, rel=0.2)


def test_outline_steps_and_slants_are_left_out() -> None:
    """Pixels that may show two surfaces do not take part."""
    depth = np.full((40, 60), 0.5, np.float32)
    depth[:, 30:] = 0.55
    solid = np.ones((40, 60), np.bool_)
    solid[:, :8] = False
    inner = inner_pixels(depth, solid, 500.0)
    assert not inner[:, :11].any()
    assert not inner[:, 27:33].any()
    assert inner[10:30, 12:25].all()
    assert inner[10:30, 35:55].all()
    for slope, kept in ((3.0, True), (5.0, False)):
        # z' = slope z / f: the plane's tangent to the line of sight is `slope`.
        plane = 0.5 * np.exp(slope * np.arange(60, dtype=np.float32) / 500)
        slanted = np.repeat(plane[None], 40, 0).astype(np.float32)
        assert inner_pixels(slanted, solid, 500.0)[10:30, 20:50].all() == kept


def test_normalised_image_knows_no_exposure() -> None:
    """Gain, offset and what lies outside change nothing."""
    rng = np.random.default_rng(1)
    image = cv2.GaussianBlur(rng.uniform(0, 255, (60, 70)).astype(np.float32), (0, 0), 1.5)
    inner = np.zeros(image.shape, np.bool_)
    inner[8:50, 10:60] = True
    patches = Patches.of(inner)
    one, other = patches.normalised(image), patches.normalised(0.4 * image + 30)
    assert np.abs(one - other)[inner].max() < 1e-3
    # What is outside the pixels that count plays no part.
    strange = image.copy()
    strange[~inner] = 1000
    assert np.allclose(patches.normalised(strange)[inner], one[inner], atol=1e-4)


def test_the_sharper_image_is_blurred() -> None:
    """The difference in sharpness is found, aligned or not."""
    rng = np.random.default_rng(2)
    image = cv2.GaussianBlur(rng.uniform(0, 255, (80, 80)).astype(np.float32), (0, 0), 1.0)
    soft = cv2.GaussianBlur(image, (0, 0), 0.9)
    patches = Patches.of(np.ones(image.shape, np.bool_))
    assert matching_blurs(image, soft, patches) == (0.9, 0.0)
    assert matching_blurs(soft, image, patches) == (0.0, 0.9)
    assert 0.7 <= matching_blurs(image, np.roll(soft, 1, 1), patches)[0] <= 1.2
    assert matching_blurs(image, image, patches) == (0.0, 0.0)


def test_positions_finer_than_the_filter_are_told() -> None:
    """OpenCV's table of 1/32 px loses nothing."""
    ramp = np.repeat(np.arange(20, dtype=np.float32)[None], 10, 0)
    x = np.linspace(3.0, 6.0, 50)
    values, dx, dy = sample(ramp, x, np.full(50, 4.3))
    assert np.allclose(values + dx, x, atol=1e-5)
    assert max(np.abs(dx).max(), np.abs(dy).max()) <= 1 / 64 + 1e-9
