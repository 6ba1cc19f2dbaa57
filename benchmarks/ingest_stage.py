"""Figures of the whole ingest stage on lab scans: without a board, and how frames are stored."""

from __future__ import annotations

import io
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray as xr
import yaml
import zarr
from numpy.typing import NDArray
from PIL import Image
from zarr.storage import LocalStore

from benchmarks.rows import Figure
from stages.ingest.params import Params
from stages.ingest.run import run
from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.schema import GroupSpec
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.capture.board import load_board
from twinloop.capture.projection import Camera
from twinloop.capture.similarity import align
from twinloop.geometry import se3
from twinloop.lab.objects import build_object
from twinloop.lab.scan import ScanSettings, ScanTruth, shoot_scan
from twinloop.lab.spec import load_preset

Array = NDArray[np.float64]
SCAN = ScanSettings(frames=60, fill=0.5)
"""Fewer frames than the default scan, and more of the table around the object."""
CLICKED = (4, 14, 24, 34, 44, 54)
"""Pictures in which a person clicks the ends of a stated length."""


def film(folder: Path, name: str = "spam") -> ScanTruth:
    """Film a preset into ``folder/scan``."""
    spec = load_preset(name)
    return shoot_scan(build_object(spec, name), folder / "scan", SCAN, spec.noise, 0)


def ingest(folder: Path, **params: Any) -> dict[str, xr.Dataset]:
    """Run the stage on ``folder/scan``."""
    inputs: Any = SimpleNamespace(raw=folder)
    return run(inputs, Params(**params))


def boardless() -> list[Figure]:
    """A scan whose board nobody describes: structure from motion, and one stated length."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        truth = film(folder)
        board = load_board(folder / "scan" / "board.yaml")
        (folder / "scan" / "board.yaml").unlink()
        corners = np.array([corner[0] for corner in board.corners().values()])
        gaps = np.linalg.norm(corners[:, None] - corners[None], axis=2)
        ends = np.unravel_index(gaps.argmax(), gaps.shape)
        camera = Camera(
            np.array(truth.camera.intrinsics),
            np.array(truth.camera.distortion),
            truth.camera.width,
            truth.camera.height,
        )
        rng = np.random.default_rng(0)
        clicks = [_clicks(corners[end], truth, camera, rng) for end in ends]
        stated = {"metres": float(gaps.max()), "first": clicks[0], "second": clicks[1]}
        (folder / "scan" / "scan.yaml").write_text(
            yaml.safe_dump({"scale": {"distances": [stated]}})
        )
        frames = ingest(folder, sfm_side=800, sfm_features=3000)["/"]
    places = frames["position_world_camera"].values
    true = truth.T_world_camera[frames["source"].values][:, :3, 3]
    fit = align(places, true)
    # What the world's axes are is free, but not which way is up nor where the table is.
    tilt = float(np.degrees(np.arccos(np.clip(fit.T[2, 2], -1, 1))))
    count = frames.sizes["frame"]
    return [
        Figure(
            "no board, one stated length: scale error",
            100 * abs(fit.scale - 1),
            "%",
            0.5,
            "lower",
            1,
        ),
        Figure(
            "no board: camera places after alignment, rms",
            1e3 * fit.rms,
            "mm",
            None,
            "lower",
            count,
        ),
        Figure("no board: tilt of the table", tilt, "deg", None, "lower", 1),
        Figure(
            "no board: height of the table", 1e3 * abs(float(fit.T[2, 3])), "mm", None, "lower", 1
        ),
    ]


def _clicks(
    point: Array, truth: ScanTruth, camera: Camera, rng: np.random.Generator
) -> list[list[float]]:
    """Where a person clicks a point, to 0.5 px, in the pictures that show its place."""
    found = []
    for picture in CLICKED:
        T = se3.inverse(truth.T_world_camera[picture])
        pixel = camera.project(se3.apply(T, point[None]))[0] + rng.normal(0, 0.5, 2)
        if (pixel > 0).all() and (pixel < [camera.width - 1, camera.height - 1]).all():
            found.append([picture, float(pixel[0]), float(pixel[1])])
    return found


class _Counting(LocalStore):
    """A store that counts the bytes it reads."""

    count = 0

    async def get(self, *arguments: Any, **options: Any) -> Any:
        """Read, and count."""
        found = await super().get(*arguments, **options)
        type(self).count += 0 if found is None else len(found)
        return found


def storage(data: Path) -> list[Figure]:
    """Size of the stored frames beside PNG, and what reading one frame costs.

    Args:
        data: Folder of the real captures; without it the lab's frames alone are measured.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        film(folder)
        path = folder / "ingest.zarr"
        groups = ingest(folder)
        write_artifact(path, FRAMES, groups)
        images = groups["/"]["image"].values
        pictures = path / "image"
        stored = sum(p.stat().st_size for p in pictures.rglob("*") if p.is_file())
        png = sum(_png(image) for image in images)
        _Counting.count = 0
        array = zarr.open_array(_Counting(path, read_only=True), path="image", mode="r")
        np.asarray(array[len(images) // 2])
        share = _Counting.count / stored
        started = time.perf_counter()
        tree = open_artifact(path, FRAMES)
        tree["image"][len(images) // 2].to_numpy()
        one = time.perf_counter() - started
    count = len(images)
    return [
        Figure("stored frames over PNG, size", stored / png, "x", 1.2, "lower", count, peer="PNG"),
        Figure("bytes read for one frame, share of all frames", share, "", 3 / count, "lower", 1),
        Figure("open the frames and read one", one, "s", 1.0, "lower", 1),
        *_photographs(data / "fox"),
    ]


def _photographs(folder: Path) -> list[Figure]:
    """The same of photographs, shrunk as ingest does it."""
    files = sorted((folder / "images").glob("*.jpg"))
    if not files:
        return []
    shrunk = []
    for file in files:
        with Image.open(file) as picture:
            picture.thumbnail((400, 400), Image.Resampling.BOX)
            shrunk.append(np.asarray(picture.convert("RGB")))
    images = np.stack(shrunk)
    frames = xr.Dataset({"image": (("frame", "y", "x", "channel"), images)})
    alone = FRAMES.model_copy(
        update={
            "groups": {"/": GroupSpec(arrays={"image": FRAMES.groups["/"].arrays["image"]})},
        }
    )
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "photos.zarr"
        write_artifact(path, alone, {"/": frames})
        stored = sum(p.stat().st_size for p in (path / "image").rglob("*") if p.is_file())
    png = sum(_png(image) for image in images)
    return [
        Figure(
            "stored photographs over PNG, size",
            stored / png,
            "x",
            1.2,
            "lower",
            len(images),
            peer="PNG",
        )
    ]


def _png(image: NDArray[np.uint8]) -> int:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png")
    return buffer.tell()
