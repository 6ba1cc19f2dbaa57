"""A small object of known Gaussians, seen from a ring of cameras: exact pictures in no time."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from twinloop.geometry import se3
from twinloop.geometry.camera import look_at
from twinloop.splat.gaussians import SH0, Gaussians
from twinloop.splat.quality import drawn
from twinloop.splat.views import Views

RADIUS = 0.05
DISTANCE = 0.25


def ball(count: int = 300, seed: int = 0, radius: float = RADIUS) -> Gaussians:
    """Coloured Gaussians on a sphere around the origin."""
    random = np.random.default_rng(seed)
    i = np.arange(count) + 0.5
    polar, azimuth = np.arccos(1 - 2 * i / count), np.pi * (1 + 5**0.5) * i
    means = radius * np.stack(
        [np.cos(azimuth) * np.sin(polar), np.sin(azimuth) * np.sin(polar), np.cos(polar)], axis=1
    )
    colour = 0.5 + 0.4 * np.sin(means @ random.normal(size=(3, 3)) * 60)
    sh = np.zeros((count, 4, 3))
    sh[:, 0] = (colour - 0.5) / SH0
    scale = 1.2 * radius * np.sqrt(4 * np.pi / count) * 0.6
    return Gaussians(
        means.astype(np.float32),
        np.tile([1.0, 0, 0, 0], (count, 1)).astype(np.float32),
        np.full((count, 3), scale, np.float32),
        np.full(count, 0.9, np.float32),
        sh.astype(np.float32),
    )


def poses(count: int, turn: float = 0.0) -> np.ndarray:
    """Poses T_camera_world (count, 4, 4) on a wavy ring that looks at the origin."""
    out = []
    for i in range(count):
        a, e = 2 * np.pi * i / count + turn, 0.6 * np.sin(3.1 * i + turn)
        eye = DISTANCE * np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
        out.append(se3.inverse(look_at(eye, np.zeros(3))))
    return np.stack(out)


def pictures(
    truth: Gaussians, T_camera_world: np.ndarray, size: int = 48, focal: float = 1.6
) -> Views:
    """What the cameras see, straight colour and coverage."""
    k = np.array([focal * size, focal * size, (size - 1) / 2, (size - 1) / 2])
    images, masks = [], []
    for T in T_camera_world:
        image, alpha = drawn(truth, k, size, size, T)
        straight = image / np.maximum(alpha, 1e-6)[..., None]
        images.append(np.rint(255 * straight.clip(0, 1)).astype(np.uint8))
        masks.append(np.rint(255 * alpha.clip(0, 1)).astype(np.uint8))
    n = len(T_camera_world)
    return Views(np.stack(images), np.stack(masks), np.tile(k, (n, 1)), T_camera_world, True)


@lru_cache(maxsize=1)
def little() -> tuple[Gaussians, Views, Views]:
    """The truth, ten views to fit, three unseen ones."""
    truth = ball()
    return truth, pictures(truth, poses(10)), pictures(truth, poses(3, 0.31))


def start(count: int = 150, noise: float = 0.04, seed: int = 1) -> Gaussians:
    """Grey Gaussians near the sphere."""
    random = np.random.default_rng(seed)
    flat = ball(count)
    sh = np.zeros_like(flat.sh)
    means = flat.means + (noise * RADIUS * random.normal(size=flat.means.shape)).astype(np.float32)
    return Gaussians(means, flat.quaternions, flat.scales, flat.opacities, sh)


def same(a: Gaussians, b: Gaussians) -> bool:
    """Whether two sets are the same bit for bit."""
    return all(
        getattr(a, n).tobytes() == getattr(b, n).tobytes()
        for n in ("means", "quaternions", "scales", "opacities", "sh")
    )
