"""Textured planes in space, drawn by homographies: pictures with exact poses."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from twinloop.capture.projection import Camera
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at

CAMERA = Camera(np.array([330.0, 330.0, 159.5, 119.5]), np.zeros(5), 320, 240)


def texture(seed: int, side: int = 256) -> np.ndarray:
    """Grey noise of several scales (side, side), float32."""
    rng = np.random.default_rng(seed)
    total = np.zeros((side, side), np.float32)
    for cells, weight in ((8, 1.0), (24, 1.0), (64, 1.2), (128, 0.8)):
        noise = rng.uniform(-1, 1, (cells, cells)).astype(np.float32)
        total += weight * cv2.resize(noise, (side, side), interpolation=cv2.INTER_CUBIC)
    return np.clip(128 + 70 * total, 0, 255)


@dataclass(frozen=True)
class Quad:
    """A textured parallelogram that is seen from both sides."""

    corner: tuple[float, float, float]
    along: tuple[float, float, float]
    across: tuple[float, float, float]
    picture: np.ndarray

    def homography(self, camera: Camera, T_camera_world: np.ndarray) -> np.ndarray:
        """Map from texel to pixel (3, 3)."""
        side = len(self.picture)
        plane = np.eye(4)[:, [0, 1, 3]]
        plane[:3, 0] = np.array(self.along) / side
        plane[:3, 1] = np.array(self.across) / side
        plane[:3, 2] = self.corner
        return camera.matrix @ (T_camera_world @ plane)[:3]


def box(seed: int, size: float = 0.14, height: float = 0.12) -> list[Quad]:
    """Four sides and the top of a box on z = 0 about the origin."""
    s, h = size / 2, height
    corners = [(-s, -s, 0.0), (s, -s, 0.0), (s, s, 0.0), (-s, s, 0.0)]
    ways = [(size, 0.0, 0.0), (0.0, size, 0.0), (-size, 0.0, 0.0), (0.0, -size, 0.0)]
    sides = [
        Quad(c, w, (0.0, 0.0, h), texture(seed + i))
        for i, (c, w) in enumerate(zip(corners, ways, strict=True))
    ]
    top = Quad((-s, -s, h), (size, 0.0, 0.0), (0.0, size, 0.0), texture(seed + 4))
    return [*sides, top]


def ground(seed: int, size: float = 0.7) -> Quad:
    """A square of the plane z = 0 about the origin."""
    s = size / 2
    return Quad((-s, -s, 0.0), (size, 0.0, 0.0), (0.0, size, 0.0), texture(seed, 512))


def draw(
    quads: list[Quad],
    T_camera_world: np.ndarray,
    camera: Camera = CAMERA,
    under: np.ndarray | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Draw quads over the picture ``under`` (or grey), far ones first: (height, width) uint8."""
    size = (camera.width * 2, camera.height * 2)
    fine = camera.scaled(*size)
    picture = (
        np.full((size[1], size[0]), 110, np.float32)
        if under is None
        else cv2.resize(under.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)
    )

    def depth(quad: Quad) -> float:
        middle = np.add(quad.corner, np.add(quad.along, quad.across) / 2)
        flat = quad.corner[2] == 0 and quad.across[2] == 0
        return 1e9 if flat else float(np.linalg.norm(se3.apply(T_camera_world, middle[None])))

    for quad in sorted(quads, key=depth, reverse=True):
        H = quad.homography(fine, T_camera_world)
        drawn = cv2.warpPerspective(quad.picture, H, size, flags=cv2.INTER_LINEAR)
        cover = cv2.warpPerspective(np.ones_like(quad.picture), H, size, flags=cv2.INTER_NEAREST)
        picture = np.where(cover > 0, drawn, picture)
    small = cv2.resize(picture, (camera.width, camera.height), interpolation=cv2.INTER_AREA)
    noise = np.random.default_rng(seed).normal(0, 1.0, small.shape)
    return np.clip(np.rint(small + noise), 0, 255).astype(np.uint8)


def orbit(count: int, degrees: float, radius: float = 0.6, height: float = 0.35) -> np.ndarray:
    """Camera poses T_world_camera (count, 4, 4) around the origin."""
    angles = np.radians(np.linspace(0, degrees, count))
    eyes = np.column_stack(
        [
            radius * np.cos(angles),
            radius * np.sin(angles),
            height + 0.08 * np.sin(2.3 * np.arange(count)),
        ]
    )
    return np.stack([look_at(eye, (0.0, 0.0, 0.05)) for eye in eyes])


def similarity(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """``source`` (n, 3) laid onto ``target`` (n, 3) by the best similarity (Umeyama 1991)."""
    a, b = source - source.mean(axis=0), target - target.mean(axis=0)
    u, s, vt = np.linalg.svd(b.T @ a)
    sign = np.array([1, 1, np.sign(np.linalg.det(u @ vt))])
    scale = (s * sign).sum() / (a**2).sum()
    return scale * a @ (u @ np.diag(sign) @ vt).T + target.mean(axis=0)


def trajectory_error(found: np.ndarray, truth: np.ndarray) -> float:
    """Root mean square distance of camera centres after alignment, relative to their extent."""
    miss = np.linalg.norm(similarity(found, truth) - truth, axis=1)
    return float(np.sqrt((miss**2).mean()) / np.linalg.norm(np.ptp(truth, axis=0)))


def turn_errors(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Angle (n,), degrees, between relative rotations to the first of poses T_world_camera."""
    relative = [np.einsum("ij,njk->nik", T[0, :3, :3].T, T[:, :3, :3]) for T in (found, truth)]
    trace = np.einsum("nij,nij->n", *relative)
    return np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))
