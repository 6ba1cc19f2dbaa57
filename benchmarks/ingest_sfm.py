"""Structure from motion on real captures: 50 phone photos, and 99 frames with a wall of tags.

Each function runs in a child process of its own, so that its CPU time is all there is.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.project import environment
from benchmarks.rows import ROOT, Figure
from twinloop.capture.board import refine_corners
from twinloop.capture.projection import Camera
from twinloop.capture.sfm import FAST, SfmSettings, structure_from_motion
from twinloop.capture.sfm_seeded import corner_errors, seeded
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]

PITCH = 0.12
"""Distance of the wall's tags, m: of the candidates 118.5 to 121 mm the one with the smallest
reprojection error of its corners; the data state the tags' size alone."""
SCALE_TAGS = frozenset({4, 5})
"""Tags that fix the scale where the others are measured."""


def figures(data: Path) -> list[Figure]:
    """Measure everything.

    Args:
        data: Folder of the real captures, with ``fox`` and ``rbt``.
    """
    return [*fox(data), *rbt(data)]


def _child(case: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ingest_sfm", case, str(folder)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fox(data: Path) -> list[Figure]:
    """Registered photos and trajectory error at the default size and for the fast preset."""
    default, fast = (_child(case, data / "fox") for case in ("default", "fast"))
    n = default["pictures"]

    def made(name: str, value: float, unit: str, target: float | None, better: Any) -> Figure:
        return Figure(f"fox, {name}", value, unit, target, better, n)

    return [
        made("default: photos registered", default["registered"], "of 50", n, "higher"),
        made("default: trajectory error", default["error"], "% of extent", 0.1, "lower"),
        made("default: CPU time", default["cpu"], "CPU-s", None, "lower"),
        made("fast: photos registered", fast["registered"], "of 50", n, "higher"),
        made("fast: trajectory error", fast["error"], "% of extent", None, "lower"),
        made("fast: CPU time", fast["cpu"], "CPU-s", 45, "lower"),
    ]


def rbt(data: Path) -> list[Figure]:
    """Frames, reprojection error, and lengths between tags that did not fix the scale."""
    whole, part = (_child(case, data / "rbt") for case in ("tags", "two-tags"))
    n, pairs = whole["pictures"], part["lengths"]
    return [
        Figure("rbt, seeded: frames with a pose", whole["registered"], "of 99", n, "higher", n),
        Figure("rbt, seeded: reprojection error, median", whole["rms"], "px", None, "lower", n),
        Figure("rbt, seeded: tag corners, median error", whole["corner"], "px", None, "lower", n),
        Figure(
            "rbt, scale by two tags: median length", part["scale"], "% error", 1, "lower", pairs
        ),
        Figure("rbt, scale by two tags: lengths, rms", part["spread"], "%", None, "lower", pairs),
    ]


def _similarity_error(found: Array, truth: Array) -> float:
    """Root mean square distance after the best similarity (Umeyama 1991), % of the extent."""
    a, b = found - found.mean(axis=0), truth - truth.mean(axis=0)
    u, s, vt = np.linalg.svd(b.T @ a)
    sign = np.array([1, 1, np.sign(np.linalg.det(u @ vt))])
    laid = (s * sign).sum() / (a**2).sum() * a @ (u @ np.diag(sign) @ vt).T
    miss = np.sqrt(((laid - b) ** 2).sum(axis=1).mean())
    return float(100 * miss / np.linalg.norm(np.ptp(truth, axis=0)))


def _run_fox(folder: Path, settings: SfmSettings) -> dict[str, Any]:
    files = sorted((folder / "images").glob("*.jpg"))
    listed = json.loads((folder / "transforms.json").read_text())["frames"]
    centre = {Path(f["file_path"]).name: np.array(f["transform_matrix"])[:3, 3] for f in listed}
    images = (np.asarray(cv2.imread(str(f), cv2.IMREAD_COLOR_RGB), np.uint8) for f in files)
    model = structure_from_motion(images, settings=settings, where="fox")
    truth = np.stack([centre[f.name] for f in files])[model.registered]
    return {
        "pictures": len(files),
        "registered": int(model.registered.sum()),
        "error": _similarity_error(model.T_world_camera[model.registered][:, :3, 3], truth),
    }


class _Wall:
    """The frames and the tags on the wall behind the scene."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sequence"
        lens = json.loads((self.folder / "cam.json").read_text())
        intrinsics = np.array([lens["px"], lens["py"], lens["u0"], lens["v0"]])
        self.camera = Camera(intrinsics, np.zeros(5), lens["w"], lens["h"])
        data = json.loads((self.folder / "apriltag_data.json").read_text())
        self.found, half = data["detections"], data["tag_size"] / 2
        # Columns of four tags, numbered down; the print lies turned by 90 degrees.
        corners = np.array([[1, -1], [1, 1], [-1, 1], [-1, -1]]) * half
        self.tags = {
            k: np.column_stack([corners + np.array([k // 4, k % 4]) * PITCH, np.zeros(4)])
            for k in range(12)
        }

    def image(self, frame: int) -> NDArray[np.uint8]:
        """Grey picture of a frame."""
        path = self.folder / f"color_image_{frame:04d}.jpg"
        return np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), np.uint8)

    def corners(self, frame: int) -> tuple[list[int], Array]:
        """Tags of a frame and their corners (tags, 4, 2), px; the data list row before column."""
        found = self.found[frame]
        tags = sorted(int(k) for k in found)
        pixels = np.array([found[str(k)]["tag_corners"] for k in tags])[:, :, ::-1]
        side, next_ = pixels[:, 1] - pixels[:, 0], pixels[:, 2] - pixels[:, 1]
        clockwise = (side[:, 0] * next_[:, 1] - side[:, 1] * next_[:, 0] > 0).all()
        step = 1 if clockwise else -1
        return tags, refine_corners(self.image(frame), pixels[:, ::step])[:, ::step]

    def pose(self, points: Array, pixels: Array) -> Array:
        """T_camera_wall by one frame's corners."""
        lens = self.camera.matrix
        _, turn, place = cv2.solvePnP(points, pixels, lens, None, flags=cv2.SOLVEPNP_IPPE)
        turn, place = cv2.solvePnPRefineLM(points, pixels, lens, None, turn, place)
        return se3.from_rotation_position(cv2.Rodrigues(turn)[0], place.reshape(3))


def _run_rbt(folder: Path, only: frozenset[int] | None) -> dict[str, Any]:
    wall = _Wall(folder)
    frames = range(0, len(wall.found), 1 if only is None else 3)
    seen = [wall.corners(i) for i in frames]
    corners = []
    for tags, pixels in seen:
        use = [j for j, k in enumerate(tags) if only is None or k in only]
        points = np.concatenate([wall.tags[tags[j]] for j in use] or [np.zeros((0, 3))])
        corners.append((points, pixels[use].reshape(-1, 2)))
    poses = np.stack(
        [wall.pose(*c) if len(c[0]) >= 8 else np.full((4, 4), np.nan) for c in corners]
    )
    images = (wall.image(i) for i in frames)
    model = seeded(images, poses, wall.camera, corners, SfmSettings(features=2000), where="rbt")
    result = {
        "pictures": len(frames),
        "registered": int(model.registered.sum()),
        "rms": float(np.nanmedian(model.rms)),
        "corner": float(np.median(corner_errors(model, corners))),
    }
    if only is not None:
        ratios = _lengths(wall, model.T_camera_world, seen, only)
        result["lengths"] = len(ratios)
        result["scale"] = float(100 * abs(np.median(ratios) - 1))
        result["spread"] = float(100 * np.sqrt(((ratios - 1) ** 2).mean()))
    return result


def _lengths(
    wall: _Wall, poses: Array, seen: list[tuple[list[int], Array]], fixed: frozenset[int]
) -> Array:
    """Distances between centres of the other tags, triangulated, over the true ones."""
    centres = {}
    for tag in sorted(set(wall.tags) - fixed):
        rows = [(T, p[k.index(tag)]) for T, (k, p) in zip(poses, seen, strict=True) if tag in k]
        if len(rows) < 10:
            continue
        places = [
            _triangulate(
                wall.camera, np.stack([r[0] for r in rows]), np.stack([r[1][j] for r in rows])
            )
            for j in range(4)
        ]
        centres[tag] = np.mean(places, axis=0)
    return np.array(
        [
            np.linalg.norm(centres[a] - centres[b])
            / np.linalg.norm(wall.tags[a].mean(axis=0) - wall.tags[b].mean(axis=0))
            for a in centres
            for b in centres
            if a < b
        ]
    )


def _triangulate(camera: Camera, poses: Array, pixels: Array) -> Array:
    """Point (3,) seen at pixels (n, 2), robust by Cauchy's weights on the reprojection error."""
    P = camera.matrix @ poses[:, :3]
    rows = pixels[:, :, None] * P[:, None, 2] - P[:, :2]
    weight = np.ones(len(P))
    point = np.zeros(3)
    for _ in range(15):
        found = np.linalg.svd((rows * weight[:, None, None]).reshape(-1, 4))[2][-1]
        point = found[:3] / found[3]
        there = P @ np.append(point, 1.0)
        miss = np.linalg.norm(there[:, :2] / there[:, 2:] - pixels, axis=1)
        weight = 1 / (1 + (miss / 0.5) ** 2) / there[:, 2]
    return point


def _main(case: str, folder: Path) -> None:
    runs = {
        "default": lambda: _run_fox(folder, SfmSettings()),
        "fast": lambda: _run_fox(folder, FAST),
        "tags": lambda: _run_rbt(folder, None),
        "two-tags": lambda: _run_rbt(folder, SCALE_TAGS),
    }
    try:
        result = runs[case]()
    except InputError as error:
        raise SystemExit(str(error)) from error
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result["cpu"] = sum(u.ru_utime + u.ru_stime for u in used)
    print(json.dumps(result))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
