"""Exact posed, masked pictures of a textured rounded box, rendered by casting rays."""

from dataclasses import dataclass

import numpy as np
import trimesh
import xarray as xr

from twinloop.geometry import camera, quaternion
from twinloop.geometry.raycast import MeshRenderer

SIZE = (0.100, 0.055, 0.085)


def rounded_box(size: tuple[float, float, float] = SIZE, radius: float = 0.008) -> trimesh.Trimesh:
    """A box with edges rounded to `radius` (m) that stands on z = 0, centred in x and y."""
    ball = trimesh.creation.icosphere(4, 1.0)
    half = np.asarray(size) / 2
    vertices = ball.vertices * radius + np.sign(np.round(ball.vertices, 9)) * (half - radius)
    return trimesh.Trimesh(vertices + np.array([0, 0, half[2]]), ball.faces, process=False)


def texture(points: np.ndarray) -> np.ndarray:
    """Smooth many-scale colours (n, 3) in 0..1 of points (n, 3) m."""
    colour = np.full((len(points), 3), 0.5)
    random = np.random.default_rng(5)
    for scale in (80.0, 200.0, 450.0, 900.0):
        direction = random.normal(size=(3, 3)) * scale
        phase = random.uniform(0, 6.28, 3)
        colour += 0.14 * np.sin(points @ direction + phase)
    return colour.clip(0.02, 0.98)


@dataclass(frozen=True)
class Scan:
    """What was scanned, `mesh` in world coordinates, and its `frames` in the schema of ingest."""

    mesh: trimesh.Trimesh
    frames: xr.Dataset


def scan(
    mesh: trimesh.Trimesh,
    *,
    views: int = 40,
    width: int = 240,
    height: int = 180,
    elevations: tuple[float, ...] = (18.0, 42.0, 65.0),
    distance: float = 0.42,
    focal: float = 1.25,
    supersample: int = 3,
    pose_noise: float = 0.0,
    seed: int = 0,
) -> Scan:
    """Render `views` pictures from rings at `elevations` (degrees) around the mesh.

    `focal` is in image widths, `pose_noise` the standard deviation (px) of a shift that the camera
    poses do not know. Every eighth frame is held out. The table is grey.
    """
    random = np.random.default_rng(seed)
    renderer = MeshRenderer(mesh.vertices, mesh.faces)
    centre = mesh.bounds.mean(axis=0)
    f = focal * width
    intrinsics = np.array([f, f, width / 2 - 0.5, height / 2 - 0.5])
    images, masks, positions, quaternions = [], [], [], []
    for i in range(views):
        azimuth = 2 * np.pi * i * len(elevations) / views + 0.13 * i
        elevation = np.radians(elevations[i * len(elevations) // views])
        eye = centre + distance * np.array(
            [
                np.cos(azimuth) * np.cos(elevation),
                np.sin(azimuth) * np.cos(elevation),
                np.sin(elevation),
            ]
        )
        T_world_camera = camera.look_at(eye, centre)
        s = supersample
        shift = random.normal(size=2) * pose_noise
        fine = np.array([f * s, f * s, *(s * (intrinsics[2:] + shift + 0.5) - 0.5)])
        T = np.linalg.inv(T_world_camera)
        hit = renderer.render(fine, width * s, height * s, T)
        points = (hit.points(fine) - T[:3, 3]) @ T[:3, :3]
        light = 0.75 + 0.25 * (hit.normal @ (np.array([0.3, 0.5, 0.81])))
        colour = texture(points.reshape(-1, 3)).reshape(*hit.depth.shape, 3) * light[..., None]
        picture = np.where(hit.mask[..., None], colour, 0.55)
        average = picture.reshape(height, s, width, s, 3).mean(axis=(1, 3))
        cover = hit.mask.reshape(height, s, width, s).mean(axis=(1, 3))
        images.append(np.round(average * 255).astype(np.uint8))
        masks.append(np.where(cover >= 0.5, 255, 0).astype(np.uint8))
        positions.append(T_world_camera[:3, 3])
        quaternions.append(quaternion.from_matrix(T_world_camera[:3, :3]))
    frames = xr.Dataset(
        {
            "image": (("frame", "y", "x", "channel"), np.stack(images)),
            "mask": (("frame", "y", "x"), np.stack(masks)),
            "time": (("frame",), np.arange(views) / 10.0),
            "position_world_camera": (("frame", "xyz"), np.stack(positions)),
            "quaternion_world_camera": (("frame", "wxyz"), np.stack(quaternions)),
            "intrinsics": (("frame", "fx_fy_cx_cy"), np.tile(intrinsics, (views, 1))),
            "held_out": (("frame",), np.arange(views) % 8 == 4),
            "sharpness": (("frame",), np.ones(views)),
            "reprojection_rms": (("frame",), np.full(views, 0.2)),
        }
    )
    return Scan(mesh, frames)
