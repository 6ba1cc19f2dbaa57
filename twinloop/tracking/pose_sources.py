"""Poses of other trackers as observations of our object: FoundationPose, BOP, motion capture.

Each adapter says where its poses belong (which frame of the clip, which frame of reference); what
can be wrong with a stream of poses is checked for all alike in :func:`observe`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import list_files
from twinloop.capture.formats.bop import BopPose, read_bop_results
from twinloop.capture.logs.mocap_csv import MocapBody
from twinloop.capture.logs.pose_stream import INTRINSICS, read_pose_stream
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.tracking.pose_observations import PoseObservations, observe

Array = NDArray[np.float64]

Y_UP = np.array(
    [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
)
"""T_world_mocap of a system whose y axis points up and whose origin is the world's."""
SAME_TIME = 0.005
"""A pose this near to a frame is the frame's, s."""


@dataclass(frozen=True)
class ClipFrames:
    """The frames of the clip that was given to the other tracker.

    time: (n,) s, camera clock; T_camera_world: (4, 4), or (n, 4, 4) of a moving camera; names:
    the pictures' file names without suffix, in order, where the tracker read pictures; intrinsics:
    (fx, fy, cx, cy) px, None where not known.
    """

    time: Array
    T_camera_world: Array
    names: tuple[str, ...] = ()
    intrinsics: Array | None = None

    def index(self, stem: str, where: str) -> int:
        """The frame that a file name or a number stands for.

        Raises:
            InputError: There is no such frame.
        """
        if stem in self.names:
            return self.names.index(stem)
        if stem.isdecimal():
            number = int(stem)
            same = [i for i, n in enumerate(self.names) if n.isdecimal() and int(n) == number]
            if len(same) == 1:
                return same[0]
            if not self.names and number < len(self.time):
                return number
        raise InputError(
            f"{where}: frame {stem!r} is none of the clip's "
            + (
                f"pictures {self.names[0]!r} to {self.names[-1]!r}"
                if self.names
                else f"frames 0 to {len(self.time) - 1}"
            )
            + ". Give the frames that the tracker was given, all of them."
        )

    def to_world(self, T_camera_object: Array, index: NDArray[np.int64]) -> tuple[Array, Array]:
        """Poses (k, 4, 4) of frames (k,) in the world, and as seen: (n, 4, 4), NaN elsewhere."""
        n = len(self.time)
        cameras = np.broadcast_to(self.T_camera_world, (n, 4, 4))
        seen = np.full((n, 4, 4), np.nan)
        seen[index] = T_camera_object
        return se3.inverse(cameras) @ seen, seen

    @property
    def axes(self) -> Array:
        """(n, 3, 3) from the camera's axes to the world's."""
        cameras = np.broadcast_to(self.T_camera_world, (len(self.time), 4, 4))
        return np.swapaxes(cameras[:, :3, :3], 1, 2)


def from_foundationpose(folder: Path, frames: ClipFrames) -> PoseObservations:
    """Read an output folder of FoundationPose: ``ob_in_cam/NAME.txt``, 4x4 camera <- object, m.

    Args:
        folder: ``ob_in_cam``, or the folder that holds it.
        frames: The clip; files are matched to it by name, then by number, then (names of 16
            digits: ns) by time.

    Raises:
        InputError: See :func:`read_pose_stream`, :meth:`ClipFrames.index` and :func:`observe`; or
            two files stand for one frame; or ``cam_K.txt`` is another camera's.
    """
    inner = folder / "ob_in_cam"
    path = inner if inner.is_dir() else folder
    stream = read_pose_stream(path)
    if stream.camera_matrix is not None and frames.intrinsics is not None:
        _check_intrinsics(stream.camera_matrix, frames.intrinsics, path)
    stems = [f.stem for f in list_files(path, {".txt"}) if f.name != INTRINSICS]
    if stream.time is not None and not set(stems) <= set(frames.names):
        index = _by_time(stream.time, frames.time, str(path))
    else:
        # Names that are times were put in order of time.
        stems = stems if stream.time is None else sorted(stems, key=int)
        index = np.array([frames.index(stem, str(path)) for stem in stems], np.int64)
    _once(index, path)
    world, seen = frames.to_world(stream.T_parent_child, index)
    return observe(frames.time, world, f"FoundationPose {path}", measured=seen, axes=frames.axes)


def from_bop_results(
    path: Path, frames: ClipFrames, scene: int | None = None, thing: int | None = None
) -> PoseObservations:
    """Read a file of results in BOP's format; of several estimates in a picture the best scored.

    Args:
        path: ``scene_id,im_id,obj_id,score,R,t,time``, t in mm.
        frames: The clip; ``im_id`` is matched as a name's number, or counts its frames from 0.
        scene: The scene; None when the file holds one only.
        thing: The object; likewise.

    Raises:
        InputError: See :func:`read_bop_results`, :meth:`ClipFrames.index` and :func:`observe`; or
            scene or object are not there, or must be named.
    """
    found = read_bop_results(path)
    scene = _one("scene", sorted({p.scene for p in found}), scene, path)
    thing = _one("object", sorted({p.object for p in found if p.scene == scene}), thing, path)
    best: dict[int, BopPose] = {}
    for pose in found:
        if pose.scene != scene or pose.object != thing:
            continue
        if pose.image not in best or pose.score > best[pose.image].score:
            best[pose.image] = pose
    images = sorted(best)
    index = np.array([frames.index(str(i), str(path)) for i in images], np.int64)
    _once(index, path)
    world, seen = frames.to_world(np.stack([best[i].T_camera_object for i in images]), index)
    source = f"BOP results {path}, scene {scene}, object {thing}"
    return observe(frames.time, world, source, measured=seen, axes=frames.axes)


def from_mocap(
    body: MocapBody,
    path: Path,
    T_world_mocap: Array,
    T_body_object: Array,
    clock_offset: float = 0.0,
) -> PoseObservations:
    """Poses of the object from a rigid body of a motion-capture system, at the system's times.

    Args:
        body: What :func:`read_motive_csv` or :func:`read_mocap_csv` read.
        path: Its file, for messages.
        T_world_mocap: (4, 4) the system's frame in the world (:data:`Y_UP` turns one whose y axis
            is up); m.
        T_body_object: (4, 4) where the object is in the markers' rigid body.
        clock_offset: mocap time - camera time, s.

    Raises:
        InputError: See :func:`observe`; or a transform is no rigid motion.
    """
    for name, T in (("T_world_mocap", T_world_mocap), ("T_body_object", T_body_object)):
        R = np.asarray(T, np.float64)[:3, :3]
        error = float(np.abs(R @ R.T - np.eye(3)).max())
        if np.shape(T) != (4, 4) or not error < 1e-3 or np.linalg.det(R) < 0:
            raise InputError(
                f"{path}: {name} is no rigid motion (R R^T deviates from 1 by {error:.3g}, "
                f"determinant {np.linalg.det(R):.3g}); expected (4, 4), m."
            )
    poses = T_world_mocap @ body.T_mocap_body @ T_body_object
    source = f"motion capture {path}, body {body.name!r}"
    return observe(
        body.time - clock_offset,
        poses,
        source,
        measured=body.T_mocap_body,
        axes=np.asarray(T_world_mocap)[:3, :3],
    )


def _by_time(stamps: Array, frames: Array, where: str) -> NDArray[np.int64]:
    """The frame of each time stamp."""
    index = np.clip(np.searchsorted(frames, stamps), 1, max(len(frames) - 1, 1))
    left = index - 1
    right = np.minimum(index, len(frames) - 1)
    nearest = np.where(np.abs(frames[left] - stamps) <= np.abs(frames[right] - stamps), left, right)
    gap = np.abs(frames[nearest] - stamps)
    if gap.max() > SAME_TIME:
        i = int(gap.argmax())
        raise InputError(
            f"{where}: the pose at {stamps[i]:.6f} s is {gap[i]:.6g} s from the nearest frame "
            f"(frames from {frames[0]:.6f} to {frames[-1]:.6f} s), at most {SAME_TIME} s is "
            "accepted. Name files by the pictures, or use one clock."
        )
    return np.asarray(nearest, np.int64)


def _once(index: NDArray[np.int64], path: Path) -> None:
    frame, count = np.unique(index, return_counts=True)
    if (count > 1).any():
        raise InputError(
            f"{path}: {int(count.max())} poses stand for frame {int(frame[np.argmax(count)])}; "
            "expected one."
        )


def _one(what: str, known: list[int], chosen: int | None, path: Path) -> int:
    if chosen is None and len(known) == 1:
        return known[0]
    if chosen is None or chosen not in known:
        raise InputError(
            f"{path}: holds {what}s {known[:20]}, "
            f"{'say which one is wanted' if chosen is None else f'but no {chosen}'}."
        )
    return chosen


def _check_intrinsics(K: Array, intrinsics: Array, path: Path) -> None:
    """Poses are wrong by as much as the focal length is that they were found with."""
    there = np.array([K[0, 0], K[1, 1], K[0, 2], K[1, 2]])
    limit = np.array([0.01, 0.01, 0.01, 0.01]) * intrinsics[0] + 1.0
    for k, name in enumerate(("fx", "fy", "cx", "cy")):
        if abs(there[k] - intrinsics[k]) > limit[k]:
            raise InputError(
                f"{path}: its {INTRINSICS} says {name} = {there[k]:.2f} px, the clip's camera has "
                f"{intrinsics[k]:.2f} px. Run the tracker with this camera's matrix and without "
                "lens distortion."
            )
