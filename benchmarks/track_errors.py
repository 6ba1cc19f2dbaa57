"""What wrong knowledge does (mesh or focal length 1 % off, mask 6 px off), and the last step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from benchmarks.rows import Figure
from benchmarks.track_run import Known, known, known_from, prepared, track_sequence
from benchmarks.track_scenes import sequences
from benchmarks.track_scores import FREEDOMS, Scores, figure, join, mean, rate, score
from benchmarks.track_sequence import Sequence
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION
from twinloop.artifacts.store import open_artifact
from twinloop.capture.push_session import load_session
from twinloop.geometry import se3
from twinloop.splat.gaussians import Gaussians
from twinloop.tracking.clip import locate_camera, rest_image
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.solver import WorldCamera

OBJECTS = ("spam", "letter_u_plain")
PART, SHIFT = 0.01, 6
PRINTED = ("spam", "ketchup", "wafer_tin")
"""Objects of the comparison of the last step."""


@dataclass(frozen=True)
class Wrong:
    """A case: what is wrong, what is known then, the frames, what the geometry allows (m)."""

    name: str
    known: Known
    frames: list[Frame]
    allowed: float


def larger(folder: Path, sequence: Sequence, *, told: Known | None) -> Known:
    """What is known with a twin that is 1 % too large.

    Without `told` the model's own error is measured on the scan, whose cameras are right; with it
    the error is taken from there, as if the whole scan was as wrong.
    """
    looks = Gaussians.from_dataset(
        open_artifact(folder / "reconstruct.zarr", RECONSTRUCTION)["gaussians"].to_dataset()
    )
    grown = replace(
        looks,
        means=(looks.means * (1 + PART)).astype(np.float32),
        scales=(looks.scales * (1 + PART)).astype(np.float32),
        stored=None,
    )
    error = None if told is None else told.error
    return known_from(sequence.vertices * (1 + PART), sequence.faces, folder, grown, error)


def longer(folder: Path, frames: list[Frame]) -> list[Frame]:
    """Frames whose camera has a focal length 1 % too long, and is placed by the board with that."""
    session = load_session(folder / "raw" / "push")
    fx, fy, cx, cy = session.camera.intrinsics
    wrong = session.camera.model_copy(
        update={"intrinsics": (fx * (1 + PART), fy * (1 + PART), cx, cy)}
    )
    rests = {
        str(session.video(p.name)): rest_image(session.video(p.name), session.camera, 0.15).image
        for p in session.pushes
    }
    T = locate_camera(rests, wrong, session.board)[0].T_camera_world
    out = []
    for frame in frames:
        (c,) = frame.cameras
        intrinsics = c.camera.intrinsics * np.array([1 + PART, 1 + PART, 1.0, 1.0])
        camera = WorldCamera(intrinsics, T, c.camera.width, c.camera.height)
        out.append(Frame(frame.time, (replace(c, camera=camera),)))
    return out


def shifted(frames: list[Frame], zoom: int) -> list[Frame]:
    """Frames whose mask of the robot lies 6 px too far to the right."""
    out = []
    for frame in frames:
        (c,) = frame.cameras
        out.append(Frame(frame.time, (_moved(c, SHIFT * zoom),)))
    return out


def _moved(c: CameraFrame, columns: int) -> CameraFrame:
    if c.ignore is None:
        return c
    ignore = np.zeros_like(c.ignore)
    ignore[:, columns:] = c.ignore[:, :-columns]
    return replace(c, ignore=ignore)


def cases(sequence: Sequence) -> tuple[Known, list[Frame], list[Wrong]]:
    """What is right, and the cases, of one clip."""
    folder = sequence.appearance
    assert folder is not None
    assert sequence.truth is not None
    right = known(sequence)
    frames = list(prepared(sequence, right.model))
    camera = frames[0].cameras[0].camera
    zoom = camera.width // next(iter(sequence.frames())).cameras[0].camera.width
    eye = se3.inverse(camera.T_camera_world)[:3, 3]
    distance = float(np.median(np.linalg.norm(sequence.truth[:, :3, 3] - eye, axis=1)))
    # A twin 1 % larger looks as large 1 % further away, and its points are 1 % further out.
    size = PART * float(np.linalg.norm(sequence.vertices, axis=1).mean())
    scale = PART * distance + size
    # The outline may follow the robot's edge by as much as the mask is off.
    mask = SHIFT * zoom * distance / float(camera.intrinsics[0])
    return (
        right,
        frames,
        [
            Wrong("mesh +1 %", larger(folder, sequence, told=None), frames, scale),
            Wrong("mesh and scan +1 %", larger(folder, sequence, told=right), frames, scale),
            Wrong("focal +1 %", right, longer(folder, frames), PART * distance),
            Wrong(f"mask {SHIFT} px off", right, shifted(frames, zoom), mask),
        ],
    )


def _inside(name: str, s: Scores) -> Figure:
    covered = s.nees[s.ok] < chi2.ppf(0.99, FREEDOMS)
    return rate(f"{name}: ok frames inside the 99 % ellipsoid", covered, 0.9)


def sensitivity() -> list[Figure]:
    """Growth of ADD by each wrong knowledge, and whether the covariance still covers the errors."""
    figures = []
    for name in OBJECTS:
        sequence = sequences(name)[0]
        right, frames, wrongs = cases(sequence)
        base = score(track_sequence(sequence, right, None, frames).smooth, sequence)
        before = 1e3 * float(base.add.mean())
        figures.append(Figure(f"{name}: ADD, mean", before, "mm", None, "lower", len(base.add)))
        figures.append(_inside(name, base))
        for wrong in wrongs:
            run = track_sequence(sequence, wrong.known, None, wrong.frames)
            s = score(run.smooth, sequence)
            label, after = f"{name}, {wrong.name}", 1e3 * float(s.add.mean())
            figures += [
                Figure(
                    f"{label}: growth of ADD over what the geometry allows "
                    f"({1e3 * wrong.allowed:.1f} mm)",
                    (after - before) / (1e3 * wrong.allowed),
                    "",
                    1.0,
                    "lower",
                    len(s.add),
                ),
                Figure(f"{label}: ADD, mean", after, "mm", None, "lower", len(s.add)),
                _inside(label, s),
                rate(f"{label}: ok frames with ADD above 10 mm", s.add[s.ok] > 0.01, 0.0, "lower"),
                rate(f"{label}: frames ok", s.ok, None),
            ]
    return figures


def last_step() -> list[Figure]:
    """ADD of ok frames with and without the comparison with the twin's picture, same clips."""
    figures = []
    for name in PRINTED:
        found: dict[bool, list[Scores]] = {True: [], False: []}
        for sequence in sequences(name):
            k = known(sequence)
            frames = list(prepared(sequence, k.model))
            for way, scores in found.items():
                settings = replace(k.settings, photometric=way)
                fresh = replace(k, model=k.model.fresh(), settings=settings)
                scores.append(score(track_sequence(sequence, fresh, None, frames).raw, sequence))
        parts = {way: join(scores) for way, scores in found.items()}
        without = 1e3 * mean(parts[False].add[parts[False].ok])
        s = parts[True]
        label = f"{name}, frame by frame, ok frames: ADD with the last step, mean"
        peer = f"without it {without:.3f} mm"
        figures.append(
            figure(label, 1e3 * s.add[s.ok], s.clip[s.ok], mean, "mm", without, peer=peer)
        )
    return figures
