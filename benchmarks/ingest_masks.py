"""Masks against truth on lab captures: with the board, without it, and GrabCut view by view.

`python -m benchmarks.ingest_masks`; `--only PRESET` for one object.  All ways get the same
pictures (24 of 320 x 426 px, board on the table, noise, shadows) and exact poses; the way without a
board also gets points matched in the pictures, and no board.  The peers get the box that is found
from those points, or the true object's own rectangle in every view, which no user would draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.rows import Figure
from twinloop.capture.hull import Shape, VoxelGrid, carve, project_all
from twinloop.capture.mask import MaskSettings, Seeds, segment
from twinloop.capture.mask_quality import DROP, quality
from twinloop.capture.multiview_mask import find_box, grab, segment_views
from twinloop.capture.seek import seek
from twinloop.capture.sparse_points import sparse_points
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.raycast import MeshRenderer
from twinloop.lab.lens import LabCamera, Sensor
from twinloop.lab.objects import build_object
from twinloop.lab.render import PhotoCamera
from twinloop.lab.scan import PhonePath, ScanSettings, scan_board, scan_scene
from twinloop.lab.spec import NoiseSpec, load_preset

import mujoco  # isort: skip  after twinloop.lab.render, which chooses the GL first

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
Flags = NDArray[np.bool_]

PRESETS = ("spam", "letter_u", "bulb", "spray", "screwdriver")
"""A box, one with a hole, a plain one, a tall one, a flat one with a thin blade."""
FRAMES, WIDTH, HEIGHT = 24, 320, 426
TARGET = 0.93


@dataclass(frozen=True)
class Views:
    """A lab capture with its truth."""

    images: Images
    """RGB (frame, y, x, 3)."""
    intrinsics: Array
    """(frame, 4), px."""
    T_world_camera: Array
    """(frame, 4, 4)."""
    truth: Flags
    """Pixels covered by half at least, (frame, y, x)."""
    bounds: Array
    """Lowest and highest x, y of the board (2, 2), m."""


def shoot(name: str, seed: int = 3) -> Views:
    """Take pictures of a preset on the board, through a lens without distortion."""
    item = build_object(load_preset(name), name)
    rng = np.random.default_rng(seed)
    T_world_object = se3.exp(np.array([0, 0, 0, 0, 0, rng.uniform(-np.pi, np.pi)]))
    settings = ScanSettings(
        frames=FRAMES, duration=FRAMES / 10, width=WIDTH, height=HEIGHT, fill=0.7
    )
    focal = 0.5 * HEIGHT / np.tan(0.5 * np.radians(settings.field_of_view))
    k = np.array([focal, focal, (WIDTH - 1) / 2 + 3, (HEIGHT - 1) / 2 - 2])
    camera = LabCamera(WIDTH, HEIGHT, (k[0], k[1], k[2], k[3]))
    radius = 0.5 * float(np.linalg.norm(item.size))
    distance = radius / np.sin(np.arctan(0.5 * settings.fill * WIDTH / focal))
    layout = scan_board(item, 24 * distance / focal)
    centre = T_world_object[:3, 3] + np.array([0, 0, 0.48 * float(item.size[2])])
    path = PhonePath(centre, distance, settings, rng)
    model = scan_scene(item, layout, T_world_object, seed, 1024)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    noise = NoiseSpec()
    sensor = Sensor(noise.image, noise.exposure)
    mesh = MeshRenderer(item.vertices, item.faces)
    fine = np.r_[k[:2] * 4, (k[2:] + 0.5) * 4 - 0.5]
    images, truth, poses = [], [], []
    times = np.linspace(0, settings.duration, FRAMES)
    with PhotoCamera(model, camera, supersample=2, shadows=True) as photo:
        for time, gain in zip(times, sensor.gains(FRAMES, rng), strict=True):
            pose = path.pose(float(time))
            images.append(sensor.develop(photo.expose([(data, pose)]), gain, rng))
            hit = mesh.render(fine, WIDTH * 4, HEIGHT * 4, se3.inverse(pose) @ T_world_object).mask
            truth.append(hit.reshape(HEIGHT, 4, WIDTH, 4).mean(axis=(1, 3)) >= 0.5)
            poses.append(pose)
    half = np.asarray(layout.half)
    return Views(
        np.stack(images),
        np.tile(k, (FRAMES, 1)),
        np.stack(poses),
        np.stack(truth),
        np.stack([-half, half]),
    )


def overlap(masks: Images, truth: Flags) -> Array:
    """Intersection over union (frame,)."""
    on = masks > 0
    both = (on & truth).sum(axis=(1, 2))
    return np.asarray(both / np.maximum((on | truth).sum(axis=(1, 2)), 1))


def rectangles(flags: Flags, room: int) -> Flags:
    """Upright rectangle around each frame's pixels, ``room`` px wider on each side."""
    result = np.zeros_like(flags)
    for one, shown in zip(result, flags, strict=True):
        rows, columns = np.nonzero(shown)
        if len(rows):
            one[
                max(rows.min() - room, 0) : rows.max() + room + 1,
                max(columns.min() - room, 0) : columns.max() + room + 1,
            ] = True
    return result


def projected(views: Views, points: Array) -> Flags:
    """Pixels (frame, y, x) that points fall on."""
    shown = np.zeros_like(views.truth)
    poses = zip(shown, views.intrinsics, se3.inverse(views.T_world_camera), strict=True)
    for one, k, T in poses:
        u, v = np.rint(project_all(points, k, T)[0]).astype(int).T
        ok = (u >= 0) & (u < WIDTH) & (v >= 0) & (v < HEIGHT)
        one[v[ok], u[ok]] = True
    return shown


def with_board(views: Views) -> Images:
    """Masks of captures with a board, as the stage makes them: small pictures, then full ones."""
    T = se3.inverse(views.T_world_camera)
    k = views.intrinsics.copy()
    k[:, :2] /= 2
    k[:, 2:] = (k[:, 2:] + 0.5) / 2 - 0.5
    half = [
        cv2.resize(i, (WIDTH // 2, HEIGHT // 2), interpolation=cv2.INTER_AREA) for i in views.images
    ]
    small = np.asarray(np.stack(half), np.uint8)
    points = sparse_points(small, k, views.T_world_camera)
    place = seek(small, k, T, points, views.bounds, {}, 0.3)
    coarse = segment_views(
        small,
        k,
        views.T_world_camera,
        box=place.box,
        points=points,
        start=place.rough,
        settings=MaskSettings(rounds=2, voxels=60_000),
    )
    return segment(views.images, views.intrinsics, T, coarse.shape).mask


def figures(name: str) -> list[Figure]:
    """All ways on one preset, in the same run."""
    views = shoot(name)
    points = sparse_points(views.images, views.intrinsics, views.T_world_camera)
    box = find_box(points, views.T_world_camera, views.intrinsics, (WIDTH, HEIGHT))
    corners = np.array(np.meshgrid(*np.stack(box, axis=1), indexing="ij")).reshape(3, -1).T
    drawn = rectangles(projected(views, corners), 0)
    exact = rectangles(views.truth, 3)
    low, high = box
    raised = points[((points > low + [0, 0, 0.06 * high[2]]) & (points < high)).all(axis=1)]
    sure = projected(views, raised)

    def alone(windows: Flags, inside: Flags | None) -> Images:
        nothing = np.zeros_like(windows[0])
        return np.stack(
            [
                grab(
                    views.images[i],
                    windows[i],
                    None if inside is None else Seeds(inside[i] & windows[i], nothing),
                )
                for i in range(FRAMES)
            ]
        )

    def multi() -> Images:
        return segment_views(
            views.images, views.intrinsics, views.T_world_camera, box=box, points=points
        ).mask

    ways: tuple[tuple[str, Callable[[], Images], str | None], ...] = (
        ("board", lambda: with_board(views), None),
        ("multi-view, no board", multi, None),
        ("GrabCut per view, found box", lambda: alone(drawn, None), "GrabCut"),
        ("GrabCut per view, found box and points", lambda: alone(drawn, sure), "GrabCut"),
        ("GrabCut per view, true rectangle", lambda: alone(exact, None), "GrabCut"),
        ("GrabCut per view, true rectangle and points", lambda: alone(exact, sure), "GrabCut"),
    )
    result = []
    for way, run, peer in ways:
        try:
            values = overlap(run(), views.truth)
        except InputError as error:
            print(f"{name}: {way}: {error}")
            values = np.zeros(FRAMES)
        reached = f" ({int((values >= TARGET).sum())}/{FRAMES} views reach {TARGET})"
        result.append(
            Figure(
                f"{name}: mean IoU, {way}{reached}",
                float(values.mean()),
                "",
                None if peer else TARGET,
                "higher",
                FRAMES,
                interval(values),
                peer,
            )
        )
    return [*result, ranking(name, views, box)]


def interval(values: Array, resamples: int = 2000) -> list[float]:
    """Bootstrap 95 % interval of the mean over views."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (resamples, len(values))).mean(axis=1)
    return [float(q) for q in np.quantile(means, [0.025, 0.975])]


def ranking(name: str, views: Views, box: tuple[Array, Array]) -> Figure:
    """Rank correlation of quality and true IoU with a third of the true masks spoilt."""
    masks = views.truth.astype(np.uint8) * 255
    rng = np.random.default_rng(0)
    for rank, i in enumerate(rng.permutation(FRAMES)[: FRAMES // 3]):
        rows, columns = np.nonzero(masks[i])
        height, amount = int(np.ptp(rows)), float(rng.uniform(0.15, 0.5))
        if rank % 3 == 0:
            masks[i] = np.roll(masks[i], round(amount * int(np.ptp(columns))), axis=1)
        elif rank % 3 == 1:
            masks[i][: rows.min() + round(height * amount)] = 0
        else:
            side = 2 * round(0.3 * height * amount) + 1
            masks[i] = cv2.dilate(masks[i], np.ones((side, side), np.uint8))
    T = se3.inverse(views.T_world_camera)
    grid = VoxelGrid.over(*box, 200_000)
    shape = Shape(carve(masks, views.intrinsics, T, grid), grid)
    found = quality(views.images, masks, shape.silhouettes(views.intrinsics, T, masks.shape[1:]))
    values = overlap(masks, views.truth)
    dropped = int((found[values < 0.7] < DROP).sum())
    wrongly = int((found[values >= 0.9] < DROP).sum())
    bad, good = int((values < 0.7).sum()), int((values >= 0.9).sum())
    return Figure(
        f"{name}: rank correlation of quality and IoU ({dropped}/{bad} bad and {wrongly}/{good} "
        "good masks dropped)",
        float(spearmanr(found, values).statistic),
        "",
        None,
        "higher",
        FRAMES,
    )
