"""The box scene as files that a user has: a packaged twin, a clip, its camera and its board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from tests.tracking.box_capture import write_video
from tests.tracking.box_scene import TAG_CENTRES, TAG_SIZE, BoxScene, look_at, pose, rotation
from twinloop.export.mesh_files import write_ply
from twinloop.export.twin_card import TwinCard
from twinloop.splat.ply import write_ply as write_splats

Array = np.ndarray
WIDTH, HEIGHT = 400, 300
LENS = (400.0, 400.0, 199.5, 149.5)
EYE = look_at(np.array([0.1, -0.42, 0.3]), np.array([0.0, 0.0, 0.03]))
"""T_world_camera."""


def box_scene() -> BoxScene:
    """The box, without noise: pictures of several of them can be put together."""
    return BoxScene(seed=3, noise=0.0)


def standing(scene: BoxScene, x: float, y: float, yaw: float) -> Array:
    """T_world_object of the box on the table."""
    return pose(rotation("z", yaw), np.array([x, y, scene.size[2] / 2]))


def picture(scene: BoxScene, *poses: Array) -> Array:
    """RGB picture of the table with boxes that do not hide each other."""
    empty = scene.render(np.array(LENS), EYE, None, WIDTH, HEIGHT)
    out = empty.copy()
    for T in poses:
        one = scene.render(np.array(LENS), EYE, T, WIDTH, HEIGHT)
        changed = (one != empty).any(axis=2)
        out[changed] = one[changed]
    return out


def write_twin(folder: Path, scene: BoxScene) -> Path:
    """A packaged twin of the box: what tracking reads of it."""
    (folder / "meshes").mkdir(parents=True)
    (folder / "splat").mkdir()
    vertices, faces, colours = scene.mesh(2)
    write_ply(folder / "meshes" / "visual.ply", vertices, faces, colours)
    write_splats(scene.gaussians(0.0012), folder / "splat" / "box.ply")
    card = TwinCard(
        name="box",
        title="A box",
        license="CC0-1.0",
        authors=[],
        tags=[],
        rest_height=float(scene.size[2] / 2),
        physics={},
        pose_only={},
        figures=[],
        hashes={},
    )
    (folder / "twin.json").write_text(card.model_dump_json())
    return folder


def write_camera(folder: Path) -> None:
    """camera.yaml and board.yaml of the scene."""
    camera = {"width": WIDTH, "height": HEIGHT, "intrinsics": list(LENS)}
    board = {
        "family": "36h11",
        "tags": [
            {"id": i, "size": TAG_SIZE, "centre": list(c)} for i, c in sorted(TAG_CENTRES.items())
        ],
    }
    (folder / "camera.yaml").write_text(yaml.safe_dump(camera))
    (folder / "board.yaml").write_text(yaml.safe_dump(board))


def write_clip(path: Path, images: list[Array]) -> Path:
    """The pictures as a clip of 30 frames a second."""
    write_video(path, images, np.arange(len(images)) / 30)
    return path
