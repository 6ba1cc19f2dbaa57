"""What the empty table looks like: a mosaic of the board's plane from all frames.

The plane z = 0 of the board frame is the only thing that all frames agree on: its texels keep their
colour from view to view (shadows too, as long as the lamp stands still), while an object that rises
above it appears elsewhere in each.  Predicting the table in a frame and comparing is what tells the
object from its background; the board's brightness also tells how exposure drifted.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.camera import matrix

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class PlaneGrid:
    """Texels on the plane z = 0 of the board frame; row grows with y, column with x."""

    lower: Array
    """x, y of the centre of texel [0, 0], m."""
    texel: float
    """Size of a texel, m."""
    rows: int
    """Texels along y."""
    columns: int
    """Texels along x."""

    @staticmethod
    def over(low: Array, high: Array, texel: float) -> PlaneGrid:
        """The grid of given texel size (m) that covers x, y from ``low`` to ``high`` (2,) m."""
        columns, rows = np.maximum(np.ceil((high - low) / texel).astype(int) + 1, 2)
        return PlaneGrid(np.asarray(low, dtype=np.float64), texel, int(rows), int(columns))

    def homography(self, intrinsics: Array, T_camera_board: Array) -> Array:
        """Map from texel (column, row) to pixel (u, v), (3, 3)."""
        texel_to_plane = np.array(
            [[self.texel, 0, self.lower[0]], [0, self.texel, self.lower[1]], [0, 0, 1]]
        )
        plane_to_pixel = matrix(intrinsics) @ T_camera_board[:3, [0, 1, 3]]
        return np.asarray(plane_to_pixel @ texel_to_plane)


@dataclass(frozen=True)
class Mosaic:
    """The table as seen from above."""

    grid: PlaneGrid
    """Where its texels lie."""
    colour: Images
    """RGB (rows, columns, 3)."""
    known: Flags
    """Texels that enough frames see uncovered, (rows, columns)."""


def rectify(
    images: Images,
    visible: Images | None,
    intrinsics: Array,
    T_camera_board: Array,
    grid: PlaneGrid,
) -> tuple[Images, Flags]:
    """Look at the plane from above in each frame.

    Args:
        images: RGB (frame, y, x, 3).
        visible: (frame, y, x), 0 where a pixel must not be used; None for all.
        intrinsics: (frame, 4) px.
        T_camera_board: (frame, 4, 4).
        grid: Texels.

    Returns:
        Colours (frame, rows, columns, 3) and which of them are seen (frame, rows, columns).
    """
    shape = (len(images), grid.rows, grid.columns)
    colours = np.zeros((*shape, 3), np.uint8)
    seen = np.zeros(shape, bool)
    size = (grid.columns, grid.rows)
    x = grid.lower[0] + np.arange(grid.columns) * grid.texel
    y = grid.lower[1] + np.arange(grid.rows) * grid.texel
    for i, image in enumerate(images):
        H = grid.homography(intrinsics[i], T_camera_board[i])
        flags = cv2.WARP_INVERSE_MAP | cv2.INTER_LINEAR
        colours[i] = cv2.warpPerspective(image, H, size, flags=flags)
        usable = np.full(image.shape[:2], 255, np.uint8)
        usable[[0, -1]] = 0
        usable[:, [0, -1]] = 0
        if visible is not None:
            usable[visible[i] == 0] = 0
        warped = cv2.warpPerspective(usable, H, size, flags=flags)
        T = T_camera_board[i]
        ahead = T[2, 0] * x[None, :] + T[2, 1] * y[:, None] + T[2, 3] > 0
        seen[i] = (warped == 255) & ahead
    return colours, seen


def mode_mosaic(colours: Images, seen: Flags, grid: PlaneGrid, share: float = 0.35) -> Mosaic:
    """Most agreed colour of each texel.

    Of the sorted brightnesses the narrowest run that holds ``share`` of the frames is averaged
    (a half-sample mode, Bickel 2002): right as long as that share shows the table, even where an
    object hides it from most sides.

    Args:
        colours: (frame, rows, columns, 3), see :func:`rectify`.
        seen: (frame, rows, columns).
        grid: Their texels.
        share: Share of a texel's frames that show the table at least.
    """
    frames = len(colours)
    flat = np.moveaxis(colours.reshape(frames, -1, 3), 0, 1)
    visible = seen.reshape(frames, -1).T
    result = np.zeros((len(flat), 3), np.uint8)
    count = visible.sum(axis=1)
    for rows in _blocks(len(flat)):
        result[rows] = _mode(flat[rows], visible[rows], share)
    shape = (grid.rows, grid.columns)
    return Mosaic(grid, result.reshape(*shape, 3), (count >= 3).reshape(shape))


def _mode(colours: Images, visible: Flags, share: float) -> Images:
    """Half-sample mode (texel, 3) of colours (texel, frame, 3)."""
    frames = visible.shape[1]
    count = visible.sum(axis=1)
    window = np.maximum(np.ceil(share * count).astype(np.int64), 2)[:, None]
    # Brightness and frame number in one integer: one sort gives both, ties in order of frame.
    key = colours.astype(np.int32).sum(axis=2) * frames + np.arange(frames, dtype=np.int32)
    key[~visible] = 10_000 * frames
    key.sort(axis=1)
    brightness, order = np.divmod(key, frames)
    start = np.arange(frames)[None]
    end = np.minimum(start + window - 1, frames - 1)
    spread = np.take_along_axis(brightness, end, axis=1) - brightness
    spread[start + window > count[:, None]] = 100_000
    first = spread.argmin(axis=1)[:, None]
    inside = (start >= first) & (start < first + window)
    ranked = np.take_along_axis(colours, order[..., None], axis=1)
    total = (ranked * inside[..., None]).sum(axis=1, dtype=np.float64)
    return np.asarray(np.rint(total / window).clip(0, 255), np.uint8)


def median_mosaic(colours: Images, seen: Flags, grid: PlaneGrid, needed: Flags) -> Mosaic:
    """Median colour of each texel over the frames that see it; needs the object masked out.

    Texels seen fewer than two times are unknown: they lie under the object.

    Args:
        colours: (frame, rows, columns, 3), see :func:`rectify`.
        seen: (frame, rows, columns).
        grid: Their texels.
        needed: (rows, columns); the others are left unknown.
    """
    frames = len(colours)
    flat = np.moveaxis(colours.reshape(frames, -1, 3), 0, 1)
    visible = seen.reshape(frames, -1).T
    count = visible.sum(axis=1)
    result = np.zeros((len(flat), 3), np.uint8)
    wanted = np.flatnonzero(needed.ravel() & (count >= 2))
    for block in _blocks(len(wanted)):
        rows = wanted[block]
        values = np.ascontiguousarray(np.moveaxis(flat[rows], 2, 1))
        np.copyto(values, 255, where=~visible[rows][:, None, :])
        values.sort(axis=2)
        n = count[rows][:, None, None]
        low = np.take_along_axis(values, (n - 1) // 2, axis=2).astype(np.int16)
        high = np.take_along_axis(values, n // 2, axis=2)
        result[rows] = ((low + high) // 2)[..., 0]
    shape = (grid.rows, grid.columns)
    known = np.zeros(len(flat), bool)
    known[wanted] = True
    return Mosaic(grid, result.reshape(*shape, 3), known.reshape(shape))


def _blocks(total: int, size: int = 16_384) -> list[slice]:
    """Slices that keep the working set small."""
    return [slice(i, min(i + size, total)) for i in range(0, total, size)]


def predict(
    mosaic: Mosaic, intrinsics: Array, T_camera_board: Array, height: int, width: int
) -> tuple[Images, Images, Images, Flags]:
    """Colour, and darkest and brightest colour that the table can show at each pixel of a frame.

    The range over a texel's neighbours forgives half a pixel of misplacement and slight blur, which
    would otherwise show up as differences along every edge of the print.

    Returns:
        Likely, lowest and highest RGB (height, width, 3); where they are known (height, width).
    """
    H = mosaic.grid.homography(intrinsics, T_camera_board)
    size = (width, height)
    colour = cv2.warpPerspective(mosaic.colour, H, size, flags=cv2.INTER_LINEAR)
    known = cv2.warpPerspective(mosaic.known.astype(np.uint8) * 255, H, size)
    kernel = np.ones((3, 3), np.uint8)
    return (
        np.asarray(colour, np.uint8),
        np.asarray(cv2.erode(colour, kernel), np.uint8),
        np.asarray(cv2.dilate(colour, kernel), np.uint8),
        np.asarray(cv2.erode(known, kernel) == 255),
    )


def exposure_gains(colours: Images, seen: Flags) -> Array:
    """Brightness factor (frame,) by which each frame has to be multiplied to match the others.

    From the ratio of each frame's texels to the texel's median over frames, in sRGB values; medians
    make it blind to the object.  The factors' geometric mean is 1.
    """
    grey = colours.astype(np.float32).sum(axis=3) / 3
    usable = seen & (grey > 15) & (grey < 250)
    gains = np.ones(len(grey))
    for _ in range(3):
        scaled = np.where(usable, grey * gains[:, None, None].astype(np.float32), np.nan)
        enough = usable.sum(axis=0) >= max(2, len(grey) // 4)
        if not enough.any():
            return np.ones(len(grey))
        reference = np.nanmedian(scaled[:, enough], axis=0)
        ratio = reference / scaled[:, enough]
        for i, row in enumerate(ratio):
            valid = row[np.isfinite(row)]
            if len(valid) > 20:
                gains[i] *= float(np.median(valid))
    return np.asarray(gains / np.exp(np.log(gains).mean()))
