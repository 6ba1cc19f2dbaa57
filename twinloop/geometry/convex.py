"""Convex pieces of a mesh, for simulators that collide convex shapes only.

A nearly convex mesh becomes its own convex hull; any other goes through CoACD (Wei et al. 2022).
CoACD runs in a process of its own: it crashes beside some other geometry libraries, and there its
thread count and its seed are ours, so that the same mesh gives the same pieces.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from twinloop.errors import InputError, MachineError
from twinloop.geometry.mesh import mass_properties

Float = NDArray[np.float64]


def convex_parts(
    vertices: Float,
    faces: NDArray[np.integer],
    *,
    concavity: float = 0.05,
    nearly_convex: float = 0.94,
    most_parts: int = 16,
    most_vertices: int = 64,
    seed: int = 0,
) -> list[Float]:
    """Vertices (n, 3) m of each convex piece of a closed mesh.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3) indices, outward.
        concavity: CoACD's threshold: largest concavity left, relative to the mesh's size.
        nearly_convex: Share of the convex hull's volume that the mesh must fill to be kept whole.
        most_parts: Most pieces.
        most_vertices: Most vertices of a piece.
        seed: CoACD's seed.

    Raises:
        InputError: No faces, or faces that index no vertex.
        MachineError: CoACD failed; the message ends with what it printed.
    """
    if len(faces) == 0 or faces.max() >= len(vertices) or faces.min() < 0:
        worst = int(faces.max(initial=-1))
        raise InputError(
            f"mesh to split: {len(faces)} faces with index {worst} over {len(vertices)} vertices; "
            "expected faces that index the vertices"
        )
    whole = ConvexHull(vertices)
    if mass_properties(vertices, faces).volume >= nearly_convex * whole.volume:
        return [_thinned(vertices[whole.vertices], most_vertices)]
    pieces = _coacd(vertices, faces, concavity, most_parts, seed)
    return [_thinned(piece, most_vertices) for piece in pieces]


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


def _closed(faces: NDArray[np.integer]) -> bool:
    """Whether each edge runs once in each direction, so that CoACD need not repair the mesh."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    forward = {(int(a), int(b)) for a, b in edges}
    return len(forward) == len(edges) and all((b, a) in forward for a, b in forward)


def _coacd(
    vertices: Float, faces: NDArray[np.integer], concavity: float, most_parts: int, seed: int
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
        done = subprocess.run(
            [sys.executable, "-m", "twinloop.geometry.convex", str(mesh), str(pieces)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
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
