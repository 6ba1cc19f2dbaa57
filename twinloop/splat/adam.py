"""Adam over named tensors: one native pass on the CPU, moments that can change size.

    m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2
    value -= step * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

(Kingma and Ba 2015, algorithm 1.) Splats are split, dropped and
added while they are trained: `keep_and_append` takes the moments along.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat import kernels_loss
from twinloop.splat.backend import native
from twinloop.threads import each, worker_count

LANES = 16
ELEMENTS_PER_WORKER = 1 << 15
"""Fewest floats of a tensor that are worth a thread."""


class Adam:
    """Moments of named float32 tensors; the tensors themselves stay with the caller.

    On the CPU a native kernel steps, on CUDA and where there are no native kernels torch. The same
    bits from run to run and for any number of threads.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-15,
        rest: Mapping[str, float] | None = None,
    ) -> None:
        """Start with moments of zero.

        Args:
            parameters: float32 tensors by name.
            betas: Memory of the first and second moment, each in [0, 1).
            eps: Added to the root of the second moment.
            rest: By name, what to multiply the steps of a tensor (n, k, ...) by except those of
                [:, 0]: harmonics of degree 1 and up follow slower than the colour itself.

        Raises:
            InputError: Not float32, a `rest` without a tensor that has it, betas out of range.
        """
        if not all(0 <= b < 1 for b in betas) or not eps > 0:
            raise InputError(
                f"Adam: betas are {betas}, eps is {eps}; expected two numbers in [0, 1) and one "
                "above 0."
            )
        self.betas, self.eps = betas, eps
        self.rest = dict(rest or {})
        for name in self.rest:
            if name not in parameters or parameters[name].dim() < 2:
                raise InputError(
                    f"Adam: rest names {name!r}, expected one of the tensors with two dimensions "
                    f"or more among {', '.join(parameters)}."
                )
        for name, value in parameters.items():
            if value.dtype != torch.float32:
                raise InputError(f"Adam: {name} is {value.dtype}, expected float32.")
        self.count = 0
        """Steps so far."""
        self.first = {k: torch.zeros_like(v, requires_grad=False) for k, v in parameters.items()}
        self.second = {k: torch.zeros_like(v, requires_grad=False) for k, v in parameters.items()}

    @torch.no_grad()
    def step(self, parameters: Mapping[str, Tensor], steps: Mapping[str, float]) -> None:
        """Change `parameters` in place by their gradients; one without a gradient stays as it is.

        Args:
            parameters: The tensors by name, contiguous, of the moments' shapes.
            steps: Step size by name, in the tensor's own unit.

        Raises:
            InputError: A tensor whose moments have another shape, or that is not contiguous.
        """
        self.count += 1
        live = {}
        for name, value in parameters.items():
            if name not in self.first or value.shape != self.first[name].shape:
                moments = tuple(self.first[name].shape) if name in self.first else "none"
                raise InputError(
                    f"Adam: {name} has shape {tuple(value.shape)}, its moments have {moments}; "
                    "call keep_and_append when Gaussians are dropped or added."
                )
            if value.grad is not None and value.numel():
                if not value.is_contiguous():
                    raise InputError(f"Adam: {name} is not contiguous; pass {name}.contiguous().")
                live[name] = value
        b1, b2 = self.betas
        sizes = [steps[name] / (1 - b1**self.count) for name in live]
        root = 1 / math.sqrt(1 - b2**self.count)
        on_cpu = all(v.device.type == "cpu" for v in live.values())
        if on_cpu and native(kernels_loss):
            self._native(live, sizes, root)
            return
        for (name, value), size in zip(live.items(), sizes, strict=True):
            m, v, gradient = self.first[name], self.second[name], value.grad
            assert gradient is not None
            m.lerp_(gradient, 1 - b1)
            v.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
            change = m / (v.sqrt() * root + self.eps)
            if name in self.rest:
                change[:, 1:] *= self.rest[name]
            value.sub_(change, alpha=size)

    def _native(self, live: dict[str, Tensor], sizes: list[float], root: float) -> None:
        b1, b2 = self.betas
        held, rows, most = [], [], 0
        for name, value in live.items():
            assert value.grad is not None
            tensors = [value.grad.contiguous(), self.first[name], self.second[name]]
            tensors.append(self._factor(name, value))
            held.append(tensors)  # alive until the kernel is through
            addresses = [value.data_ptr(), *(t.data_ptr() for t in tensors)]
            rows.append([*addresses, len(tensors[-1]) // LANES, value.numel()])
            most = max(most, value.numel())
        table = torch.tensor(rows, dtype=torch.int64)
        step = torch.tensor(sizes, dtype=torch.float32)
        parts = max(1, min(worker_count(), most // ELEMENTS_PER_WORKER))
        data = [table.data_ptr(), step.data_ptr(), len(rows)]
        rest = [*data, b1, b2, 1 - b1, 1 - b2, root, self.eps]

        def work(part: int) -> None:
            wp.launch(kernels_loss.adam_step, dim=1, inputs=[part, parts, *rest], device="cpu")

        each(work, parts)

    def _factor(self, name: str, value: Tensor) -> Tensor:
        """Factors of successive elements' steps, over the shortest period of whole vectors."""
        if name not in self.rest or not value.numel():
            return torch.ones(LANES)
        row, head = value[0].numel(), value[0, 0].numel()
        period = math.lcm(row, LANES)
        one = torch.full((row,), float(self.rest[name]))
        one[:head] = 1.0
        return one.repeat(period // row)

    def keep_and_append(self, keep: Tensor, count: int, names: Sequence[str] | None = None) -> None:
        """Take the moments along when rows are dropped and added.

        Args:
            keep: (n,) bool, or the indices of the rows that stay, in their new order.
            count: Rows that follow them, with moments of zero.
            names: The tensors that are meant; all of them unless given.
        """
        for store in (self.first, self.second):
            for name in self.first if names is None else names:
                kept = store[name][keep]
                store[name] = torch.cat([kept, kept.new_zeros(count, *kept.shape[1:])])

    def forget(self, rows: Tensor | None = None, names: Sequence[str] | None = None) -> None:
        """Set moments to zero where the values have jumped.

        Args:
            rows: Indices or bool (n,); all rows unless given.
            names: The tensors that are meant; all of them unless given.
        """
        for store in (self.first, self.second):
            for name in self.first if names is None else names:
                if rows is None:
                    store[name].zero_()
                else:
                    store[name][rows] = 0.0

    def state(self) -> dict[str, NDArray[np.generic]]:
        """All that a continued run needs: count, and first/NAME, second/NAME (copies)."""
        out: dict[str, NDArray[np.generic]] = {"count": np.array(self.count, np.int64)}
        for part, store in (("first", self.first), ("second", self.second)):
            out |= {f"{part}/{k}": v.cpu().numpy().copy() for k, v in store.items()}
        return out

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what `state` gave, also when the number of rows was another.

        Raises:
            InputError: A moment is missing, of another type or row shape, or not finite.
        """
        fresh: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
        rows: dict[str, int] = {}
        for part, store, new in zip(
            ("first", "second"), (self.first, self.second), fresh, strict=True
        ):
            for name, old in store.items():
                key = f"{part}/{name}"
                found = state.get(key)
                if (
                    found is None
                    or found.dtype != np.float32
                    or found.shape[1:] != tuple(old.shape[1:])
                    or found.ndim != old.dim()
                    or rows.setdefault(name, len(found) if found.ndim else 1)
                    != (len(found) if found.ndim else 1)
                ):
                    what = "missing" if found is None else f"{found.dtype} {found.shape}"
                    raise InputError(
                        f"Adam's state: {key} is {what}, expected float32 with rows of shape "
                        f"{tuple(old.shape[1:])}, as many as in the other moment."
                    )
                if not np.isfinite(found).all() or (
                    part == "second" and bool(np.less(found, 0).any())
                ):
                    raise InputError(
                        f"Adam's state: {key} has values that are not finite or, in a second "
                        "moment, negative; the checkpoint is damaged: start anew."
                    )
                new[name] = torch.from_numpy(np.array(found, copy=True)).to(old.device)
        count = np.asarray(state.get("count", -1))
        if count.shape != () or count.dtype.kind not in "iu" or int(count) < 0:
            raise InputError("Adam's state: count is missing or no whole number from 0 on.")
        self.count = int(count)
        self.first, self.second = fresh
