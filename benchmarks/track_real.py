"""Third-party sequences as `Sequence`: a rendered tea box and a real RGB-D recording.

Both are data of ViSP (see `README.md` beside them); `folder` says where they lie.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import ROOT
from benchmarks.track_sequence import Array, Sequence
from twinloop.capture.formats.depth_files import load_exr
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.solver import WorldCamera

DATA = Path(os.environ.get("TWINLOOP_DATA", ROOT.parent / "shared" / "data"))
"""Folder of the real captures: beside the clone, or where the variable says."""
BOX_LOW, BOX_HIGH = (0.0, 0.0, -0.08), (0.165, 0.068, 0.0)
"""m, object frame, corners of the tea box."""
BOX_CAMERA, BOX_DEPTH_CAMERA = (700.0, 700.0, 319.5, 239.5), (600.0, 600.0, 319.5, 239.5)
"""fx fy cx cy; the files say 320 and 240, from the picture's corner, as their renderer counts."""
RATE = 30.0
"""Frames per second taken for both: the files have no times."""
FARTHEST = 10.0
"""m; beyond it a renderer's depth means that there is nothing."""
MOST_LINES = 1_000_000


@dataclass(frozen=True)
class _Pictures:
    """Frames from picture files by one camera at the world's origin (the world is the camera's)."""

    camera: WorldCamera
    colour: tuple[Path, ...]
    depth: tuple[Path, ...] = ()
    unit: float = 1.0
    beside: tuple[tuple[float, ...], Array] | None = None
    """The depth camera's fx fy cx cy and `T_camera_depth` (4, 4), where it is another one."""

    def __call__(self) -> Iterator[Frame]:
        """Read from the first frame on."""
        for i, path in enumerate(self.colour):
            rgb = _picture(path, self.camera)
            grey = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), np.uint8)
            depth = None
            if self.depth:
                depth = read_depth(self.depth[i], self.unit)
                if self.beside is not None:
                    depth = moved_depth(depth, self.camera, *self.beside)
            yield Frame(i / RATE, (CameraFrame(self.camera, rgb, grey, depth),))


def _picture(path: Path, camera: WorldCamera) -> NDArray[np.uint8]:
    image = cv2.imread(str(path))
    if image is None or image.shape != (camera.height, camera.width, 3):
        found = "nothing readable" if image is None else f"shape {image.shape}"
        raise InputError(
            f"{path}: {found}; expected a colour picture of {camera.width} x {camera.height} px"
        )
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), np.uint8)


def read_depth(path: Path, unit: float = 1.0) -> NDArray[np.float32]:
    """Depth (h, w) m along the optical axis, 0 where there is none, from an EXR or PNG file."""
    if path.suffix == ".exr":
        values = load_exr(path)
    else:
        stored = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        if stored is None or stored.ndim != 2:
            raise InputError(f"{path}: expected a readable depth picture of one channel")
        values = stored.astype(np.float64)
    metres = values * unit
    return np.where((metres > 0) & (metres < FARTHEST), metres, 0.0).astype(np.float32)


def moved_depth(
    depth: NDArray[np.float32], camera: WorldCamera, intrinsics: tuple[float, ...], T: Array
) -> NDArray[np.float32]:
    """Depth as `camera` sees it, from a depth camera with `intrinsics` and pose `T` (4, 4) in it.

    Each point goes to the nearest pixel; the nearest point wins. What the depth camera does not see
    stays 0.
    """
    rows, columns = np.nonzero(depth)
    fx, fy, cx, cy = intrinsics
    z = depth[rows, columns].astype(np.float64)
    points = np.stack([(columns - cx) / fx * z, (rows - cy) / fy * z, z], axis=1)
    x, y, z = se3.apply(T, points).T
    fx, fy, cx, cy = camera.intrinsics
    u, v = np.rint(x / z * fx + cx).astype(int), np.rint(y / z * fy + cy).astype(int)
    inside = (u >= 0) & (v >= 0) & (u < camera.width) & (v < camera.height) & (z > 0)
    out = np.full((camera.height, camera.width), np.inf)
    np.minimum.at(out, (v[inside], u[inside]), z[inside])
    return np.where(np.isfinite(out), out, 0.0).astype(np.float32)


def box_mesh(low: Array, high: Array) -> tuple[Array, NDArray[np.int64]]:
    """Vertices (8, 3) and outward faces (12, 3) of an upright box between two corners (3,)."""
    corners = np.array([[x, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1)])
    quads = [(0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5)]
    faces = [t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))]
    return np.asarray(low) + corners * (np.asarray(high) - low), np.array(faces, np.int64)


def teabox(depth: bool = False, folder: Path = DATA / "teabox") -> Sequence:
    """49 rendered frames of a tea box with exact poses.

    The depth, if asked for, was rendered by a second camera 10 cm beside and is moved to the first.
    """
    truth = np.array([np.loadtxt(f) for f in sorted((folder / "ground-truth").glob("*.txt"))])
    camera = WorldCamera(np.array(BOX_CAMERA), np.eye(4), 640, 480)
    T_camera_depth = se3.inverse(np.loadtxt(folder / "depth_M_color.txt"))
    frames = _Pictures(
        camera,
        tuple(sorted((folder / "color").glob("*.jpg"))),
        tuple(sorted((folder / "depth").glob("*.exr"))) if depth else (),
        beside=(BOX_DEPTH_CAMERA, T_camera_depth),
    )
    vertices, faces = box_mesh(np.array(BOX_LOW), np.array(BOX_HIGH))
    return Sequence(
        name="teabox" + (" RGB-D" if depth else ""),
        vertices=vertices,
        faces=faces,
        appearance=None,
        frames=frames,
        count=len(frames.colour),
        table=False,
        start=truth[0],
        truth=truth,
        occluded=np.zeros(len(truth)),
        times=np.arange(len(truth)) / RATE,
    )


def read_obj(path: Path) -> tuple[Array, NDArray[np.int64]]:
    """Vertices (v, 3) and triangles (f, 3) of an OBJ file, its axes as they are.

    Raises:
        InputError: no vertex or face, or a face that names a vertex that is not there.
    """
    vertices, faces = [], []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number > MOST_LINES:
                raise InputError(f"{path}: over {MOST_LINES} lines; expected a small mesh")
            word, *rest = line.split() or [""]
            if word == "v":
                vertices.append([float(x) for x in rest[:3]])
            elif word == "f":
                corner = [int(part.split("/")[0]) - 1 for part in rest]
                faces += [(corner[0], a, b) for a, b in pairwise(corner[1:])]
    points, triangles = np.array(vertices), np.array(faces, np.int64)
    if (
        triangles.size == 0
        or points.size == 0
        or not 0 <= triangles.min() <= triangles.max() < len(points)
    ):
        raise InputError(f"{path}: expected vertices, and faces that name them")
    return points, triangles


def upright(points: Array) -> Array:
    """Points (n, 3) of a frame with y up, in one with z up: (x, y, z) becomes (x, -z, y)."""
    return np.stack([points[:, 0], -points[:, 2], points[:, 1]], axis=1)


def rbt(
    name: Literal["cube", "dragon"], depth: bool = False, folder: Path = DATA / "rbt"
) -> Sequence:
    """99 real frames of two objects that stand still before a moving camera.

    `truth` is the recording's own, from tags in the background, off by 20 px on blurred frames:
    `T_camera_tags(i) T_tags_camera(0) T_camera_object(0)`.
    """
    sequence = folder / "sequence"
    about = json.loads((sequence / "cam.json").read_text())
    camera = WorldCamera(
        np.array([about[k] for k in ("px", "py", "u0", "v0")]),
        np.eye(4),
        int(about["w"]),
        int(about["h"]),
    )
    start = np.array(json.loads((sequence / "init" / f"{name}.json").read_text()))
    tags = np.array(json.loads((sequence / "apriltag_data.json").read_text())["grid"])
    truth = tags @ se3.inverse(tags[0]) @ start
    frames = _Pictures(
        camera,
        tuple(sorted(sequence.glob("color_image_*.jpg"))),
        tuple(sorted(sequence.glob("depth_image_*.png"))) if depth else (),
        unit=float(about["depthScale"]),
    )
    vertices, faces = read_obj(folder / "models" / name / f"{name}.obj")
    return Sequence(
        name=f"{name} " + ("RGB-D" if depth else "RGB"),
        vertices=upright(vertices),
        faces=faces,
        appearance=None,
        frames=frames,
        count=len(frames.colour),
        table=False,
        start=start,
        truth=truth,
        occluded=np.full(len(truth), np.nan),
        times=np.arange(len(truth)) / RATE,
        textured=name == "cube",
    )
