"""A clip with its track drawn in, to be judged by eye: as a film, or live in a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import write_whole
from twinloop.errors import InputError, MachineError
from twinloop.film import write_video
from twinloop.tracking.appearance import Shape
from twinloop.tracking.overlay import COLOURS, draw_outline
from twinloop.tracking.pose_files import STATUS
from twinloop.tracking.solver import WorldCamera, project

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

SHARP = 0.6
"""Faces that meet at more than this angle (rad) have an edge that is drawn."""
MOST_EDGES = 4000
"""Most edges that are drawn."""
CHI2 = 5.991
"""95 % of a normal error in the picture is within sqrt(5.991) deviations (2 degrees of freedom)."""
LARGER = 10
"""So many times its size the ellipse is drawn: most are smaller than a pixel."""
NARROW = 640
"""Pictures narrower than this, px, are shown at twice their size."""
WINDOW = "twinloop track"


class Wires:
    """The sharp edges of a mesh, of which those of faces that look at the camera are drawn."""

    def __init__(self, vertices: Array, faces: NDArray[np.integer]) -> None:
        """Find the edges of vertices (v, 3) m, faces (f, 3), in which faces meet sharply."""
        corner = vertices[faces]
        normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
        normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-20)
        # Equal places count as one vertex: meshes repeat them where colours or texture differ.
        _, place = np.unique(np.round(vertices, 7), axis=0, return_inverse=True)
        place = place.reshape(-1)
        sides = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
        owner = np.tile(np.arange(len(faces)), 3)
        key = np.sort(place[sides], axis=1)
        order = np.lexsort((owner, key[:, 1], key[:, 0]))
        key, owner, sides = key[order], owner[order], sides[order]
        pair = np.flatnonzero((key[1:] == key[:-1]).all(axis=1))
        first, second = owner[pair], owner[pair + 1]
        cosine = np.einsum("ni,ni->n", normal[first], normal[second])
        sharp = np.flatnonzero(cosine < np.cos(SHARP))
        longest = np.linalg.norm(np.diff(vertices[sides[pair[sharp]]], axis=1)[:, 0], axis=1)
        sharp = sharp[np.argsort(-longest, kind="stable")[:MOST_EDGES]]
        self.ends = vertices[sides[pair[sharp]]]
        self.normals = np.stack([normal[first[sharp]], normal[second[sharp]]], axis=1)

    def visible(self, camera: WorldCamera, pose: Array) -> Array:
        """Ends (n, 2, 2) px of the edges that `camera` may see under T_world_object `pose`."""
        T = camera.T_camera_world @ pose
        eye = -T[:3, :3].T @ T[:3, 3]
        towards = eye - self.ends[:, 0]
        faces = np.einsum("nki,ni->nk", self.normals, towards) > 0
        pixels, depth = project(camera, pose, self.ends.reshape(-1, 3))
        ahead = (depth.reshape(-1, 2) > 1e-2).all(axis=1)
        return np.asarray(pixels.reshape(-1, 2, 2)[faces.any(axis=1) & ahead])


def image_covariance(camera: WorldCamera, pose: Array, covariance: Array) -> Array:
    """Covariance (2, 2) px^2 of the object's origin in the picture, of (6, 6) in m and rad.

    The derivative of the pinhole projection, times the world's axes in the camera's.
    """
    R = camera.T_camera_world[:3, :3]
    x, y, z = R @ pose[:3, 3] + camera.T_camera_world[:3, 3]
    fx, fy = camera.intrinsics[:2]
    J = np.array([[fx / z, 0.0, -fx * x / z**2], [0.0, fy / z, -fy * y / z**2]]) @ R
    return np.asarray(J @ covariance[:3, :3] @ J.T)


class Painter:
    """Draws one object's poses into undistorted pictures of one camera."""

    def __init__(
        self, camera: WorldCamera, shape: Shape, vertices: Array, faces: NDArray[np.integer]
    ) -> None:
        """Take the camera (undistorted pictures, as large as filmed) and the mesh."""
        self.camera, self.shape = camera, shape
        self.wires = Wires(vertices, faces)
        self.scale = 2 if camera.width < NARROW else 1

    def draw(self, rgb: Image, time: float, pose: Array, covariance: Array, status: int) -> Image:
        """The picture (h, w, 3) u1 with outline, edges, axes, 95 % ellipse and a line of words.

        Sizes are even, as films need them. Green is ok, orange uncertain, red lost.
        """
        s, colour = self.scale, COLOURS[status]
        out = draw_outline(rgb, self.camera, self.shape, pose, status, scale=s)
        for a, b in np.rint((self.wires.visible(self.camera, pose) + 0.5) * s - 0.5):
            if max(np.abs(a).max(), np.abs(b).max()) < 1e5:
                cv2.line(out, _point(a), _point(b), colour, 1, cv2.LINE_AA)
        self._ellipse(out, pose, covariance, colour)
        h, w = out.shape[0] // 2 * 2, out.shape[1] // 2 * 2
        out = np.ascontiguousarray(out[:h, :w])
        self._words(out, time, covariance, status)
        return out

    def _ellipse(
        self, out: Image, pose: Array, covariance: Array, colour: tuple[int, int, int]
    ) -> None:
        depth = (self.camera.T_camera_world @ pose)[2, 3]
        if depth < 1e-2:
            return
        centre = (project(self.camera, pose, np.zeros((1, 3)))[0][0] + 0.5) * self.scale - 0.5
        values, vectors = np.linalg.eigh(image_covariance(self.camera, pose, covariance))
        limit = 4.0 * max(out.shape)
        axes = np.sqrt(np.maximum(values, 0.0) * CHI2) * self.scale * LARGER
        axes = np.clip(axes, 1.0, limit)
        if np.abs(centre).max() > limit:
            return
        angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
        size = (float(2 * axes[1]), float(2 * axes[0]))
        cv2.ellipse(
            out, ((float(centre[0]), float(centre[1])), size, angle), colour, 1, cv2.LINE_AA
        )

    def _words(self, out: Image, time: float, covariance: Array, status: int) -> None:
        """Time, status and standard deviations (the largest of all directions) on a dark bar."""
        place, turn = (np.sqrt(np.linalg.eigvalsh(c)[-1]) for c in _blocks(covariance))
        text = (
            f"{time:8.3f} s  {STATUS[status]:9s} +-{1e3 * place:.2g} mm "
            f"+-{np.degrees(turn):.2g} deg  ellipse 95% x{LARGER}"
        )
        font = cv2.FONT_HERSHEY_SIMPLEX
        size = min(0.5, 0.5 * out.shape[1] / 560)
        height = min(int(44 * size), out.shape[0])
        out[:height] //= 3
        at = (4, int(30 * size))
        cv2.putText(out, text, at, font, size, COLOURS[status], 1, cv2.LINE_AA)


def _point(pixel: Array) -> tuple[int, int]:
    return int(pixel[0]), int(pixel[1])


def _blocks(covariance: Array) -> tuple[Array, Array]:
    return covariance[:3, :3], covariance[3:, 3:]


def check_film(path: Path) -> None:
    """Refuse a film's name that says another format.

    Raises:
        InputError: It does not end in .mp4.
    """
    if path.suffix.lower() != ".mp4":
        raise InputError(f"{path}: expected a name that ends in .mp4.")


def write_preview(path: Path, pictures: Callable[[], Iterator[Image]], times: Array) -> None:
    """Write drawn pictures (h, w, 3) u1 with their times (n,) s as a film, whole or not at all.

    Raises:
        InputError: Another ending than .mp4, or the place is no file's.
        MachineError: The disk is full, or the folder cannot be written.
    """
    check_film(path)
    step = float(np.median(np.diff(times))) if len(times) > 1 else 1 / 30
    rate = float(np.clip(1 / max(step, 1e-4), 1, 1000))
    # Films start at 0: players show nothing for as long as the first stamp says.
    shown = times - times[0]
    write_whole(
        path, lambda fresh: write_video(fresh, pictures(), shown.tolist(), rate=rate, crf=18)
    )


class LiveWindow:
    """A window that shows pictures as they come; Esc or q closes it, and what it serves goes on."""

    def __init__(self) -> None:
        """Open the window.

        Raises:
            MachineError: This OpenCV draws none (the headless wheel), or there is no display.
        """
        try:
            cv2.namedWindow(WINDOW, cv2.WINDOW_NORMAL)
        except cv2.error as error:
            raise MachineError(
                "live: this OpenCV cannot open a window: the headless wheel, which Twinloop "
                "installs, has none, and without a display there is none either. Write a film "
                "instead (preview, on the command line --preview out.mp4), or in an environment "
                "of your own replace opencv-python-headless by opencv-python."
            ) from error
        self.open = True

    def show(self, rgb: Image) -> None:
        """Show a picture (h, w, 3) u1."""
        if not self.open:
            return
        cv2.imshow(WINDOW, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))
        if cv2.waitKey(1) & 0xFF in (27, ord("q")):
            self.close()

    def close(self) -> None:
        """Close the window."""
        if self.open:
            cv2.destroyWindow(WINDOW)
            self.open = False

    def __enter__(self) -> Self:
        """The window itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
