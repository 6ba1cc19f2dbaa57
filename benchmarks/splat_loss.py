"""Cost of the loss and of Adam on one core, beside torch in the same run.

`figures()` is a row for a suite; alone: ``python -m benchmarks.splat_loss``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.rows import Figure, table
from twinloop.splat.adam import Adam
from twinloop.splat.loss import masked_loss
from twinloop.threads import torch_on_one_thread


def cpu_ms(work: Callable[[], object], repeats: int = 25) -> float:
    """CPU time of this thread for one call, ms; the least of several."""
    work()
    best = float("inf")
    for _ in range(repeats):
        started = time.thread_time()
        work()
        best = min(best, time.thread_time() - started)
    return 1e3 * best


def _pictures(side: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    alpha, mask = (torch.rand(side, side, generator=g) for _ in range(2))
    image, truth = (torch.rand(side, side, 3, generator=g) for _ in range(2))
    return [image * alpha[..., None], alpha, truth, mask, torch.rand(3, generator=g)]


def _loss(side: int) -> float:
    values = _pictures(side)

    def work() -> None:
        image, alpha = (t.clone().requires_grad_() for t in values[:2])
        masked_loss(image, alpha, *values[2:]).backward()

    return cpu_ms(work)


def _adam(count: int) -> float:
    """One step of surfels with harmonics of degree 1: 22 floats each."""
    g = torch.Generator().manual_seed(0)
    shapes = {"means": (3,), "quaternions": (4,), "scales": (2,), "opacities": (), "sh": (4, 3)}
    values = {k: torch.randn(count, *s, generator=g) for k, s in shapes.items()}
    for value in values.values():
        value.grad = torch.randn(value.shape, generator=g)
    adam = Adam(values, rest={"sh": 0.25})
    steps = dict.fromkeys(values, 1e-3)
    return cpu_ms(lambda: adam.step(values, steps))


def figures() -> list[Figure]:
    """Loss with gradient at two sizes and an Adam step, native and torch, all on one thread."""
    before = {k: os.environ.get(k) for k in ("TWINLOOP_THREADS", "TWINLOOP_NATIVE")}
    found = []
    try:
        os.environ["TWINLOOP_THREADS"] = "1"
        with torch_on_one_thread():
            measured: list[tuple[str, Callable[[], float], float | None]] = [
                ("L1 + SSIM + alpha loss with gradient, 200 x 200", lambda: _loss(200), 4.5),
                ("L1 + SSIM + alpha loss with gradient, 400 x 400", lambda: _loss(400), None),
                ("Adam, 15,000 surfels of 22 floats", lambda: _adam(15_000), 0.7),
            ]
            for name, work, target in measured:
                ms = {}
                for native in ("1", "0"):
                    os.environ["TWINLOOP_NATIVE"] = native
                    ms[native] = work()
                peer = f"torch, same run: {ms['0']:.1f}"
                found.append(Figure(name, ms["1"], "CPU-ms", target, "lower", 25, peer=peer))
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    return found


if __name__ == "__main__":
    from dataclasses import asdict

    rows = [asdict(f) for f in figures()]
    print(table(rows))
    for figure in rows:
        print(f"{figure['figure']}: {figure['peer']}")
