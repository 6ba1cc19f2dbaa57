"""The rasterisers' speed on one core: 3D Gaussians and surfels, threads, torch eager as the peer.

The scene is random splats on the Stanford bunny, 45-50 % of the image covered, some fifty of them
counting in each covered pixel. Times are CPU time of the calling thread with one worker, the least
of the repeats, forward and backward with projection and harmonics of degree 2, through the public
functions: colours, depth and alpha of 3D Gaussians, and of surfels normals and distortion too.
Speed-up by threads is wall time and says something on an idle machine only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import trimesh
from scipy.spatial.transform import Rotation
from torch import Tensor

from benchmarks.rows import Figure
from tests.realdata import ROOT as DATA
from twinloop.splat.rasterize import rasterization
from twinloop.threads import torch_on_one_thread

BUNNY = DATA / "bunny" / "bunny.obj"
CASES = ((5000, 200), (5000, 400), (20000, 200), (20000, 400))
TARGETS = {
    ("3DGS", 5000, 200): 10.0,
    ("3DGS", 20000, 400): 35.0,
    ("2DGS", 5000, 200): 15.0,
    ("2DGS", 20000, 400): 55.0,
}
TILE = 16


@dataclass(frozen=True)
class Scene:
    """Splats (means m, quaternions, scales m, opacities, harmonics) and one camera."""

    means: Tensor
    quats: Tensor
    scales: Tensor
    opacities: Tensor
    harmonics: Tensor
    view: Tensor
    k: Tensor
    size: int


@cache
def scene(count: int, size: int) -> Scene:
    """`count` flat splats on the bunny in an image of `size` px."""
    rng = np.random.default_rng(0)
    mesh = trimesh.load(BUNNY, force="mesh")
    mesh.vertices -= mesh.bounds.mean(axis=0)
    mesh.vertices /= np.abs(mesh.vertices).max()
    points, faces = trimesh.sample.sample_surface(mesh, count, seed=0)
    normals = mesh.face_normals[faces]
    spacing = np.sqrt(mesh.area / count)
    points = points + normals * rng.normal(0, 0.15 * spacing, (count, 1))
    scales = spacing * np.exp(rng.normal(-0.1, 0.5, (count, 3)))
    scales[:, 2] *= 0.2
    first = np.cross(normals, rng.normal(size=(count, 3)))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    axes = np.stack([first, np.cross(normals, first), normals], axis=-1)
    quats = Rotation.from_matrix(axes).as_quat()[:, [3, 0, 1, 2]]
    opacities = np.clip(rng.beta(1.5, 1.2, count), 0.02, 0.98)
    view = np.eye(4)
    view[:3, :3] = Rotation.from_euler("xyz", [0.3, 0.5, 3.0]).as_matrix()
    view[2, 3] = 2.6
    k = np.array([[1.1 * size, 0, size / 2], [0, 1.1 * size, size / 2], [0, 0, 1]])
    arrays = (points, quats, scales, opacities, 0.1 * rng.normal(size=(count, 9, 3)), view, k)
    return Scene(
        *(torch.tensor(np.ascontiguousarray(a), dtype=torch.float32) for a in arrays), size
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let the rasterisers use `count` threads inside the block."""
    before = os.environ.get("TWINLOOP_THREADS")
    os.environ["TWINLOOP_THREADS"] = str(count)
    try:
        with torch_on_one_thread():
            yield
    finally:
        os.environ.pop("TWINLOOP_THREADS")
        if before is not None:
            os.environ["TWINLOOP_THREADS"] = before


def least(work: Callable[[], None], repeats: int, clock: Callable[[], float]) -> float:
    """Least ms of `repeats` calls after a first one."""
    work()
    spent = []
    for _ in range(repeats):
        start = clock()
        work()
        spent.append(clock() - start)
    return 1e3 * min(spent)


def step(kind: str, count: int, size: int) -> Callable[[], None]:
    """One forward and backward pass with given gradients of the images."""
    s = scene(count, size)
    free = [
        t.clone().requires_grad_() for t in (s.means, s.quats, s.scales, s.opacities, s.harmonics)
    ]
    g = torch.Generator().manual_seed(0)
    pulls: list[Tensor] = []

    def run() -> None:
        for t in free:
            t.grad = None
        arguments = (*free, s.view[None], s.k[None], size, size)
        if kind == "3DGS":
            image, alpha, _ = rasterization(*arguments, sh_degree=2, render_mode="RGB+D")
            outputs = [image, alpha]
        else:
            from twinloop.splat.rasterize_2dgs import rasterization_2dgs

            image, alpha, normals, _, distortion, *_ = rasterization_2dgs(
                *arguments,
                sh_degree=2,
                render_mode="RGB+D",
                distloss=True,
                surface_normals=False,
            )
            outputs = [image, alpha, normals, distortion]
        if not pulls:
            pulls.extend(torch.randn(t.shape, generator=g) for t in outputs)
        torch.autograd.backward(outputs, pulls)

    return run


def eager(s: Scene) -> Callable[[], None]:
    """The peer: compositing of the same splats by torch operators, tiles in padded batches.

    Its projection, order and lists are taken as given (ours) and not timed; forward and backward
    are of the compositing alone.
    """
    _, _, info = rasterization(
        s.means, s.quats, s.scales, s.opacities, s.harmonics[:, 0], s.view[None], s.k[None],
        s.size, s.size,
    )  # fmt: skip
    seen = torch.nonzero(info["radii"][0, :, 0] > 0)[:, 0]
    seen = seen[torch.argsort(info["depths"][0, seen])]
    centre, conic = info["means2d"][0, seen].detach(), info["conics"][0, seen]
    radius = info["radii"][0, seen].float()
    features = torch.cat([s.harmonics[seen, 0], info["depths"][0, seen, None]], dim=1)
    free = [
        t.clone().requires_grad_() for t in (centre, conic, info["opacities"][0, seen], features)
    ]
    across = -(-s.size // TILE)
    corners = torch.cartesian_prod(torch.arange(across), torch.arange(across)).flip(1) * TILE
    inside = torch.cartesian_prod(torch.arange(TILE), torch.arange(TILE)).flip(1) + 0.5
    lists = []
    for corner in corners.float():
        near = (centre + radius > corner) & (centre - radius < corner + TILE)
        lists.append(torch.nonzero(near.all(dim=1))[:, 0])
    by_length = sorted(range(len(lists)), key=lambda t: len(lists[t]))
    batches = []
    for i in range(0, len(by_length), 16):
        tiles = [t for t in by_length[i : i + 16] if len(lists[t])]
        if tiles:
            rows = [lists[t] for t in tiles]
            index = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            real = torch.arange(index.shape[1]) < torch.tensor([len(r) for r in rows])[:, None]
            batches.append((index, real, corners[tiles][:, None] + inside))

    def run() -> None:
        for t in free:
            t.grad = None
        means, conics, opacities, colors = free
        total = torch.zeros(())
        for index, real, pixels in batches:
            delta = pixels[:, :, None] - means[index][:, None]
            x, y = delta.unbind(-1)
            a, b, c = conics[index][:, None].unbind(-1)
            sigma = 0.5 * (a * x * x + c * y * y) + b * x * y
            alpha = (opacities[index][:, None] * torch.exp(-sigma)).clamp_max(0.999)
            alpha = torch.where((alpha >= 1 / 255) & real[:, None], alpha, 0.0)
            passed = torch.cumsum(torch.log1p(-alpha), dim=2)
            alpha = torch.where(passed.detach() > np.log(1e-4), alpha, 0.0)
            before = torch.nn.functional.pad(passed[..., :-1], (1, 0)).exp()
            total = total + torch.bmm(alpha * before, colors[index]).sum()
        total.backward()

    return run


def speed() -> list[Figure]:
    """CPU ms of one core per step, both kinds, four sizes."""
    figures = []
    with threads(1):
        for kind in ("3DGS", "2DGS"):
            for count, size in CASES:
                figures.append(
                    Figure(
                        figure=f"{kind} {count // 1000}k splats at {size} px, forward and backward",
                        value=least(step(kind, count, size), 15, time.thread_time),
                        unit="CPU ms",
                        target=TARGETS.get((kind, count, size)),
                        better="lower",
                        n=15,
                    )
                )
    return figures


def thread_scaling() -> list[Figure]:
    """Wall time with one thread over wall time with two, 20k splats at 400 px."""
    figures = []
    for kind in ("3DGS", "2DGS"):
        work = step(kind, 20000, 400)
        wall = []
        for count in (1, 2):
            with threads(count):
                wall.append(least(work, 15, time.perf_counter))
        figures.append(
            Figure(
                figure=f"{kind} 20k splats at 400 px: two threads faster than one by",
                value=wall[0] / wall[1],
                unit="x",
                target=1.6,
                better="higher",
                n=15,
                peer=f"wall {wall[0]:.1f} and {wall[1]:.1f} ms; one core of two must be idle",
            )
        )
    return figures


def against_eager() -> list[Figure]:
    """Compositing only, 20k splats at 400 px: torch eager over ours, in one run."""
    s = scene(20000, 400)
    with threads(1):
        theirs = least(eager(s), 2, time.thread_time)
        ours = least(_compositing(s), 15, time.thread_time)
    return [
        Figure(
            figure="3DGS 20k splats at 400 px, compositing only: faster than torch eager by",
            value=theirs / ours,
            unit="x",
            target=50.0,
            better="higher",
            n=2,
            peer=f"tile-batched torch eager {theirs:.0f} CPU ms, ours {ours:.1f}",
        )
    ]


def _compositing(s: Scene) -> Callable[[], None]:
    """Forward and backward of the compositor alone: projection and lists are given."""
    from twinloop.splat.cpu import renderer
    from twinloop.splat.cpu_view import Settings, View

    renderer()  # compiles the kernels
    settings = Settings(
        Ks=s.k[None].double(),
        width=s.size,
        height=s.size,
        near=0.01,
        far=1e10,
        eps2d=0.3,
        radius_clip=0.0,
        antialiased=False,
        bases=None,
        color=True,
        depth=True,
    )
    colors = s.harmonics[:, 0].contiguous()
    view = View(s.means, s.quats, s.scales, s.opacities, colors, s.view, settings, 0)
    view.forward()
    pull = torch.randn(s.size, s.size, 4), torch.randn(s.size, s.size)

    def run() -> None:
        view.composite()
        view.composite_backward(*pull)

    return run
