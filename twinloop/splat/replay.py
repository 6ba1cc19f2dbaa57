"""Replay: Gaussians follow the pose of a body, simulated or tracked, and are filmed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinloop.capture.files import write_whole
from twinloop.errors import InputError
from twinloop.film import write_video
from twinloop.geometry import quaternion, se3
from twinloop.splat.cameras import Camera
from twinloop.splat.low_pass import PLAIN, LowPass
from twinloop.splat.render import Layer, RenderedView, render
from twinloop.splat.scene import Splats, SplatScene, merge

Float = NDArray[np.float64]


def poses_at(times: ArrayLike, knots: ArrayLike, poses: ArrayLike) -> Float:
    """Poses (t, 4, 4) at `times` (t,) s of a motion given by `poses` (k, 4, 4) at `knots` (k,) s.

    Positions are interpolated linearly and rotations along the shortest arc; outside the knots the
    body stays where it was first or last.

    Raises:
        InputError: Knots that do not increase, or shapes that do not fit.
    """
    times, knots = np.asarray(times, np.float64), np.asarray(knots, np.float64)
    poses = np.asarray(poses, np.float64)
    if poses.shape != (len(knots), 4, 4) or len(knots) == 0 or not np.isfinite(poses).all():
        raise InputError(
            f"replay: {len(knots)} times with poses of shape {poses.shape}, expected finite "
            "(k, 4, 4) for k times"
        )
    if (np.diff(knots) <= 0).any():
        raise InputError("replay: the times of the poses do not increase; sort them")
    position, turn = se3.to_position_quaternion(poses)
    along = np.stack([np.interp(times, knots, position[:, i]) for i in range(3)], axis=1)
    return se3.from_position_quaternion(along, quaternion.slerp(times, knots, turn))


def replay(
    body: Splats,
    T_world_body: ArrayLike,
    camera: Camera,
    *,
    surroundings: Splats | SplatScene | None = None,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    layers: Collection[Layer] = (),
    device: str = "cpu",
    low_pass: LowPass = PLAIN,
) -> Iterator[RenderedView]:
    """Render `body` at each pose of a motion, among `surroundings` that stay.

    Args:
        body: Splats in the body's frame.
        T_world_body: Poses (t, 4, 4), m: of a simulation, of a track, or from `poses_at`.
        camera: From where.
        surroundings: Splats in the world's frame, such as the table. The body is the last part.
        background: Colour behind everything, 0..1.
        layers: See `render`.
        device: See `render`.
        low_pass: Of Gaussians: that which they were trained with.
    """
    poses = np.asarray(T_world_body, np.float64)
    if poses.ndim != 3:
        raise InputError(f"replay: poses have shape {poses.shape}, expected (t, 4, 4)")
    around = [] if surroundings is None else [(surroundings, np.eye(4), "surroundings")]
    for pose in poses:
        scene = merge([*around, (body, pose, "body")])
        yield render(
            scene, camera, layers=layers, background=background, device=device, low_pass=low_pass
        )


def write_film(
    path: Path, views: Iterable[RenderedView], rate: float, times: Iterable[float] | None = None
) -> int:
    """Write views as an mp4, whole or not at all; the same bytes for the same views.

    Args:
        path: File to write.
        views: Of one size; an odd last row or column is left out, as the codec wants even ones.
        rate: Pictures a second.
        times: Presentation times, s, increasing; at `rate` from 0 on if not given.

    Returns:
        The number of pictures.

    Raises:
        InputError: Views of different sizes, of less than 2 px or none, or times that do not
            increase.
        MachineError: The disk is full, or the folder cannot be written.
    """
    if not 0 < rate <= 1000:
        raise InputError(f"{path}: {rate} pictures a second, expected more than 0, at most 1000")
    stamps = None if times is None else [float(time) for time in times]
    count, over = 0, False

    def pictures() -> Iterator[NDArray[np.uint8]]:
        # One at a time: a long film would not fit into memory.
        nonlocal count, over
        for view in views:
            count += 1
            if stamps is None or count <= len(stamps):
                yield _even(path, view.picture())
        over = True
        if stamps is not None and count != len(stamps):
            raise InputError(f"{path}: {count} views but {len(stamps)} times")

    def regular() -> Iterator[float]:
        while not over:
            yield (count - 1) / rate

    def write(fresh: Path) -> None:
        write_video(fresh, pictures(), regular() if stamps is None else stamps, rate=rate)
        if count == 0:
            raise InputError(f"{path}: there are no views to film")

    write_whole(path, write)
    return count


def _even(path: Path, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = picture.shape[:2]
    if min(height, width) < 2:
        raise InputError(f"{path}: a film of {width} x {height} px, expected 2 px each at least")
    return picture[: height - height % 2, : width - width % 2]
