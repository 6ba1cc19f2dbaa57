"""LPIPS (Zhang et al. 2018), AlexNet, where its weights lie on disk; they are never downloaded.

The weights are a safetensors file, so that nothing is unpickled: the five convolutions of
torchvision's AlexNet as ``features.{0,3,6,8,10}.{weight,bias}``, and LPIPS' linear layers v0.1 as
``lin{0..4}.weight`` with 64, 192, 384, 256, 256 entries each.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from twinloop.errors import InputError

VARIABLE = "TWINLOOP_LPIPS"
# Index in AlexNet, kernel, channels in and out, stride, padding, pooling before.
_LAYERS = (
    (0, 11, 3, 64, 4, 2, False),
    (3, 5, 64, 192, 1, 2, True),
    (6, 3, 192, 384, 1, 1, True),
    (8, 3, 384, 256, 1, 1, False),
    (10, 3, 256, 256, 1, 1, False),
)
_SHIFT = (-0.030, -0.088, -0.188)
_SCALE = (0.458, 0.448, 0.450)
LEAST = 63
"""Smallest side (px) that AlexNet's three reductions leave anything of."""


class Lpips:
    """The distance of two pictures; smaller is more alike."""

    def __init__(self, weights: dict[str, Tensor], where: str = "LPIPS weights") -> None:
        """Take the weights by name.

        Raises:
            InputError: A tensor is missing or has another shape.
        """
        self.weights = {}
        for i, (at, kernel, inner, outer, *_) in enumerate(_LAYERS):
            for name, count in (
                (f"features.{at}.weight", (outer, inner, kernel, kernel)),
                (f"features.{at}.bias", (outer,)),
                (f"lin{i}.weight", (outer,)),
            ):
                found = weights.get(name)
                if found is None or found.numel() != int(np.prod(count)):
                    what = "missing" if found is None else f"of shape {tuple(found.shape)}"
                    raise InputError(f"{where}: {name} is {what}, expected shape {count}.")
                self.weights[name] = found.float().reshape(count)

    def __call__(self, a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
        """Distance of two pictures (h, w, 3) with values 0..1, at least `LEAST` px a side.

        Raises:
            InputError: Pictures of different shapes, or too small.
        """
        if a.shape != b.shape or a.ndim != 3 or min(a.shape[:2]) < LEAST:
            raise InputError(
                f"LPIPS: pictures of shapes {a.shape} and {b.shape}, expected two alike of at "
                f"least {LEAST} x {LEAST} px."
            )
        pair = torch.from_numpy(np.stack([a, b]).astype(np.float32)).permute(0, 3, 1, 2)
        shift, scale = (torch.tensor(v)[None, :, None, None] for v in (_SHIFT, _SCALE))
        x = (2 * pair - 1 - shift) / scale
        total = 0.0
        with torch.no_grad():
            for i, (at, _, _, _, stride, padding, pooled) in enumerate(_LAYERS):
                if pooled:
                    x = functional.max_pool2d(x, 3, 2)
                weight, bias = (self.weights[f"features.{at}.{n}"] for n in ("weight", "bias"))
                x = functional.relu(functional.conv2d(x, weight, bias, stride, padding))
                unit = x / (x.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-10)
                apart = (unit[0] - unit[1]) ** 2
                weighted = apart * self.weights[f"lin{i}.weight"][:, None, None]
                total += float(weighted.sum(dim=0).mean())
        return total


def lpips_of_environment() -> Lpips | None:
    """LPIPS with the weights that ``TWINLOOP_LPIPS`` points to; None where it is not set.

    Raises:
        InputError: The file is not there, or holds something else.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    path = Path(text)
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{VARIABLE}={path}: cannot be read as safetensors ({error}); unset it to go without "
            "LPIPS."
        ) from error
    return Lpips(weights, str(path))
