"""Make a triangle mesh a solid: closed, manifold, consistently wound outward, in one piece.

A mesh is *manifold* here when each edge joins exactly two faces, which run along it in opposite
directions, and the faces around each vertex form one fan. Marching cubes, decimation and files of
others break that in ways that later stages (mass, distance sign, simulators) answer with garbage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry.distance import check_mesh
from twinloop.geometry.surface import TriangleSurface

Float = NDArray[np.float64]
Faces = NDArray[np.int32]
Index = NDArray[np.int64]
_NUDGE = 0.02
_ROUNDS = 4
_FLAT = "mesh of {} faces: encloses no volume; expected the surface of a solid"


@dataclass(frozen=True)
class Repaired:
    """A solid mesh and what was done to it.

    Attributes:
        vertices: (v, 3) m.
        faces: (f, 3), counter-clockwise from outside.
        holes: Boundary loops that were closed.
        filled: m^2, area of what closes them.
        turned: Faces that were turned around.
        split: Vertices that were added where the surface touched itself.
        dropped: Pieces that were left out.
    """

    vertices: Float
    faces: Faces
    holes: int
    filled: float
    turned: int
    split: int
    dropped: int


def is_manifold(faces: NDArray[np.integer]) -> bool:
    """Whether each edge joins two faces in opposite directions, and each vertex has one fan."""
    index: Index = np.asarray(faces, dtype=np.int64)
    if len(index) == 0 or len(np.unique(_directed(index))) != 3 * len(index):
        return False
    pairs, single = _pair_half_edges(np.zeros((int(index.max()) + 1, 3)), index)
    if single.any():
        return False
    return len(np.unique(_corner_classes(index, pairs))) == len(np.unique(index))


def repair(
    vertices: NDArray[np.floating],
    faces: NDArray[np.integer],
    *,
    keep: float = 1.0,
    widest_hole: float | None = None,
) -> Repaired:
    """Make a mesh closed, manifold and wound outward. A mesh that is so comes back unchanged.

    Equal vertices are joined; faces without extent, repeated and back-to-back faces go; windings
    are made to agree with most of their neighbours; where the surface touches itself along an edge
    or in a vertex it is cut so that solids separate, and the copies are drawn a little (2 % of the
    edges there) into their own side; boundary loops are closed by a fan about their middle, which
    suits holes, not open sheets; pieces are wound outward and small ones, and those inside of a
    larger one, left out.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3).
        keep: Keep pieces with at least this share of the largest piece's volume; 1 is only it.
        widest_hole: m, the longest side of the bounding box of a hole that is closed; None: any.

    Raises:
        InputError: No triangle mesh; a hole wider than `widest_hole`; or nothing that encloses a
            volume is left.
    """
    check_mesh(np.asarray(vertices), np.asarray(faces))
    points = np.asarray(vertices, dtype=np.float64)
    given = len(points)
    points, index = _join_equal(points, np.asarray(faces, dtype=np.int64))
    joined = given - len(points)
    index = _drop_degenerate(index)
    index, turned = _agree(points, index)
    holes, filled, split = 0, 0.0, 0
    for _ in range(_ROUNDS):
        pairs, single = _pair_half_edges(points, index)
        points, index, added = _split_vertices(points, index, pairs)
        split += added
        pairs, single = _pair_half_edges(points, index)
        if not single.any():
            if added == 0:
                break
            continue
        points, index, closed, area = _fill(points, index, single, widest_hole)
        holes, filled = holes + closed, filled + area
    points, index, dropped = _pieces(points, index, keep)
    if joined or split:
        points = _nudge(points, index)
    if not is_manifold(index):
        raise InputError(
            f"mesh of {len(faces)} faces: it cannot be closed without guessing its shape "
            f"({holes} holes closed, {split} vertices split); remesh it, or scan again"
        )
    return Repaired(points, index.astype(np.int32), holes, filled, turned, split, dropped)


def _join_equal(points: Float, faces: Index) -> tuple[Float, Index]:
    """Join vertices of equal position; the first of them stays where it is in the list."""
    _, first, label = np.unique(points, axis=0, return_index=True, return_inverse=True)
    used = np.zeros(len(points), dtype=bool)
    mapped = first[label.reshape(-1)][faces]
    used[mapped] = True
    return points[used], (np.cumsum(used) - 1)[mapped]


def _drop_degenerate(faces: Index) -> Index:
    """Without faces of repeated corners, repeated faces, and pairs that lie back to back."""
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]
    # The smallest index first, the winding kept: equal rows are equal faces.
    lead = faces.argmin(axis=1)
    turned = faces[np.arange(len(faces))[:, None], (lead[:, None] + np.arange(3)) % 3]
    _, first = np.unique(turned, axis=0, return_index=True)
    faces = faces[np.sort(first)]
    _, label, count = np.unique(
        np.sort(faces, axis=1), axis=0, return_inverse=True, return_counts=True
    )
    out = faces[count[label.reshape(-1)] == 1]
    if len(out) == 0:
        raise InputError(_FLAT.format(len(label)))
    return np.asarray(out, dtype=np.int64)


def _directed(faces: Index) -> Index:
    """Key of each half-edge (3 f,): from corner i to the next, face after face."""
    n = int(faces.max(initial=0)) + 1
    return np.asarray(faces * n + np.roll(faces, -1, axis=1)).reshape(-1)


def _undirected(faces: Index) -> Index:
    """Key of each half-edge's edge (3 f,), whichever way it runs."""
    n = int(faces.max(initial=0)) + 1
    other = np.roll(faces, -1, axis=1)
    return np.asarray(np.minimum(faces, other) * n + np.maximum(faces, other)).reshape(-1)


def _agree(points: Float, faces: Index) -> tuple[Index, int]:
    """Turn faces so that neighbours across an edge of two faces agree.

    Each face has a node for either winding, and neighbours join the windings that agree: a patch
    of faces then has two components, of which that of the larger area as given wins. A patch that
    is one component has no two sides (a Moebius strip) and stays as it is.
    """
    count = len(faces)
    edge = _undirected(faces)
    order = np.argsort(edge, kind="stable")
    _, start, size = np.unique(edge[order], return_index=True, return_counts=True)
    first, second = order[start[size == 2]], order[start[size == 2] + 1]
    f, g = first // 3, second // 3
    same = faces.reshape(-1)[first] == faces.reshape(-1)[second]
    rows = np.concatenate([f, f + count])
    columns = np.concatenate([np.where(same, g + count, g), np.where(same, g, g + count)])
    graph = sp.coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(2 * count, 2 * count))
    total, label = sp.csgraph.connected_components(graph, directed=False)
    corner = points[faces]
    area = np.linalg.norm(
        np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]), axis=1
    )
    as_given = np.bincount(label[:count], weights=area, minlength=total)
    turn = as_given[label[:count]] < as_given[label[count:]]
    # Equal areas: the label of the lower number, the first in the list, stays.
    tie = as_given[label[:count]] == as_given[label[count:]]
    turn |= tie & (label[:count] > label[count:])
    out = faces.copy()
    out[turn] = out[turn][:, ::-1]
    return out, int(turn.sum())


def _pair_half_edges(points: Float, faces: Index) -> tuple[Index, NDArray[np.bool_]]:
    """Pairs (p, 2) of opposite half-edges that belong together, and which (3 f,) have none.

    Where more than two faces meet along an edge, a face goes with the next one through the solid.
    """
    forward = _directed(faces)
    edge = _undirected(faces)
    order = np.argsort(edge, kind="stable")
    _, start, size = np.unique(edge[order], return_index=True, return_counts=True)
    single = np.ones(len(forward), dtype=bool)
    a, b = order[start[size == 2]], order[start[size == 2] + 1]
    opposite = forward[a] != forward[b]
    pairs = [np.stack([a[opposite], b[opposite]], axis=1)]
    for first, many in zip(start[size > 2], size[size > 2], strict=True):
        pairs.append(_pair_around(points, faces, order[first : first + many]))
    found = np.concatenate(pairs)
    single[found.reshape(-1)] = False
    return found, single


def _pair_around(points: Float, faces: Index, half: Index) -> Index:
    """Pair the half-edges (n,) of one edge; a face's solid lies clockwise of it about the edge."""
    flat = faces.reshape(-1)
    face, corner = half // 3, half % 3
    begin, end = flat[half], faces[face, (corner + 1) % 3]
    low, high = int(min(begin[0], end[0])), int(max(begin[0], end[0]))
    axis = points[high] - points[low]
    away = points[faces[face, (corner + 2) % 3]] - points[low]
    axis = axis / max(float(np.linalg.norm(axis)), 1e-300)
    across = away - np.outer(away @ axis, axis)
    e1 = across[0] / max(float(np.linalg.norm(across[0])), 1e-300)
    angle = np.arctan2(across @ np.cross(axis, e1), across @ e1)
    along = begin == low
    order = np.lexsort((half, angle))
    half, along = half[order], along[order]
    # Going around: a face against the edge, then the next along it, have the solid between them.
    pairs, n = [], len(half)
    used = np.zeros(n, dtype=bool)
    for i in range(n):
        j = (i + 1) % n
        if not along[i] and along[j] and not used[i] and not used[j]:
            pairs.append((half[i], half[j]))
            used[i] = used[j] = True
    rest_along = [h for h, a, u in zip(half, along, used, strict=True) if a and not u]
    rest_against = [h for h, a, u in zip(half, along, used, strict=True) if not a and not u]
    pairs += list(zip(rest_along, rest_against, strict=False))
    return np.asarray(pairs, dtype=np.int64).reshape(-1, 2)


def _corner_classes(faces: Index, pairs: Index) -> Index:
    """Label (f, 3) of each corner: corners joined by paired edges share a vertex."""
    count = 3 * len(faces)

    def following(half: Index) -> Index:
        return half - half % 3 + (half + 1) % 3

    a, b = pairs[:, 0], pairs[:, 1]
    rows = np.concatenate([a, following(a)])
    columns = np.concatenate([following(b), b])
    graph = sp.coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(count, count))
    label = sp.csgraph.connected_components(graph, directed=False)[1]
    return np.asarray(label, dtype=np.int64).reshape(-1, 3)


def _split_vertices(points: Float, faces: Index, pairs: Index) -> tuple[Float, Index, int]:
    """A vertex of its own for each fan; the first fan of a vertex keeps its place in the list."""
    label = _corner_classes(faces, pairs).reshape(-1)
    _, first = np.unique(label, return_index=True)
    owner = faces.reshape(-1)[first]  # which vertex each fan was at, fans in order of label
    order = np.lexsort((first, owner))
    fresh = np.r_[True, owner[order][1:] != owner[order][:-1]]
    place = np.empty(len(first), dtype=np.int64)
    place[order[fresh]] = np.arange(int(fresh.sum()))
    place[order[~fresh]] = int(fresh.sum()) + np.arange(int((~fresh).sum()))
    moved = np.empty((len(first), 3))
    moved[place] = points[owner]
    return moved, place[label].reshape(-1, 3), int((~fresh).sum())


def _fill(
    points: Float, faces: Index, single: NDArray[np.bool_], widest: float | None
) -> tuple[Float, Index, int, float]:
    """Close each boundary loop by a fan about the mean of its vertices."""
    half = np.flatnonzero(single)
    begin = faces.reshape(-1)[half]
    end = np.roll(faces, -1, axis=1).reshape(-1)[half]
    after = dict(zip(end.tolist(), begin.tolist(), strict=True))  # the fill runs the other way
    new_faces: list[tuple[int, int, int]] = []
    middles: list[Float] = []
    loops, area = 0, 0.0
    while after:
        start = next(iter(after))
        loop = [start]
        while (follower := after.pop(loop[-1], None)) is not None and follower != start:
            loop.append(follower)
        if len(loop) < 3:
            continue
        ring = points[loop]
        width = float(np.ptp(ring, axis=0).max())
        if widest is not None and width > widest:
            raise InputError(
                f"mesh: a hole of {len(loop)} edges, {width:.4g} m wide at {ring.mean(axis=0)}; "
                f"at most {widest:.4g} m are closed; scan that side too, or allow wider holes"
            )
        loops += 1
        if len(loop) == 3:
            new_faces.append((loop[0], loop[1], loop[2]))
            middle = ring[0]
        else:
            middle = ring.mean(axis=0)
            apex = len(points) + len(middles)
            middles.append(middle)
            new_faces += [(loop[i - 1], loop[i], apex) for i in range(len(loop))]
        spokes = ring - middle
        area += 0.5 * float(
            np.linalg.norm(np.cross(np.roll(spokes, 1, axis=0), spokes), axis=1).sum()
        )
    points = np.concatenate([points, np.asarray(middles).reshape(-1, 3)])
    faces = np.concatenate([faces, np.asarray(new_faces, dtype=np.int64).reshape(-1, 3)])
    return points, faces, loops, area


def _pieces(points: Float, faces: Index, keep: float) -> tuple[Float, Index, int]:
    """The pieces worth keeping, each wound outward, and how many were left out."""
    half = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]]])
    graph = sp.coo_matrix(
        (np.ones(len(half)), (half[:, 0], half[:, 1])), shape=(len(points), len(points))
    )
    label = sp.csgraph.connected_components(graph, directed=False)[1][faces[:, 0]]
    # Volumes about the middle, where rounding is least.
    corner = points[faces] - points.mean(axis=0)
    part = np.einsum("fi,fi->f", corner[:, 0], np.cross(corner[:, 1], corner[:, 2])) / 6
    volume = np.bincount(label, weights=part)
    present = np.unique(label)
    order = present[np.argsort(-np.abs(volume[present]), kind="stable")]
    largest = float(np.abs(volume[order[0]])) if len(order) else 0.0
    if not largest > 0:
        raise InputError(_FLAT.format(len(faces)))
    chosen: list[int] = []
    for piece in order:
        if chosen and abs(volume[piece]) < keep * largest:
            continue
        if chosen:
            if keep >= 1:
                continue
            probe = points[faces[label == piece][0, :1]]
            outer = faces[np.isin(label, chosen)]
            if TriangleSurface(points, outer).winding_number(probe)[0] > 0.5:
                continue
        inward = (label == piece) & (volume[piece] < 0)
        faces = np.where(inward[:, None], faces[:, ::-1], faces)
        chosen.append(int(piece))
    kept = faces[np.isin(label, chosen)]
    used = np.zeros(len(points), dtype=bool)
    used[kept] = True
    return points[used], (np.cumsum(used) - 1)[kept], len(order) - len(chosen)


def _nudge(points: Float, faces: Index) -> Float:
    """Draw vertices of equal position a little towards their own neighbours."""
    _, label, count = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    touching = count[label.reshape(-1)] > 1
    if not touching.any():
        return points
    half = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    total, number = np.zeros_like(points), np.zeros(len(points))
    np.add.at(total, half[:, 0], points[half[:, 1]])
    np.add.at(number, half[:, 0], 1.0)
    ring = total / np.maximum(number, 1.0)[:, None]
    return np.where(touching[:, None], points + _NUDGE * (ring - points), points)
