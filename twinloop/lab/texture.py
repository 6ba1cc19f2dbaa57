"""Unwrapping of any mesh into an atlas, and a procedural print that is rich in features.

Unwrapping: faces are grouped by the axis that their normal is nearest to, each connected group is
laid flat along that axis (stretch at most 1/cos 55 deg), and the charts are packed on shelves.  No
two faces share a texel, so that no two places on the object look alike by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from twinloop.lab.spec import TextureSpec

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Atlas:
    """uv (3f,2) in 0..1 with v up, face_uv (f,3) into uv, extent (width, height) in m."""

    uv: Array
    face_uv: NDArray[np.int32]
    extent: tuple[float, float]


def unwrap(vertices: Array, faces: NDArray[np.int32], padding: float = 0.004) -> Atlas:
    """Charts of a closed mesh packed side by side, ``padding`` metres apart."""
    triangles = vertices[faces]
    normal = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    axis = np.abs(normal).argmax(axis=1)
    sign = np.take_along_axis(normal, axis[:, None], axis=1)[:, 0] < 0.0
    chart = _charts(faces, 2 * axis + sign)
    flat = np.empty((len(faces), 3, 2))
    for k, (first, second) in enumerate(((1, 2), (0, 2), (0, 1))):
        mine = axis == k
        flat[mine] = triangles[mine][..., [first, second]]
        # seen from outside, the chart must not be mirrored: text stays readable
        mirrored = mine & (sign != (k == 1))
        flat[mirrored, :, 0] *= -1.0
    sizes = np.empty((chart.max() + 1, 2))
    for c in range(len(sizes)):
        corner = flat[chart == c].reshape(-1, 2)
        sizes[c] = np.ptp(corner, axis=0)
        flat[chart == c] -= corner.min(axis=0)
    places, extent = _shelves(sizes + 2.0 * padding)
    flat += (places + padding)[chart][:, None]
    uv = flat.reshape(-1, 2) / np.asarray(extent)
    return Atlas(uv, np.arange(len(uv), dtype=np.int32).reshape(-1, 3), extent)


def _charts(faces: NDArray[np.int32], side: NDArray[np.int64]) -> NDArray[np.int64]:
    """Chart number (f,) of each face: faces that share an edge and a side belong together."""
    edges = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    owner = np.repeat(np.arange(len(faces)), 3)
    order = np.lexsort(edges.T)
    edges, owner = edges[order], owner[order]
    same = (edges[1:] == edges[:-1]).all(axis=1) & (side[owner[1:]] == side[owner[:-1]])
    pairs = (owner[:-1][same], owner[1:][same])
    graph = coo_array((np.ones(same.sum()), pairs), shape=(len(faces), len(faces)))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _shelves(sizes: Array) -> tuple[Array, tuple[float, float]]:
    """Lower left corners (n,2) of rectangles packed on shelves, and the whole (width, height)."""
    width = max(float(np.sqrt(1.2 * sizes.prod(axis=1).sum())), float(sizes[:, 0].max()))
    places = np.zeros_like(sizes)
    x = y = shelf = 0.0
    for i in np.argsort(-sizes[:, 1], kind="stable"):
        if x > 0.0 and x + sizes[i, 0] > width + 1e-12:
            x, y, shelf = 0.0, y + shelf, 0.0
        places[i] = (x, y)
        x, shelf = x + sizes[i, 0], max(shelf, float(sizes[i, 1]))
    return places, (width, y + shelf)


def paint(
    extent: tuple[float, float], spec: TextureSpec, seed: int, texel: float = 0.00025
) -> Image:
    """A print (rows, columns, 3) for an atlas of the given extent (m); row 0 is the top (v = 1).

    Clouds of two scales, bands, dots, rings, bars and words, then a slight blur: corners at 2..10
    mm, which is what feature trackers and splats both can hold.
    """
    rng = np.random.default_rng([seed, 0x7E57])
    texel = max(texel, max(extent) / 1536.0)
    width, height = (max(64, int(np.ceil(e / texel))) for e in extent)
    ground, ink, accent = (
        np.array(c, dtype=np.float32) for c in (spec.ground, spec.ink, spec.accent)
    )
    image = np.empty((height, width, 3), dtype=np.float32)
    image[:] = ground
    for metres, strength in ((0.03, 14.0), (0.006, 12.0)):
        image += strength * clouds(rng, height, width, metres / texel)[..., None]
    canvas = np.clip(image, 0, 255).astype(np.uint8)
    area = extent[0] * extent[1]
    count = int(np.ceil(spec.density * area / 0.012**2))
    mm = 0.001 / texel
    colours = [ink, accent, 0.45 * ground, 0.5 * (ground + 255.0), 0.6 * ink + 0.4 * accent]
    for _ in range(count):
        colour = tuple(int(c) for c in colours[rng.integers(len(colours))])
        x, y = int(rng.uniform(0, width)), int(rng.uniform(0, height))
        _stamp(canvas, rng, colour, (x, y), mm, spec.word)
    return np.asarray(cv2.GaussianBlur(canvas, (0, 0), 0.45 * mm), dtype=np.uint8)


def _stamp(
    canvas: Image,
    rng: np.random.Generator,
    colour: tuple[int, ...],
    place: tuple[int, int],
    mm: float,
    word: str,
) -> None:
    """Draw one mark of a random kind, size and turn at ``place``."""
    kind = rng.integers(5)
    size = rng.uniform(2.0, 5.5) * mm
    x, y = place
    line: Any = {"color": colour, "lineType": cv2.LINE_AA}
    if kind == 0:
        cv2.circle(canvas, (x, y), max(1, int(0.6 * size)), thickness=-1, **line)
    elif kind == 1:
        cv2.circle(canvas, (x, y), max(2, int(size)), thickness=max(1, int(0.35 * size)), **line)
    elif kind == 2:
        box = cv2.boxPoints(((x, y), (2.2 * size, 0.8 * size), float(rng.uniform(0, 180))))
        cv2.fillConvexPoly(canvas, np.rint(box).astype(np.int32), **line)
    elif kind == 3:
        turn = rng.uniform(0, 2 * np.pi)
        angle = turn + np.array([0.0, 2.1, 4.2])
        corners = np.stack([x + size * np.cos(angle), y + size * np.sin(angle)], axis=-1)
        cv2.fillConvexPoly(canvas, np.rint(corners).astype(np.int32), **line)
    else:
        text = word if rng.random() < 0.5 else str(rng.integers(100, 9999))
        scale = 0.07 * size
        thick = max(1, int(0.22 * size))
        cv2.putText(
            canvas, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, scale, colour, thick, cv2.LINE_AA
        )


def clouds(rng: np.random.Generator, height: int, width: int, scale: float) -> NDArray[np.float32]:
    """Smooth noise (height, width) of sd about 1 whose grain is ``scale`` pixels."""
    rows, columns = (int(np.ceil(n / scale)) + 3 for n in (height, width))
    coarse = rng.standard_normal((rows, columns)).astype(np.float32)
    size = (int(np.ceil(columns * scale)), int(np.ceil(rows * scale)))
    fine = cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC)
    return np.asarray(fine[:height, :width])
