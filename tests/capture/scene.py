"""A small world with exact truth: a textured box on a tag board, seen through a distorting lens.

Pixels come from analytic ray casting (plane z = 0 and one upright box), so poses, lens and masks
are known exactly.  It shares nothing with the code under test but the drawing of tags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import yaml

from twinloop.capture.board import Board, Tag, print_image
from twinloop.capture.projection import Camera
from twinloop.geometry.camera import look_at


def grid_board(columns=6, rows=5, size=0.03, pitch=0.042, hole=0.0) -> Board:
    """Tags on a grid centred at the origin, none within ``hole`` m of the centre."""
    tags = []
    for r in range(rows):
        for c in range(columns):
            x, y = (c - (columns - 1) / 2) * pitch, ((rows - 1) / 2 - r) * pitch
            if np.hypot(x, y) >= hole:
                tags.append(Tag(id=len(tags), size=size, centre=(x, y)))
    return Board(tags=tuple(tags))


@dataclass
class Scene:
    """The world and the lens."""

    board: Board = field(default_factory=grid_board)
    camera: Camera = field(
        default_factory=lambda: Camera(
            np.array([310.0, 310.0, 162.0, 117.0]),
            np.array([0.08, -0.12, 0.0008, -0.0006, 0.03]),
            320,
            240,
        )
    )
    size: tuple[float, float, float] = (0.06, 0.04, 0.05)
    """Edges of the box, m."""
    yaw: float = 0.4
    """Turn of the box about z, rad."""
    seed: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.texel = 0.0005
        low, high = self.board.bounds()
        self.lower = low - 0.012
        shape = np.ceil((high - low + 0.024) / self.texel).astype(int)
        # Draw finer and average, so that edges lie right to a fraction of a texel.
        fine = print_image(
            self.board,
            self.texel / 5,
            self.lower - self.texel * 0.4,
            (shape[1] * 5, shape[0] * 5),
        )
        board_print = cv2.resize(
            fine.astype(np.float64), tuple(shape), interpolation=cv2.INTER_AREA
        )
        self.paper = 30 + board_print * 0.8
        # Shadow: a static dark band beside the box.
        coarse = rng.uniform(40, 230, (6, 12, 12, 3))
        self.faces = np.stack(
            [cv2.resize(f, (128, 128), interpolation=cv2.INTER_CUBIC) for f in coarse]
        )
        wood = rng.uniform(90, 140, (64, 64))
        self.table = cv2.resize(wood, (1024, 1024), interpolation=cv2.INTER_CUBIC)

    def orbit(self, n: int, radius=0.32, turns=1.0, elevations=(0.6, 1.0)) -> np.ndarray:
        """Camera poses (n, 4, 4) around the box, T_board_camera."""
        azimuth = np.linspace(0, 2 * np.pi * turns, n, endpoint=False)
        elevation = np.interp(np.sin(3 * azimuth), (-1, 1), elevations)
        eyes = radius * np.stack(
            [
                np.cos(azimuth) * np.cos(elevation),
                np.sin(azimuth) * np.cos(elevation),
                np.sin(elevation),
            ],
            1,
        )
        return np.stack([look_at(eye, (0.0, 0.0, 0.01)) for eye in eyes])

    def render(self, T_board_camera: np.ndarray, samples: int = 2, camera: Camera | None = None):
        """Image (height, width, 3) u1 and object coverage (height, width) in 0..1."""
        camera = camera or self.camera
        fine = camera.scaled(camera.width * samples, camera.height * samples)
        v, u = np.indices((fine.height, fine.width))
        xy = fine.normalize(np.stack([u.ravel(), v.ravel()], axis=1))
        rays = np.column_stack([xy, np.ones(len(xy))]) @ T_board_camera[:3, :3].T
        eye = T_board_camera[:3, 3]
        hit = eye + rays * (-eye[2] / np.where(rays[:, 2] < -1e-6, rays[:, 2], -1e-6))[:, None]
        colour = np.repeat(self._ground(hit[:, :2], fine.width)[:, None], 3, axis=1) * [
            1.0,
            0.97,
            0.93,
        ]
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        turn = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        half = np.asarray(self.size) / 2
        o, d = turn @ eye - [0, 0, half[2]], rays @ turn.T
        with np.errstate(divide="ignore"):
            near = np.minimum((-half - o) / d, (half - o) / d)
            far = np.maximum((-half - o) / d, (half - o) / d)
        axis = near.argmax(axis=1)
        t = near.max(axis=1)
        inside = (t < far.min(axis=1)) & (t > 0)
        p = (o + d * t[:, None])[inside] / (2 * half) + 0.5
        a = axis[inside]
        face = a * 2 + (d[inside, :][np.arange(len(a)), a] > 0)
        others = np.array([[1, 2], [0, 2], [0, 1]])[a]
        uv = np.take_along_axis(p, others, axis=1).clip(0, 1) * 127
        shade = np.array([0.8, 0.9, 1.0])[a]
        colour[inside] = (
            self.faces[face, uv[:, 1].astype(int), uv[:, 0].astype(int)] * shade[:, None]
        )
        shape = (camera.height, samples, camera.width, samples)
        image = colour.reshape(*shape, 3).mean(axis=(1, 3))
        mask = inside.reshape(shape).mean(axis=(1, 3))
        return image.clip(0, 255).astype(np.uint8), mask

    def _ground(self, xy: np.ndarray, width: int) -> np.ndarray:
        """Brightness (n,) of the plane z = 0 at xy (n, 2); rows of ``width`` because of OpenCV."""
        uv = ((xy - self.lower) / self.texel).astype(np.float32).reshape(-1, width, 2)
        paper = cv2.remap(
            self.paper.astype(np.float32),
            uv,
            None,
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=-1e6,
        ).reshape(-1)
        uv = ((xy / 0.002) % 1023).astype(np.float32).reshape(-1, width, 2)
        wood = cv2.remap(self.table.astype(np.float32), uv, None, cv2.INTER_LINEAR).reshape(-1)
        ground = np.where(paper >= 0, paper, wood)
        # A soft shadow that lies still, since the lamp does.
        offset = xy - np.array([0.025, 0.02])
        return ground * (1 - 0.45 * np.exp(-(offset**2).sum(axis=1) / (2 * 0.03**2)))


TIME_BASE = Fraction(1, 6000)


def write_video(path: Path, images, times=None, *, rotation=0, rate=30, shuffle=False) -> None:
    """Write RGB images at the given presentation times, s, turned back by ``rotation`` degrees.

    ``shuffle`` swaps the presentation stamps of neighbours, as broken muxers do.
    """
    times = np.arange(len(images)) / rate if times is None else times
    stamps = [round(float(t) / TIME_BASE) for t in times]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate)
        stored = [np.ascontiguousarray(np.rot90(i, -(rotation // 90))) for i in images]
        stream.height, stream.width = stored[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.time_base = stream.codec_context.time_base = TIME_BASE
        stream.options = {"crf": "12", "preset": "veryfast", "bf": "0"}
        if rotation:
            stream.set_display_rotation(float(rotation))
        packets = []
        for image, stamp in zip(stored, stamps, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = stamp, TIME_BASE
            packets += stream.encode(frame)
        packets += stream.encode()
        if shuffle:
            # Later by two frames, since no stamp may precede its decoding stamp.
            presented = [p.pts + 2 * (stamps[1] - stamps[0]) for p in packets]
            for packet, stamp in zip(packets, presented, strict=True):
                packet.pts = stamp
            for i, packet in enumerate(packets[1:-1], start=1):
                packet.pts = presented[i + 1 if i % 2 else i - 1]
        for packet in packets:
            container.mux(packet)


def write_scan(folder: Path, scene: Scene, poses: np.ndarray, *, gains=None, noise=1.0, seed=0):
    """Write ``video.mp4`` and ``board.yaml`` of a scan; returns the coverage of each frame."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    images, masks = [], []
    for i, T in enumerate(poses):
        image, mask = scene.render(T)
        gain = 1.0 if gains is None else gains[i]
        noisy = image * gain + rng.normal(0, noise, image.shape)
        images.append(noisy.clip(0, 255).astype(np.uint8))
        masks.append(mask)
    write_video(folder / "video.mp4", images)
    (folder / "board.yaml").write_text(yaml.safe_dump(scene.board.model_dump(mode="json")))
    return masks
