"""The box scene as files and artifacts: what `track` and `push` read, with the truth beside it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import xarray as xr
import yaml

from stages.harness import Inputs
from tests.tracking.box_scene import (
    TAG_CENTRES,
    TAG_SIZE,
    BoxScene,
    look_at,
    push_motion,
    scan_views,
)
from twinloop.card import ObjectCard
from twinloop.geometry import se3

Array = np.ndarray


def write_video(path: Path, images: list[Array], times: Array) -> None:
    """H.264 file of RGB images with the given presentation times, s."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=60, options={"crf": "16", "bf": "0"})
        stream.width, stream.height = images[0].shape[1], images[0].shape[0]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, 6000)
        for image, time in zip(images, times, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = round(float(time) * 6000), Fraction(1, 6000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def scan_trees(scene: BoxScene, views: int, size: int = 320) -> dict[str, xr.DataTree]:
    """Artifacts of `ingest` and `reconstruct` with exact mesh and poses."""
    scan = scan_views(scene, views, size, size * 3 // 4, size * 300 / 320)
    vertices, faces, colours = scene.mesh()
    position, quaternion = se3.to_position_quaternion(scan["cameras"])
    p, q = se3.to_position_quaternion(scan["rest"])
    frames = xr.Dataset(
        {
            "image": (("frame", "y", "x", "channel"), scan["images"]),
            "position_world_camera": (("frame", "xyz"), position),
            "quaternion_world_camera": (("frame", "wxyz"), quaternion),
            "intrinsics": (("frame", "fx_fy_cx_cy"), scan["intrinsics"]),
            "held_out": ("frame", np.arange(views) % 8 == 7),
        }
    )
    root = xr.Dataset({"position_world_object": ("xyz", p), "quaternion_world_object": ("wxyz", q)})
    mesh = xr.Dataset(
        {
            "vertices": (("vertex", "xyz"), vertices),
            "faces": (("face", "corner"), faces),
            "colors": (("vertex", "channel"), colours),
        }
    )
    g = scene.gaussians()
    looks = xr.Dataset(
        {
            "means": (("gaussian", "xyz"), g.means),
            "scales": (("gaussian", "xyz"), g.scales),
            "quaternions": (("gaussian", "wxyz"), g.quaternions),
            "opacities": (("gaussian",), g.opacities),
            "sh": (("gaussian", "basis", "channel"), g.sh),
        }
    )
    return {
        "ingest": xr.DataTree.from_dict({"/": frames}),
        "reconstruct": xr.DataTree.from_dict({"/": root, "/mesh": mesh, "/gaussians": looks}),
    }


def write_session(
    folder: Path,
    scene: BoxScene,
    pushes: list[tuple[str, str]],
    *,
    frames: int = 40,
    width: int = 400,
    height: int = 300,
    with_object: bool = True,
    finger: bool = True,
) -> dict[str, Array]:
    """Write ``raw/push`` (no robot logs) of (name, action) and return the true poses by name."""
    folder.mkdir(parents=True)
    k = [380.0 * width / 400, 380.0 * width / 400, (width - 1) / 2, (height - 1) / 2]
    distortion = [-0.08, 0.02, 0.0005, -0.0004, 0.0]
    camera = {"width": width, "height": height, "intrinsics": k, "distortion": distortion}
    board = {
        "family": "36h11",
        "T_world_board": {"position": [0, 0, 0], "quaternion_wxyz": [1, 0, 0, 0]},
        "tags": [
            {"id": i, "size": TAG_SIZE, "centre": list(c)} for i, c in sorted(TAG_CENTRES.items())
        ],
    }
    robot = {"robot": "twinhand", "tip": "index_tip", "log_rate": 300, "effort_unit": "N_or_Nm"}
    entries = [{"name": n, "action": a, "held_out": False} for n, a in pushes]
    for name, content in (
        ("camera", camera),
        ("board", board),
        ("robot", robot),
        ("pushes", {"pushes": entries}),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    eye = look_at(np.array([0.08, -0.42, 0.30]), np.array([0, 0, 0.03]))
    truth = {}
    times = np.arange(frames) * (1.4 / frames)
    for name, action in pushes:
        poses = push_motion(scene, times, action, np.array([0.0, 0.01, 0.25]))
        images = []
        for t, pose in zip(times, poses, strict=True):
            reach = np.clip((t - 0.3) / 0.2, 0, 1) * 0.13 + 0.04 * np.clip((t - 0.5) / 0.7, 0, 1)
            tip = np.array([-0.2 + reach, -0.01, 0.05])
            images.append(
                scene.render(
                    np.array(k),
                    eye,
                    pose if with_object else None,
                    width,
                    height,
                    (tip, tip + [0, 0, 0.25], 0.01) if finger else None,
                    np.array(distortion),
                )
            )
        (folder / name).mkdir()
        write_video(folder / name / "video.mp4", images, times)
        truth[name] = poses
    return truth


def stage_inputs(root: Path, trees: dict[str, xr.DataTree], name: str = "box") -> Inputs:
    """Inputs of a stage run in `root` on artifacts in memory."""
    return Inputs(name, root, ObjectCard(name=name, license="CC0-1.0"), trees, "cpu", 0)
