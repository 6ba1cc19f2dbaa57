"""Convex pieces of a mesh, for simulators that collide convex shapes only.

A nearly convex mesh becomes its own convex hull; any other goes through CoACD (Wei et al. 2022),
whose threshold is searched until the union of the pieces is near enough to the mesh, in metres.
CoACD runs in a process of its own: it crashes beside some other geometry libraries, and there its
thread count and its seed are ours, so that the same mesh gives the same pieces.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, cKDTree

from twinloop.errors import InputError, MachineError
from twinloop.geometry.distance import MeshDistance, check_mesh, surface_points
from twinloop.geometry.mesh import mass_properties

Float = NDArray[np.float64]


@dataclass(frozen=True)
class ConvexParts:
    """Convex pieces whose union stands for a mesh, and how well it does.

    Attributes:
        parts: Vertices (n, 3) m of each piece.
        threshold: CoACD's threshold that gave them; 0 where the hull of the whole mesh did.
        error_mean: m, mean distance between the union's surface and the mesh, both ways.
        error_max: m, the largest such distance.
        volume_ratio: Volume of the union over the mesh's.
        seconds: Time that it took. It differs from run to run: never put it into an artifact.
    """

    parts: list[Float]
    threshold: float
    error_mean: float
    error_max: float
    volume_ratio: float
    seconds: float

    @property
    def hulls(self) -> int:
        """How many pieces there are."""
        return len(self.parts)

    def summary(self) -> str:
        """Return one line for people: hull count, errors in mm, volume ratio, time."""
        return (
            f"{self.hulls} hulls, {1e3 * self.error_mean:.2f} mm mean and "
            f"{1e3 * self.error_max:.2f} mm largest error, volume x {self.volume_ratio:.3f}, "
            f"{self.seconds:.1f} s"
        )


def convex_parts(
    vertices: Float,
    faces: NDArray[np.integer],
    *,
    concavity: float = 0.1,
    finest: float = 0.02,
    target: float | None = 0.0015,
    nearly_convex: float = 0.94,
    most_parts: int = 10,
    most_vertices: int = 128,
    seed: int = 0,
    time_limit: float = 300.0,
) -> ConvexParts:
    """Cut a closed mesh into convex pieces until their union is near enough to it.

    CoACD's threshold says little about millimetres, so it is searched: from `concavity` on it is
    halved until the union's mean error is at most `target`, or the next would need more than
    `most_parts` pieces, or be finer than `finest`. The best found is returned, with its error; the
    caller decides whether a missed target is bad.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3) indices, outward.
        concavity: CoACD's first threshold: largest concavity left, relative to the mesh's size.
        finest: The smallest threshold that is tried.
        target: m, mean distance between union and mesh that is good enough; None: take `concavity`
            as it is.
        nearly_convex: Share of the convex hull's volume that the mesh must fill to be kept whole,
            if its hull meets the target.
        most_parts: Most pieces.
        most_vertices: Most vertices of a piece.
        seed: CoACD's seed.
        time_limit: s, for all of CoACD's runs. Running out is an error, not a worse result: the
            pieces must not depend on how fast the machine is.

    Raises:
        InputError: No triangle mesh, one that is not closed or encloses no volume, or an argument
            out of range.
        MachineError: CoACD failed, in which case the message ends with what it printed, or took too
            long.
    """
    begin = time.monotonic()
    check_mesh(vertices, faces)
    _check_options(concavity, finest, target, most_parts, most_vertices)
    if not _encloses(faces):
        raise InputError(
            f"mesh to split: its {len(faces)} faces leave holes or are there twice; expected a "
            "closed mesh, each edge both ways as often (twinloop.geometry.repair makes it so)"
        )
    volume = mass_properties(vertices, faces).volume
    if not 0 < volume < np.inf:
        raise InputError(
            f"mesh to split: encloses {volume:.3g} m^3, expected > 0; it must be closed and wound "
            "outward (twinloop.geometry.repair makes it so)"
        )

    def judged(pieces: list[Float], threshold: float) -> ConvexParts:
        parts = [_thinned(piece, most_vertices) for piece in pieces]
        mean, most, ratio = union_error(parts, vertices, faces)
        return ConvexParts(parts, threshold, mean, most, ratio, time.monotonic() - begin)

    whole = ConvexHull(vertices)
    best: ConvexParts | None = None
    if volume >= nearly_convex * whole.volume:
        best = judged([vertices[whole.vertices]], 0.0)
        if target is None or best.error_mean <= target:
            return best
    threshold = concavity
    while True:
        left = time_limit - (time.monotonic() - begin)
        pieces = _coacd(vertices, faces, threshold, most_parts, seed, left)
        found = judged(pieces, threshold)
        if best is None or found.error_mean < best.error_mean:
            best = found
        # At the most pieces a finer threshold only merges more that it had cut.
        enough = target is None or found.error_mean <= target or found.hulls >= most_parts
        threshold /= 2
        if enough or threshold < finest:
            return replace(best, seconds=time.monotonic() - begin)


def union_error(
    parts: list[Float], vertices: Float, faces: NDArray[np.integer], samples: int = 100
) -> tuple[float, float, float]:
    """Mean and largest distance [m] between a union of convex pieces and a mesh; ratio of volumes.

    The union's surface is what of the pieces' surfaces has nothing of another piece in front of it;
    gaps narrower than half a sample's spacing, where pieces meet, count as closed. Samples of it,
    and of the mesh, are a `samples`-th of the mesh's diagonal apart; distances are exact, except
    that a point of the mesh where pieces meet is measured to the next sample of the union.

    Args:
        parts: Vertices (n, 3) m of each piece.
        vertices: (v, 3) m.
        faces: (f, 3), outward.
        samples: Samples along the diagonal.
    """
    spacing = float(np.linalg.norm(np.ptp(vertices, axis=0))) / samples
    hulls = [_hull(part) for part in parts]
    planes = [equations for _, _, equations in hulls]
    gap = 0.5 * spacing
    outer, outer_area = [], []
    for number, (points, triangles, equations) in enumerate(hulls):
        on, area = surface_points(points, triangles, spacing)
        normal = equations[MeshDistance(points, triangles).closest(on)[1], :3]
        hidden = _hidden(on + gap * normal, planes, np.full(len(on), number))
        outer.append(on[~hidden])
        outer_area.append(area[~hidden])
    union, union_area = np.concatenate(outer), np.concatenate(outer_area)
    there = MeshDistance(vertices, faces).distance(union)
    on_mesh, mesh_area = surface_points(vertices, faces, spacing)
    count = np.cumsum([0] + [len(points) for points, _, _ in hulls])
    soup = np.concatenate([t + c for (_, t, _), c in zip(hulls, count[:-1], strict=True)])
    owner = np.repeat(np.arange(len(hulls)), [len(t) for _, t, _ in hulls])
    near, face = MeshDistance(np.concatenate([p for p, _, _ in hulls]), soup).closest(on_mesh)
    back = np.linalg.norm(near - on_mesh, axis=1)
    inside = _hidden(near + gap * np.concatenate(planes)[face, :3], planes, owner[face])
    back[inside] = cKDTree(union).query(on_mesh[inside])[0]
    mean = 0.5 * (np.average(there, weights=union_area) + np.average(back, weights=mesh_area))
    volume = _union_volume(hulls, planes, spacing)
    ratio = volume / mass_properties(vertices, faces).volume
    return float(mean), float(max(there.max(), back.max())), float(ratio)


def _hull(points: Float) -> tuple[Float, NDArray[np.int64], Float]:
    """Vertices, triangles and outward planes (m, 4) of a convex hull."""
    hull = ConvexHull(points)
    return points, np.asarray(hull.simplices, dtype=np.int64), np.asarray(hull.equations)


def _hidden(points: Float, planes: list[Float], owner: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which points (n, 3) lie in another piece than their `owner` (n,)."""
    out = np.zeros(len(points), dtype=bool)
    for number, equations in enumerate(planes):
        rest = np.flatnonzero(~out & (owner != number))
        level = points[rest] @ equations[:, :3].T + equations[:, 3]
        out[rest] = level.max(axis=1) < 0
    return out


def _union_volume(
    hulls: list[tuple[Float, NDArray[np.int64], Float]], planes: list[Float], spacing: float
) -> float:
    """Volume of a union: that of a single hull exactly, else by columns of a grid.

    Along each column of the grid a convex piece is one interval; the union's length is exact, so
    that only the two directions across are sampled.
    """
    if len(hulls) == 1:
        return float(ConvexHull(hulls[0][0]).volume)
    everything = np.concatenate([points for points, _, _ in hulls])
    low, high = everything.min(axis=0), everything.max(axis=0)
    counts = np.ceil((high - low)[:2] / spacing).astype(int)
    step = (high - low)[:2] / counts
    axes = [low[i] + step[i] * (np.arange(counts[i]) + 0.5) for i in range(2)]
    column = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    ends = np.stack([_interval(column, equations) for equations in planes], axis=1)
    ends = np.where((ends[..., 0] < ends[..., 1])[..., None], ends, low[2])
    order = np.argsort(ends[..., 0], axis=1, kind="stable")
    ends = np.take_along_axis(ends, order[..., None], axis=1)
    reached = np.maximum.accumulate(ends[..., 1], axis=1)
    before = np.concatenate([np.full((len(column), 1), low[2]), reached[:, :-1]], axis=1)
    length = np.maximum(ends[..., 1] - np.maximum(ends[..., 0], before), 0).sum()
    return float(length * step.prod())


def _interval(column: Float, equations: Float) -> Float:
    """Bottom and top (n, 2) of a convex piece along vertical lines (n, 2); top < bottom: off."""
    level = -(column @ equations[:, :2].T + equations[:, 3])
    up, down = equations[:, 2] > 1e-12, equations[:, 2] < -1e-12
    flat = ~up & ~down
    top = (level[:, up] / equations[up, 2]).min(axis=1)
    bottom = (level[:, down] / equations[down, 2]).max(axis=1)
    off = (level[:, flat] < 0).any(axis=1)
    return np.stack([bottom, np.where(off, bottom - 1, top)], axis=1)


def _thinned(points: Float, most: int) -> Float:
    """At most `most` of the points: those farthest out along directions spread over the sphere."""
    count = most
    while True:
        i = np.arange(count) + 0.5
        z, turn = 1 - 2 * i / count, np.pi * (1 + 5**0.5) * i
        r = np.sqrt(1 - z**2)
        out = np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=1)
        chosen = np.unique(np.argmax(points @ out.T, axis=0))
        if len(chosen) >= min(most, len(points)) or count >= 64 * most:
            break
        count *= 2
    if len(chosen) > most:
        chosen = _spread(points, chosen, most)
    return np.asarray(points[chosen])


def _spread(points: Float, chosen: NDArray[np.integer], most: int) -> NDArray[np.integer]:
    """Farthest-point subset of `chosen`, starting at the point farthest from their middle."""
    rest = points[chosen]
    distance = np.linalg.norm(rest - rest.mean(axis=0), axis=1)
    picked: list[int] = []
    for _ in range(most):
        picked.append(int(distance.argmax()))
        to_new = np.linalg.norm(rest - rest[picked[-1]], axis=1)
        distance = to_new if len(picked) == 1 else np.minimum(distance, to_new)
    return np.asarray(chosen[np.sort(picked)])


def _check_options(
    concavity: float, finest: float, target: float | None, most_parts: int, most_vertices: int
) -> None:
    # CoACD itself aborts on some of these, and runs on for ever on others.
    for name, value, low, high in (
        ("concavity", concavity, 0.001, 1.0),
        ("finest", finest, 0.001, 1.0),
        ("target", target if target is not None else 1.0, 0.0, np.inf),
        ("most_parts", most_parts, 1, 10_000),
        ("most_vertices", most_vertices, 4, 1_000_000),
    ):
        if not low <= value <= high:
            raise InputError(f"mesh to split: {name} is {value}, expected {low:g} to {high:g}")


def _encloses(faces: NDArray[np.integer]) -> bool:
    """Whether no edge is open and no face is there twice, so that the faces have a volume."""
    turns = np.stack([np.roll(faces, -i, axis=1) for i in range(3)])
    first = turns[np.argmin(faces, axis=1), np.arange(len(faces))].astype(np.int64)
    solid = first[(first != np.roll(first, 1, axis=1)).all(axis=1)]
    if len(np.unique(solid, axis=0)) < len(solid):
        return False
    start, end = solid.ravel(), np.roll(solid, -1, axis=1).ravel()
    edges, where = np.unique(
        np.sort(np.stack([start, end], 1), axis=1), axis=0, return_inverse=True
    )
    balance = np.bincount(where.ravel(), np.where(start < end, 1, -1), minlength=len(edges))
    return len(solid) > 0 and not balance.any()


def _closed(faces: NDArray[np.integer]) -> bool:
    """Whether each edge runs once in each direction, so that CoACD need not repair the mesh."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    forward = {(int(a), int(b)) for a, b in edges}
    return len(forward) == len(edges) and all((b, a) in forward for a, b in forward)


def _coacd(
    vertices: Float,
    faces: NDArray[np.integer],
    concavity: float,
    most_parts: int,
    seed: int,
    time_limit: float,
) -> list[Float]:
    with tempfile.TemporaryDirectory(prefix="twinloop-convex-") as folder:
        mesh, pieces = Path(folder) / "mesh.npz", Path(folder) / "pieces.npz"
        np.savez(
            mesh,
            vertices=np.asarray(vertices, np.float64),
            faces=np.asarray(faces, np.int32),
            closed=_closed(faces),
            concavity=concavity,
            most_parts=most_parts,
            seed=seed,
        )
        try:
            done = subprocess.run(
                [sys.executable, "-m", "twinloop.geometry.convex", str(mesh), str(pieces)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=False,
                timeout=max(time_limit, 0.0),
            )
        except subprocess.TimeoutExpired as error:
            raise MachineError(
                f"CoACD did not finish a mesh of {len(faces)} faces at threshold {concavity} in "
                "its time limit; thin the mesh out, ask for a larger threshold or error, or allow "
                "more time"
            ) from error
        if done.returncode != 0 or not pieces.is_file():
            raise MachineError(
                f"CoACD ended with code {done.returncode} on a mesh of {len(faces)} faces; "
                "expected convex pieces. Is the mesh closed? It printed:\n"
                f"{(done.stderr or done.stdout)[-800:]}"
            )
        with np.load(pieces, allow_pickle=False) as stored:
            return [np.asarray(stored[name], np.float64) for name in sorted(stored.files)]


def _main(source: str, target: str) -> None:
    import coacd

    coacd.set_log_level("error")
    with np.load(source, allow_pickle=False) as stored:
        mesh = coacd.Mesh(stored["vertices"], stored["faces"])
        pieces = coacd.run_coacd(
            mesh,
            threshold=float(stored["concavity"]),
            max_convex_hull=int(stored["most_parts"]),
            preprocess_mode="off" if bool(stored["closed"]) else "auto",
            preprocess_resolution=30,
            resolution=1000,
            mcts_nodes=12,
            mcts_iterations=60,
            mcts_max_depth=3,
            seed=int(stored["seed"]),
        )
    arrays: dict[str, Any] = {f"piece_{i:03d}": p[0] for i, p in enumerate(pieces)}
    np.savez(target, **arrays)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
