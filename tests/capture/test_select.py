"""Which frames are kept."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
from scipy.stats import spearmanr

from tests.realdata import folder
from twinloop.capture.photos import Photos
from twinloop.capture.select import (
    best_in_bins,
    coverage,
    difference,
    relative_sharpness,
    sharpness,
    shrink,
    spread_viewpoints,
)


def noise_picture(seed: int = 0) -> np.ndarray:
    """A picture with detail."""
    return np.random.default_rng(seed).integers(0, 255, (120, 160)).astype(np.uint8)


def test_blur_lowers_sharpness() -> None:
    """The more blur, the lower."""
    image = noise_picture()
    values = [sharpness(cv2.GaussianBlur(image, (0, 0), s)) for s in (0.5, 1.0, 2.0, 4.0)]
    assert values == sorted(values, reverse=True)


def test_relative_sharpness_ignores_slow_change() -> None:
    """A scene that grows ten times richer stays near 1; one blurred frame stands out."""
    values = np.geomspace(1, 10, 100)
    values[50] *= 0.3
    relative = relative_sharpness(values)
    assert np.abs(np.delete(relative, 50)[15:-15] - 1).max() < 0.1
    assert relative[50] < 0.4


def test_repeated_frame_is_told_from_noise() -> None:
    """The same picture differs by 0, one with new noise by more than the bound of 0.3."""
    image = noise_picture()
    assert difference(image, image) == 0
    rng = np.random.default_rng(1)
    other = np.clip(image + rng.normal(0, 1, image.shape), 0, 255).astype(np.uint8)
    assert difference(image, other) > 0.3


def test_shrink_averages() -> None:
    """Longer side as asked, mean kept, never enlarged."""
    image = noise_picture()
    small = shrink(image, 40)
    assert small.shape == (30, 40)
    assert abs(float(small.mean()) - float(image.mean())) < 1
    assert shrink(image, 500) is image


def test_best_of_each_bin() -> None:
    """One per bin, the best usable; a bin without any gives none."""
    quality = np.array([1, 5, 2, 9, 3, 4], dtype=float)
    usable = np.array([True, True, False, False, True, True])
    assert best_in_bins(quality, usable, 3).tolist() == [1, 5]


def test_viewpoints_are_spread() -> None:
    """From 90 cameras of which 60 stand close together, the 12 kept cover all azimuth sectors."""
    azimuth = np.r_[np.linspace(0, 0.3, 60), np.linspace(0.3, 2 * np.pi, 30)]
    positions = np.stack([np.cos(azimuth), np.sin(azimuth), np.full(90, 0.6)], axis=1)
    keep = spread_viewpoints(positions, np.zeros(3), np.ones(90), 12)
    assert len(keep) == 12
    assert (np.diff(keep) > 0).all()
    assert (coverage(positions[keep], np.zeros(3), 6) > 0).all()
    assert spread_viewpoints(positions[:3], np.zeros(3), np.ones(3), 12).tolist() == [0, 1, 2]


def test_sharpness_ranks_real_frames_as_another_program_did() -> None:
    """The 50 fox frames come with the sharpness that their own project measured."""
    fox = folder("fox")
    frames = json.loads((fox / "transforms.json").read_text())["frames"]
    theirs = {Path(f["file_path"]).name: f["sharpness"] for f in frames}
    photos = Photos(fox / "images")
    ours = [sharpness(p.image) for p in photos.read(pixels="grey")]
    assert len(ours) == 50
    assert spearmanr(ours, [theirs[name] for name in photos.names])[0] >= 0.99
