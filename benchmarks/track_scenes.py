"""Push clips of lab objects with their twins, as our own pipeline makes them from its captures.

`python -m benchmarks.track_scenes spam letter_u` builds the scenes of these objects, which takes
minutes each; they are kept in `.cache/benchmarks/track` under a hash of code and settings. Video,
mesh, masks, looks and the camera's place are what a user would have. Apart from them lies the
truth: poses at each frame, the hidden share of the object, and the alignment of the twin's frame to
the true one, found once per object by registering the meshes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from benchmarks.rows import CACHE, ROOT
from benchmarks.track_align import register
from benchmarks.track_sequence import Array, Sequence
from pipelines.closure import closure
from stages.harness import Inputs
from stages.ingest.params import Params as IngestParams
from stages.ingest.run import run as ingest
from stages.reconstruct.params import Params as ReconstructParams
from stages.reconstruct.run import run as reconstruct
from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION
from twinloop.artifacts.store import open_artifact, replace_tree, write_artifact
from twinloop.capture.logs.csv_log import read_csv_log
from twinloop.capture.push_session import PushSession, load_session
from twinloop.capture.video import read_video
from twinloop.card import ObjectCard
from twinloop.geometry import se3
from twinloop.geometry.camera import matrix
from twinloop.geometry.symmetry import Axis
from twinloop.hand.model import RobotModel
from twinloop.lab.film import FilmSettings, Stage, robot_scene, set_up, table_scene
from twinloop.lab.lens import LabCamera
from twinloop.lab.objects import LabObject, build_object
from twinloop.lab.occluder import NAME as OCCLUDER
from twinloop.lab.occluder import OccluderSettings
from twinloop.lab.pushes import RecordedPush, record_session
from twinloop.lab.render import Renderer
from twinloop.lab.scan import ScanSettings, shoot_scan
from twinloop.lab.session import ROBOT, PushSettings, push_sweep, shoot_pushes
from twinloop.lab.spec import LabSpec, NoiseSpec, load_preset
from twinloop.lab.world import robot_truth
from twinloop.tracking.clip import locate_camera, rest_image
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.solver import WorldCamera

import mujoco  # isort: skip  after twinloop.lab.render, which chooses the GL first

KEPT = CACHE / "track"
FROZEN = "TWINLOOP_SCENES"
"""Variable that names a folder of scenes to be taken as they are, whatever the code is by now."""
_BUILD = 1
"""Of the way that scenes are put together here; a change of it makes them anew."""
MASK_WIDER = 3
"""px by which the robot's silhouette is widened: its log and the camera's pose are not exact."""
FILM = FilmSettings(exposure_time=0.012, subframes=5, shadows=True, compression=20)
NOISE = NoiseSpec(image=2.5, exposure=0.05)
PUSHES = PushSettings(camera=FILM, occluder=OccluderSettings(aside=1.0))
PICKED = (0, 2, 3)
"""Of the automatic session: a tilt, a tap and a slide, from three sides."""


@dataclass(frozen=True)
class Recipe:
    """An object of the benchmark.

    preset: the lab's recipe; plain: RGB of an object without any print, or None for the recipe's
    own; half_turns: lab axes of which half a turn about each leaves a plain one as it was.
    """

    preset: str
    plain: tuple[int, int, int] | None = None
    half_turns: str = ""


RECIPES = {
    "letter_u_plain": Recipe("letter_u", (60, 130, 75), "z"),
    "spam": Recipe("spam"),
    "ketchup": Recipe("ketchup"),
    "lego_plain": Recipe("lego", (200, 60, 50)),
    "wafer_tin": Recipe("wafer_tin"),
    "letter_a_plain": Recipe("letter_a", (70, 110, 170), "z"),
    "spray": Recipe("spray"),
    "domino": Recipe("domino"),
    "bulb": Recipe("bulb"),
    "domino_plain": Recipe("domino", (210, 170, 60), "xyz"),
    "wafer_tin_plain": Recipe("wafer_tin", (150, 150, 155)),
}
ROUND = ("wafer_tin_plain",)
"""Solids of revolution about z without print: their turn about the axis cannot be seen."""


def lab_object(name: str) -> tuple[LabSpec, LabObject]:
    """Recipe and body of an object of `RECIPES`; a plain one has one colour all over."""
    recipe = RECIPES[name]
    spec = load_preset(recipe.preset).model_copy(update={"noise": NOISE})
    item = build_object(spec, recipe.preset)
    if recipe.plain is not None:
        item = replace(item, texture=np.full((64, 64, 3), recipe.plain, np.uint8))
    return spec, item


def key(name: str) -> str:
    """Hash of what a scene is made from: code, recipe, settings.

    Tracking is left out although the camera's place comes from it: a changed tracker must be
    measured on the same scenes.
    """
    entries = [ROOT / "stages" / s / "run.py" for s in ("ingest", "reconstruct")]
    entries += [ROOT / "twinloop" / "lab" / "session.py", ROOT / "twinloop" / "lab" / "scan.py"]
    total = hashlib.sha256(str(_BUILD).encode())
    for file in closure(ROOT, entries).files:
        total.update(file.encode() + (ROOT / file).read_bytes())
    settings = [
        PUSHES.model_dump(),
        NOISE.model_dump(),
        IngestParams.model_validate({}).model_dump(mode="json"),
        ReconstructParams.model_validate({}).model_dump(mode="json"),
        repr(RECIPES[name]),
        list(PICKED),
    ]
    total.update(json.dumps(settings).encode())
    return total.hexdigest()[:16]


def frozen(name: str) -> list[Path]:
    """Folders of an object's scenes below the one that `TWINLOOP_SCENES` names."""
    return [p for p in Path(os.environ[FROZEN]).glob(f"{name}-*") if (p / "truth.npz").is_file()]


def objects() -> list[str]:
    """Objects of the benchmark: all, or those whose scenes are frozen."""
    return [name for name in RECIPES if FROZEN not in os.environ or frozen(name)]


def scene(name: str) -> Path:
    """Folder of the scene of an object, built if it is not there yet."""
    if FROZEN in os.environ:
        return max(frozen(name), key=lambda folder: folder.stat().st_mtime)
    folder = KEPT / f"{name}-{key(name)}"
    if not folder.is_dir():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT, prefix=f".{name}-") as scratch:
            build(name, Path(scratch) / "scene")
            replace_tree(Path(scratch) / "scene", folder)
    return folder


def build(name: str, out: Path) -> None:
    """Film, scan and rebuild the object; see the module for what is kept."""
    started = time.process_time()
    spec, item = lab_object(name)
    raw = out / "raw"
    for part in ("scan", "push"):
        (raw / part).mkdir(parents=True)
    scan = shoot_scan(item, raw / "scan", ScanSettings(), spec.noise, spec.seed)
    pushes = chosen_pushes(spec, item)
    spec = spec.model_copy(update={"pushes": pushes})
    truth = shoot_pushes(item, spec, PUSHES, raw / "push", spec.seed)
    _say(name, "filmed", started)
    source: Any = SimpleNamespace(raw=raw)
    frames = ingest(source, IngestParams.model_validate({}))
    write_artifact(out / "ingest.zarr", FRAMES, frames)
    _say(name, "scan located", started)
    card = ObjectCard(name=name, license="Apache-2.0")
    inputs = Inputs(name, out, card, {"ingest": xr.DataTree.from_dict(frames)}, "cpu", 0)
    made = reconstruct(inputs, ReconstructParams.model_validate({}))
    write_artifact(out / "reconstruct.zarr", RECONSTRUCTION, made)
    shutil.rmtree(raw / "scan")
    _say(name, "rebuilt", started)
    place = se3.from_position_quaternion(
        made["/"]["position_world_object"].values, made["/"]["quaternion_world_object"].values
    )
    vertices, faces = made["mesh"]["vertices"].values, made["mesh"]["faces"].values
    rough = se3.inverse(scan.T_world_labobject) @ place
    T_lab_object, error = register(vertices, faces, rough, item)
    session = load_session(raw / "push")
    rests = {
        str(session.video(p.name)): rest_image(session.video(p.name), session.camera, 0.15).image
        for p in session.pushes
    }
    camera, rms = locate_camera(rests, session.camera, session.board)
    recorded, stage = replay(spec, item)
    hidden, robot = silhouettes(spec, item, session, camera, recorded, stage, truth)
    arrays: dict[str, NDArray[Any]] = {
        "T_lab_object": T_lab_object,
        "T_camera_world": camera.T_camera_world,
    }
    for push, dataset in truth.items():
        pose = se3.from_position_quaternion(
            dataset["position_world_labobject"].values, dataset["quaternion_world_labobject"].values
        )
        arrays |= {f"{push}_time": dataset["time"].values, f"{push}_pose": pose @ T_lab_object}
        arrays |= {f"{push}_occluded": hidden[push], f"{push}_robot": np.packbits(robot[push], -1)}
    np.savez_compressed(out / "truth.npz", allow_pickle=False, **arrays)
    about = {
        "registration_mm": 1e3 * error,
        "board_rms_px": rms,
        "largest_occlusion": {
            push: round(float(np.nanmax(share)), 3) for push, share in hidden.items()
        },
    }
    (out / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    _say(name, json.dumps(about), started)


def _say(name: str, what: str, started: float) -> None:
    print(f"{name}: {what}, {time.process_time() - started:.0f} CPU s", flush=True)


def chosen_pushes(spec: LabSpec, item: LabObject) -> tuple[Any, ...]:
    """The rehearsed pushes `PICKED` of the automatic session, none of them held out."""
    robot = RobotModel.load(ROBOT)
    rng = np.random.default_rng([spec.seed, 0x9054])
    truth = robot_truth(robot, rng)
    done = record_session(robot, item, "auto", truth, rng, PUSHES.substeps, limit=5)
    return tuple(done[i].spec.model_copy(update={"held_out": False}) for i in PICKED)


def replay(spec: LabSpec, item: LabObject) -> tuple[list[RecordedPush], Stage]:
    """What `shoot_pushes` did: the same pushes and the same camera, from the same seed."""
    robot = RobotModel.load(ROBOT)
    rng = np.random.default_rng([spec.seed, 0x9054])
    truth = robot_truth(robot, rng)
    recorded = record_session(robot, item, spec.pushes, truth, rng, PUSHES.substeps)
    return recorded, set_up(item.size, FILM, rng)


def silhouettes(
    spec: LabSpec,
    item: LabObject,
    session: PushSession,
    camera: WorldCamera,
    recorded: list[RecordedPush],
    stage: Stage,
    truth: dict[str, xr.Dataset],
) -> tuple[dict[str, Array], dict[str, NDArray[np.bool_]]]:
    """Hidden share of the object (n,), and where the robot is by its log (n, h, w), per push.

    The share is by the truth; the robot's silhouette is by the noisy log, its clock set right, in
    the camera as the board places it.
    """
    robot = RobotModel.load(ROBOT)
    model = robot_scene(item, robot, stage, spec.seed, PUSHES.occluder)
    alone = table_scene(item, stage, spec.seed).compile()
    true = LabCamera(FILM.width, FILM.height, stage.camera.intrinsics)
    K = camera.intrinsics
    known = LabCamera(camera.width, camera.height, (K[0], K[1], K[2], K[3]))
    T_world_camera = se3.inverse(camera.T_camera_world)
    body = model.body("object").id
    arm = model.body(OCCLUDER).id
    shares, masks = {}, {}
    size = (FILM.width, FILM.height)
    with Renderer(model, *size) as crowd, Renderer(alone, *size) as single:
        data, lone = mujoco.MjData(model), mujoco.MjData(alone)
        for number, push in enumerate(recorded):
            times = truth[push.name]["time"].values
            states = push.rollout.states(times)
            sweep = push_sweep(push, item.size, stage, PUSHES.occluder, number, spec.seed)
            assert sweep is not None
            log = read_csv_log(session.log(push.name).with_suffix(".csv"), session.robot).states
            assert log is not None
            ticks = log.time - float(truth[push.name]["clock_offset"])
            joints = [np.interp(times, ticks, q) for q in log.position.T]
            share, seen = [], []
            for i, (state, pose) in enumerate(zip(states, sweep(times), strict=True)):
                _set(model, data, state, pose)
                _set(alone, lone, state[-7:], None)
                shown = (crowd.bodies(data, true, stage.T_world_camera) == body).sum()
                whole = single.bodies(lone, true, stage.T_world_camera) == alone.body("object").id
                share.append(1.0 - shown / max(int(whole.sum()), 1))
                # The arm and the object out of the way: the log tells of the robot alone.
                away = np.array([0.0, 0.0, -9.0, 1.0, 0.0, 0.0, 0.0])
                _set(model, data, np.concatenate([[q[i] for q in joints], away]), away)
                ids = crowd.bodies(data, known, T_world_camera)
                seen.append((ids > 0) & (ids != body) & (ids != arm))
            shares[push.name] = np.array(share)
            masks[push.name] = np.array(seen)
    return shares, masks


def _set(model: Any, data: Any, state: Array, arm: Array | None) -> None:
    data.qpos[:] = state
    if arm is not None:
        data.mocap_pos[0], data.mocap_quat[0] = arm[:3], arm[3:]
    mujoco.mj_kinematics(model, data)
    mujoco.mj_camlight(model, data)


def load(folder: Path) -> list[Sequence]:
    """The clips of a scene's folder (see `scene`), in order."""
    name = folder.name.rsplit("-", 1)[0]
    recipe = RECIPES[name]
    session = load_session(folder / "raw" / "push")
    mesh = open_artifact(folder / "reconstruct.zarr", RECONSTRUCTION)["mesh"]
    vertices = np.asarray(mesh["vertices"].values, np.float64)
    faces = np.asarray(mesh["faces"].values, np.int64)
    with np.load(folder / "truth.npz", allow_pickle=False) as stored:
        truth = {n: stored[n] for n in stored.files}
    camera = WorldCamera(
        np.array(session.camera.intrinsics),
        truth["T_camera_world"],
        session.camera.width,
        session.camera.height,
    )
    T_object_lab = se3.inverse(truth["T_lab_object"])
    axis = Axis(T_object_lab[:3, 2], T_object_lab[:3, 3])
    turns = [np.eye(4)]
    for letter in recipe.half_turns:
        column = "xyz".index(letter)
        turns.append(Axis(T_object_lab[:3, column], T_object_lab[:3, 3]).turned(np.pi))
    return [
        Sequence(
            name=f"{name}/{push.name} {push.action}",
            vertices=vertices,
            faces=faces,
            appearance=folder,
            frames=_Clip(session, push.name, camera, truth[f"{push.name}_robot"]),
            count=len(truth[f"{push.name}_time"]),
            table=True,
            start=None,
            truth=truth[f"{push.name}_pose"],
            occluded=truth[f"{push.name}_occluded"],
            symmetries=np.stack(turns),
            axis=axis if name in ROUND else None,
            times=truth[f"{push.name}_time"],
            textured=recipe.plain is None,
        )
        for push in session.pushes
    ]


@dataclass(frozen=True)
class _Clip:
    """The frames of a push, lens distortion removed, with the robot's silhouette."""

    session: PushSession
    push: str
    camera: WorldCamera
    robot: NDArray[np.uint8]

    def __call__(self) -> Iterator[Frame]:
        """Decode from the first frame on."""
        lens = self.session.camera
        pinhole, distortion = matrix(lens.intrinsics), np.array(lens.distortion)
        size = (lens.width, lens.height)
        first, second = cv2.initUndistortRectifyMap(
            pinhole, distortion, np.eye(3), pinhole, size, cv2.CV_16SC2
        )
        kernel = np.ones((2 * MASK_WIDER + 1,) * 2, np.uint8)
        for picture, packed in zip(
            read_video(self.session.video(self.push)), self.robot, strict=True
        ):
            rgb = np.asarray(cv2.remap(picture.image, first, second, cv2.INTER_LINEAR), np.uint8)
            grey = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), np.uint8)
            robot = np.unpackbits(packed, axis=-1, count=lens.width)
            ignore = cv2.dilate(robot, kernel).astype(bool)
            yield Frame(picture.time, (CameraFrame(self.camera, rgb, grey, ignore=ignore),))


def sequences(name: str) -> list[Sequence]:
    """The clips of an object of `RECIPES`, built if they are not there yet."""
    return load(scene(name))


def main() -> None:
    """Build the scenes of the objects named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.track_scenes")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(RECIPES)}; all if none is given")
    names = parser.parse_args().name or list(RECIPES)
    if unknown := sorted(set(names) - set(RECIPES)):
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(RECIPES)}")
    for name in names:
        print(f"{name}: {scene(name)}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
