"""Shapes of lab objects: watertight low-polygon meshes with their convex collision pieces.

Every builder returns a Shape in the object frame: z up at rest, origin at the bottom centre of the
bounding box.  Meshes are low in vertices because software rendering costs per vertex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

Array = NDArray[np.float64]
Faces = NDArray[np.int32]
Part = tuple[Array, Faces]


@dataclass(frozen=True)
class Shape:
    """vertices (v,3) m, faces (f,3) outward, convex parts [(vertices, faces)]."""

    vertices: Array
    faces: Faces
    parts: list[Part]


def convex_hull(points: Array) -> Part:
    """Convex hull of points (n,3) as a watertight mesh with outward faces."""
    hull = ConvexHull(points)
    used = np.unique(hull.simplices)
    index = np.full(len(points), -1, dtype=np.int32)
    index[used] = np.arange(len(used), dtype=np.int32)
    triangles = points[hull.simplices]
    normal = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    inward = np.einsum("ni,ni->n", normal, hull.equations[:, :3]) < 0.0
    faces = index[hull.simplices]
    faces[inward] = faces[inward][:, ::-1]
    return points[used], faces


def grounded(vertices: Array) -> Array:
    """Vertices moved so that the bounding box's bottom centre is the origin."""
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    return np.asarray(vertices - np.array([*(0.5 * (low + high))[:2], low[2]]))


def rounded_box(size: Sequence[float], radius: float, segments: int = 3) -> Shape:
    """Box of a size (x,y,z) whose edges and corners are rounded with ``radius`` (m)."""
    half = 0.5 * np.asarray(size, dtype=np.float64)
    radius = min(radius, 0.99 * float(half.min()))
    angle = np.linspace(0.0, 0.5 * np.pi, segments + 1)
    azimuth, polar = np.meshgrid(angle, angle, indexing="ij")
    octant = np.stack(
        [np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)], axis=-1
    ).reshape(-1, 3)
    octant = np.unique(np.round(octant, 12), axis=0)
    corners = [
        (octant * radius + half - radius) * np.array([sx, sy, sz])
        for sx in (-1, 1)
        for sy in (-1, 1)
        for sz in (-1, 1)
    ]
    hull = convex_hull(np.unique(np.concatenate(corners), axis=0))
    vertices = grounded(hull[0])
    return Shape(vertices, hull[1], [(vertices, hull[1])])


def revolve(
    profile: Sequence[tuple[float, float]],
    size: Sequence[float] | None,
    segments: int = 32,
    breaks: Sequence[int] = (),
    phase: float = 0.0,
) -> Shape:
    """Solid of revolution about z, stretched to the bounding box ``size`` (ellipses are possible).

    size: x, y, z in m; None keeps the profile's own measures.
    profile: (radius, height) from bottom to top, any units; the mesh is closed with flat ends.
    breaks: indices into the profile where a convex piece ends and the next begins.
    phase: angle of the first column, as a share of one step.
    """
    curve = np.asarray(profile, dtype=np.float64)
    theta = 2.0 * np.pi * (np.arange(segments) + phase) / segments
    ring = np.stack([np.cos(theta), np.sin(theta)], axis=-1)
    rows = np.concatenate(
        [np.column_stack([r * ring, np.full(segments, z)]) for r, z in curve], axis=0
    )
    ends = np.array([[0.0, 0.0, curve[0, 1]], [0.0, 0.0, curve[-1, 1]]])
    vertices = np.concatenate([rows, ends])
    faces: list[tuple[int, int, int]] = []
    bottom, top = len(rows), len(rows) + 1
    last = (len(curve) - 1) * segments
    for i in range(segments):
        j = (i + 1) % segments
        faces.append((bottom, j, i))
        faces.append((top, last + i, last + j))
        for row in range(len(curve) - 1):
            a, b = row * segments, (row + 1) * segments
            faces.append((a + i, a + j, b + j))
            faces.append((a + i, b + j, b + i))
    vertices = grounded(vertices)
    if size is not None:
        vertices = vertices * (np.asarray(size, dtype=np.float64) / np.ptp(vertices, axis=0))
    stops = [0, *breaks, len(curve) - 1]
    rings = vertices[:-2].reshape(len(curve), segments, 3)
    parts = [convex_hull(rings[a : b + 1].reshape(-1, 3)) for a, b in pairwise(stops)]
    return Shape(vertices, np.asarray(faces, dtype=np.int32), parts)


def extrude(
    points: Array, cells: Sequence[Sequence[int]], depth: float, pieces: Sequence[Sequence[int]]
) -> Shape:
    """Plate of thickness ``depth`` along y from a flat figure in the x-z plane.

    points (n,2): x, z.  cells: convex polygons (counter-clockwise, indices) that tile the figure
    and meet corner to corner, so the mesh is watertight.  pieces: convex corner sets for
    collisions.
    """
    n = len(points)
    front = np.column_stack([points[:, 0], np.full(n, -0.5 * depth), points[:, 1]])
    back = front + np.array([0.0, depth, 0.0])
    vertices = np.concatenate([front, back])
    faces: list[tuple[int, int, int]] = []
    edges = {(c[i], c[(i + 1) % len(c)]) for c in cells for i in range(len(c))}
    for cell in cells:
        for i in range(1, len(cell) - 1):
            faces.append((cell[0], cell[i], cell[i + 1]))  # seen from -y: counter-clockwise
            faces.append((n + cell[0], n + cell[i + 1], n + cell[i]))
    for a, b in sorted(edges):
        if (b, a) not in edges:
            faces.append((a, n + a, n + b))
            faces.append((a, n + b, b))
    parts = [convex_hull(np.concatenate([front[list(p)], back[list(p)]])) for p in pieces]
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    shift = np.array([*(0.5 * (low + high))[:2], low[2]])
    return Shape(
        vertices - shift, np.asarray(faces, dtype=np.int32), [(v - shift, f) for v, f in parts]
    )


def studded_brick(size: Sequence[float], columns: int = 2, rows: int = 4, sides: int = 12) -> Shape:
    """A toy brick on its end: studs on the -y face, ``columns`` along x and ``rows`` along z.

    size: bounding box with the studs. Studs are 0.6 of a cell wide and take 18 % of the thickness.
    """
    width, thickness, height = size
    stud = 0.18 * thickness
    depth = thickness - stud
    cell = np.array([width / columns, height / rows])
    points = np.array(
        [
            (i * cell[0] - 0.5 * width, j * cell[1])
            for j in range(rows + 1)
            for i in range(columns + 1)
        ]
    )
    cells = [
        (a, a + 1, a + columns + 2, a + columns + 1)
        for a in (j * (columns + 1) + i for j in range(rows) for i in range(columns))
    ]
    corners = (0, columns, len(points) - 1, len(points) - 1 - columns)
    plate = extrude(points, cells, depth, [corners])
    y = -0.5 * depth
    is_front = (plate.vertices[plate.faces, 1] < y + 1e-9).all(axis=1)
    faces = [plate.faces[~is_front]]
    vertices = [plate.vertices]
    parts = list(plate.parts)
    theta = 2.0 * np.pi * np.arange(sides) / sides
    ring = 0.3 * float(cell.min()) * np.stack([np.cos(theta), np.sin(theta)], axis=-1)
    for number, quad in enumerate(cells):
        centre = points[list(quad)].mean(axis=0)
        flat = ring + centre
        root = np.column_stack([flat[:, 0], np.full(sides, y), flat[:, 1]])
        head = root - np.array([0.0, stud, 0.0])
        first = len(plate.vertices) + number * 2 * sides
        vertices += [root, head]
        faces.append(_stud_faces(quad, first, sides))
        parts.append(convex_hull(np.concatenate([root, head])))
    shift = np.array([0.0, 0.5 * stud, 0.0])
    return Shape(
        np.concatenate(vertices) + shift, np.concatenate(faces), [(v + shift, f) for v, f in parts]
    )


def _stud_faces(quad: Sequence[int], first: int, sides: int) -> Faces:
    """Faces of one cell: the face around the stud, the stud's wall and its head.

    quad: the cell's corners, counter-clockwise from the low left; first: index of the root ring,
    which starts at angle 0, followed by the head ring.
    """
    quarter = sides // 4
    root, head = first, first + sides
    faces: list[tuple[int, int, int]] = []
    for q in range(4):  # the corner between the directions q and q + 1
        corner, before = quad[(q + 2) % 4], quad[(q + 1) % 4]
        faces.append((before, corner, root + q * quarter))
        for k in range(q * quarter, (q + 1) * quarter):
            faces.append((root + k, corner, root + (k + 1) % sides))
    for k in range(sides):
        n = (k + 1) % sides
        faces.append((root + k, root + n, head + n))
        faces.append((root + k, head + n, head + k))
    faces.extend((head, head + k, head + k + 1) for k in range(1, sides - 1))
    return np.asarray(faces, dtype=np.int32)
