"""A camera that stands, and one that was knocked, under noise, light, blur and a hand."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from tests.tracking.box_scene import BoxScene, look_at
from twinloop.errors import InputError
from twinloop.tracking.camera_knock import CameraWatch

Array = np.ndarray
W, H = 320, 240
EYE = look_at(np.array([0.08, -0.42, 0.30]), np.array([0, 0, 0.03]))
K = np.array([300.0, 300.0, (W - 1) / 2, (H - 1) / 2])


@pytest.fixture(scope="module")
def ground() -> Array:
    """The tagged table without noise, grey, as float."""
    scene = BoxScene(noise=0.0)
    rgb = scene.render(K, EYE, None, W, H, None, np.zeros(5))
    return cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float64)


def shot(
    ground: Array, rng: np.random.Generator, u: float = 0.0, v: float = 0.0, turn: float = 0.0
) -> Array:
    """A noisy JPEG of the scene shifted by (u, v) px and turned by `turn` rad about its middle."""
    c, s = np.cos(turn), np.sin(turn)
    x, y = (W - 1) / 2, (H - 1) / 2
    M = np.array([[c, -s, x - c * x + s * y + u], [s, c, y - s * x - c * y + v]])
    moved = cv2.warpAffine(ground, M, (W, H), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    return developed(moved, rng)


def developed(picture: Array, rng: np.random.Generator) -> Array:
    """Noise and JPEG."""
    noisy = np.clip(picture + rng.normal(0, 2.0, picture.shape), 0, 255).astype(np.uint8)
    return cv2.imdecode(cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, 85])[1], 0)


def test_jitter_is_no_knock_and_two_pixels_are(ground: Array) -> None:
    """Noise, JPEG and half a pixel do not fire; 2 px and 0.5 deg always do, with the right size."""
    rng = np.random.default_rng(1)
    watch = CameraWatch(shot(ground, rng))
    for _ in range(10):
        still = watch.check(shot(ground, rng))
        assert still.sure
        assert not still.moved
        assert still.largest < 0.3
        assert np.abs(still.pixels).max() < 5 * still.std + 0.02
    for angle in np.linspace(0, 2 * np.pi, 8, endpoint=False):
        u, v = np.cos(angle), np.sin(angle)
        assert not watch.check(shot(ground, rng, 0.5 * u, 0.5 * v)).moved
        knocked = watch.check(shot(ground, rng, 2 * u, 2 * v))
        assert knocked.moved
        np.testing.assert_allclose(knocked.pixels, [2 * u, 2 * v], atol=0.2)
    turned = watch.check(shot(ground, rng, turn=0.009))
    assert turned.moved
    assert turned.rotation == pytest.approx(0.009, abs=5e-4)
    assert turned.largest == pytest.approx(0.009 * np.hypot(W, H) / 2, abs=0.2)


@pytest.mark.parametrize("far", [9.0, 30.0])
def test_far_knock_is_measured_and_followed(ground: Array, far: float) -> None:
    """A hard knock is measured too, in frame after frame; put back, it stands as before."""
    rng = np.random.default_rng(2)
    watch = CameraWatch(shot(ground, rng))
    for _ in range(3):
        knocked = watch.check(shot(ground, rng, far, -0.4 * far))
        assert knocked.moved
        np.testing.assert_allclose(knocked.pixels, [far, -0.4 * far], atol=0.2)
    assert not watch.check(shot(ground, rng)).moved


def test_light_blur_and_a_hand_are_no_knock(ground: Array) -> None:
    """Exposure is measured, blur and a textured hand over two thirds of the view do not fire."""
    rng = np.random.default_rng(3)
    watch = CameraWatch(developed(ground, rng))
    for gain in (0.6, 1.05):
        bright = watch.check(developed(gain * ground + 5, rng))
        assert bright.gain == pytest.approx(gain, rel=0.04)
        assert bright.sure
        assert not bright.moved
    blurred = watch.check(developed(cv2.GaussianBlur(ground, (0, 0), 1.2), rng))
    assert not blurred.moved
    hand = cv2.resize(rng.uniform(60, 200, (40, 30)), (W, H), interpolation=cv2.INTER_CUBIC)
    for reach in (60, 120, 200):
        covered = ground.copy()
        covered[:, :reach] = hand[:, :reach]
        assert not watch.check(developed(covered, rng)).moved
        # A knock is seen beside the hand, which itself stands still in the picture.
        moved = np.roll(ground, 3, axis=1)
        moved[:, :reach] = hand[:, :reach]
        ignore = np.zeros((H, W), bool)
        ignore[:, :reach] = True
        seen = watch.check(developed(moved, rng), ignore)
        assert seen.moved == seen.sure
        assert seen.sure or reach == 200
        watch.check(developed(ground, rng))
    nothing = watch.check(developed(hand, rng))
    assert not nothing.sure
    assert not nothing.moved


def test_moving_hand_does_not_carry_the_vote(ground: Array) -> None:
    """Patches chosen where a hand rests at first do not say that the camera moved with it."""
    rng = np.random.default_rng(4)
    hand = cv2.resize(rng.uniform(60, 200, (40, 30)), (W, H), interpolation=cv2.INTER_CUBIC)

    def with_hand(left: int) -> Array:
        out = ground.copy()
        out[60:180, left : left + 90] = hand[60:180, :90]
        return developed(out, rng)

    watch = CameraWatch(with_hand(100))
    for left in range(100, 130, 3):
        assert not watch.check(with_hand(left)).moved


def test_repeated_frames_and_excluded_places(ground: Array) -> None:
    """A copy is said to be one, a fresh exposure is not; nothing is watched where not wanted."""
    rng = np.random.default_rng(6)
    exclude = np.zeros((H, W), bool)
    exclude[:, W // 2 :] = True
    watch = CameraWatch(developed(ground, rng), exclude)
    assert (watch.points[:, 0] < W // 2 - 7).all()
    first, second = developed(ground, rng), developed(ground, rng)
    assert [watch.check(i).repeated for i in (first, first, second)] == [False, True, False]
    with pytest.raises(InputError, match="320 x 240"):
        watch.check(first[:100])


def test_bare_background_tells_nothing() -> None:
    """Without marks there is nothing to compare: never sure, never moved."""
    watch = CameraWatch(np.full((H, W), 120, np.uint8))
    seen = watch.check(np.full((H, W), 121, np.uint8))
    assert not seen.sure
    assert not seen.moved
