"""What both rasterisers ask of their arguments before any memory is taken."""

from __future__ import annotations

import math
from numbers import Integral

import torch
from torch import Tensor

from twinloop.errors import InputError, MachineError

LARGEST = 32768
"""Greatest width and height, px."""
MOST_VALUES = 2**30
"""Most numbers of all images of a call together: 4 GiB."""
FOCAL = (1e-6, 1e9)
"""Least and greatest focal length, px; the principal point is at most the latter away."""


def check_image(
    name: str, width: int, height: int, near_plane: float, far_plane: float, radius_clip: float
) -> None:
    """Check an image's size, its depths (m) and the radius (px) that is left out.

    Raises:
        InputError: No integers of 1 to `LARGEST`, planes in the wrong order, or no numbers.
    """
    for key, pixels in (("width", width), ("height", height)):
        if not isinstance(pixels, Integral) or not 1 <= int(pixels) <= LARGEST:
            raise InputError(
                f"{name}: {key} is {pixels!r} px, expected an integer of 1 to {LARGEST}"
            )
    if not 0 < near_plane < far_plane:
        raise InputError(
            f"{name}: near_plane {near_plane} and far_plane {far_plane} m, expected "
            "0 < near_plane < far_plane"
        )
    if math.isnan(radius_clip):
        raise InputError(f"{name}: radius_clip is {radius_clip} px, expected a number")


def check_memory(name: str, cameras: int, width: int, height: int, channels: int) -> None:
    """Refuse images of more than `MOST_VALUES` numbers, which no memory is for.

    Raises:
        InputError: See above.
    """
    if (values := cameras * width * height * channels) > MOST_VALUES:
        raise InputError(
            f"{name}: {cameras} images of {width} x {height} px with {channels} channels are "
            f"{values:.3g} numbers, expected at most {MOST_VALUES:.3g}; render fewer cameras or "
            "channels at once, or the image in crops (shift cx and cy)"
        )


def check_values(name: str, opacities: Tensor, Ks: Tensor) -> None:
    """Check opacities (n,) and camera matrices (c, 3, 3).

    Raises:
        InputError: Opacities outside 0..1, focal lengths not within `FOCAL`, principal points
            farther away than that, or skew.
    """
    if len(opacities):
        low, high = opacities.detach().aminmax()
        if bool((low < 0) | (high > 1)):
            raise InputError(
                f"{name}: opacities from {float(low)} to {float(high)}, expected 0 to 1; are they "
                "logits, without the sigmoid?"
            )
    for i, k in enumerate(Ks.tolist()):
        if not (k[0][0] > 0 and k[1][1] > 0 and k[0][1] == 0 and k[1][0] == 0):
            raise InputError(
                f"{name}: Ks[{i}] is {k}, expected focal lengths above zero (px) and no skew"
            )
        least, most = FOCAL
        if not (
            all(least <= f <= most for f in (k[0][0], k[1][1]))
            and all(abs(c) <= most for c in (k[0][2], k[1][2]))
        ):
            raise InputError(
                f"{name}: Ks[{i}] is {k}, expected focal lengths of {least:g} to {most:g} px and a "
                f"principal point at most {most:g} px away; are they in another unit?"
            )


def inverse(matrix: list[list[float]]) -> list[list[float]] | None:
    """Inverse of a 3 x 3 matrix, None if it has none, many times faster than torch's."""
    (a, b, c), (d, e, f), (g, h, i) = matrix
    down = e * i - f * h, f * g - d * i, d * h - e * g  # cofactors of the first row
    size = a * down[0] + b * down[1] + c * down[2]
    scale = math.prod(math.hypot(*row) for row in matrix)
    if abs(size) <= 1e-14 * scale:  # what rounding may leave of zero
        return None
    return [
        [down[0] / size, (c * h - b * i) / size, (b * f - c * e) / size],
        [down[1] / size, (a * i - c * g) / size, (c * d - a * f) / size],
        [down[2] / size, (b * g - a * h) / size, (a * e - b * d) / size],
    ]


def counts(name: str, sh_degree: int | None, **tensors: Tensor) -> tuple[int, int]:
    """How many splats and cameras there are, of tensors that are some; `name` begins messages.

    Raises:
        InputError: No tensors, no camera, view matrices that are no rotations and the like (their
            3x3 part cannot be inverted), or a degree that is no integer.
    """
    for key, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.ndim == 0:
            found = "a number" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputError(f"{name}: {key} is {found}, expected a tensor of one or more axes")
        if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
            raise InputError(
                f"{name}: {key} is {tensor.layout} on {tensor.device}, expected a dense tensor "
                "(torch.strided) on the CPU or a CUDA device"
            )
    if sh_degree is not None and not isinstance(sh_degree, int):
        raise InputError(f"{name}: sh_degree is {sh_degree!r}, expected an integer of 0 to 3")
    views = tensors["viewmats"].detach()
    if len(views) == 0:
        raise InputError(f"{name}: viewmats has no camera, expected one or more")
    if views.shape[1:] == (4, 4):
        for i, matrix in enumerate(views[:, :3, :3].tolist()):
            if inverse(matrix) is None:
                raise InputError(
                    f"{name}: viewmats[{i}] has a 3x3 part of determinant 0, expected a rotation"
                )
    return len(tensors["means"]), len(views)


def check_background(name: str, backgrounds: Tensor | None, shape: tuple[int, ...]) -> None:
    """Refuse backgrounds that are no finite tensor of `shape`; `name` begins the message.

    Raises:
        InputError: See above.
    """
    if backgrounds is None:
        return
    if not isinstance(backgrounds, Tensor):
        raise InputError(f"{name}: backgrounds is {type(backgrounds).__name__}, expected a tensor")
    if tuple(backgrounds.shape) != shape:
        raise InputError(
            f"{name}: backgrounds has shape {tuple(backgrounds.shape)}, expected {shape}"
        )
    if not bool(torch.isfinite(backgrounds.detach()).all()):
        raise InputError(f"{name}: backgrounds has values that are not finite")


def check_device(name: str, device: str) -> None:
    """Check that torch has this device, a CPU or a CUDA device.

    Raises:
        InputError: Another kind, or no name of a device.
        MachineError: A CUDA device that is not there.
    """
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = "unknown"
    if kind not in ("cpu", "cuda"):
        raise InputError(f"{name}: device {device!r}, expected 'cpu' or a CUDA device like 'cuda'")
    if kind == "cuda":
        index, count = torch.device(device).index or 0, torch.cuda.device_count()
        if index >= count:
            raise MachineError(
                f"{name}: device {device!r}, but torch finds {count} CUDA devices here; use 'cpu', "
                "or install a build of torch with CUDA and the driver"
            )
