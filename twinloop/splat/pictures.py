"""Pictures as the trainer uses them: cut out around the object, at one or more sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat.rasterize import camera_matrix
from twinloop.splat.views import Views


@dataclass(frozen=True)
class Crop:
    """One picture around the object: colour (h, w, 3), coverage `mask` (h, w), both 0..1.

    K (3, 3) px and viewmat (4, 4) are the rasteriser's. index: which of the views it is. corner and
    full: x, y of the crop's first pixel in the whole picture, and that picture's width and height.
    """

    image: Tensor
    mask: Tensor
    K: Tensor
    viewmat: Tensor
    index: int
    corner: tuple[int, int] = (0, 0)
    full: tuple[int, int] = (0, 0)


def crops(views: Views, margin: int = 8, device: str = "cpu", masked: bool = True) -> list[Crop]:
    """Each picture's crop: its mask's bounding box plus `margin` px; empty masks are left out.

    Without `masked` the pictures stay whole.
    """
    out = []
    height, width = views.mask.shape[1:]
    for i in range(len(views)):
        box = views.box(i, margin) if masked else (0, 0, width, height)
        if box is None:
            continue
        x0, y0, x1, y1 = box
        k = views.intrinsics[i] - [0, 0, x0, y0]
        mask = views.matte(i)[y0:y1, x0:x1] if masked else np.ones((height, width), np.float32)
        out.append(
            Crop(
                torch.from_numpy(views.image[i, y0:y1, x0:x1].astype(np.float32) / 255).to(device),
                torch.from_numpy(np.ascontiguousarray(mask)).to(device),
                camera_matrix(torch.from_numpy(k.astype(np.float32))).to(device),
                torch.from_numpy(views.T_camera_world[i].astype(np.float32)).to(device),
                i,
                (x0, y0),
                (width, height),
            )
        )
    return out


def halved(crop: Crop) -> Crop:
    """The same crop at half the size: means of 2 x 2 px, colour weighted by coverage.

    An odd last row or column is left out, so that pixels keep their places.
    """
    height, width = (n // 2 * 2 for n in crop.mask.shape)
    mask = crop.mask[:height, :width]
    pooled = torch.nn.functional.avg_pool2d(
        torch.cat([(crop.image[:height, :width] * mask[..., None]).permute(2, 0, 1), mask[None]])[
            None
        ],
        2,
    )[0]
    half = torch.diag(crop.K.new_tensor([0.5, 0.5, 1.0]))
    cover = pooled[3]
    image = pooled[:3] / cover.clamp_min(1e-6)
    return Crop(
        image.permute(1, 2, 0).contiguous(),
        cover.contiguous(),
        half @ crop.K,
        crop.viewmat,
        crop.index,
        (crop.corner[0] // 2, crop.corner[1] // 2),
        (crop.full[0] // 2, crop.full[1] // 2),
    )


def check_views(views: Views, masked: bool = True, least: int = 2) -> None:
    """Raise InputError for views that no training can come from, naming the view and the value."""
    n = len(views.image)
    shape = views.image.shape
    if n < least:
        raise InputError(
            f"views: {n} picture(s) to fit, expected at least {least}: one picture says nothing of "
            "depth. Film the object from more sides, or lower the limits of ingest."
        )
    if len(shape) != 4 or shape[3] != 3 or 0 in shape:
        raise InputError(f"views: image has shape {shape}, expected (views, height, width, 3).")
    for name, got, expected in (
        ("mask", views.mask.shape, shape[:3]),
        ("intrinsics", views.intrinsics.shape, (n, 4)),
        ("T_camera_world", views.T_camera_world.shape, (n, 4, 4)),
    ):
        if tuple(got) != tuple(expected):
            raise InputError(f"views: {name} has shape {tuple(got)}, expected {tuple(expected)}.")
    _check_finite(views.T_camera_world, "T_camera_world", "a pose of finite numbers")
    _check_finite(views.intrinsics, "intrinsics", "finite fx, fy, cx, cy")
    rotation = views.T_camera_world[:, :3, :3]
    error = np.abs(np.einsum("vij,vkj->vik", rotation, rotation) - np.eye(3)).max(axis=(1, 2))
    for bad, name, wanted in (
        (views.intrinsics[:, :2].min(axis=1) <= 0, "intrinsics", "focal lengths over 0 px"),
        (error > 1e-3, "T_camera_world", "a rotation in its first three rows and columns"),
    ):
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise InputError(
                f"views: {name} of picture {i} is {getattr(views, name)[i].tolist()}, expected "
                f"{wanted}."
            )
    eyes = -np.einsum("vji,vj->vi", rotation, views.T_camera_world[:, :3, 3])
    turn = np.abs(rotation - rotation[0]).max()
    if np.ptp(eyes, axis=0).max() <= 1e-6 * np.abs(eyes).max() and turn < 1e-3:
        raise InputError(
            f"views: all {n} pictures are taken from one place, {eyes[0].tolist()}: they say "
            "nothing of depth. Walk around the object while filming."
        )
    if masked:
        full = int((views.mask.reshape(n, -1).min(axis=1) >= 128).sum())
        if full > n // 2:
            raise InputError(
                f"views: {full} of {n} masks fill the whole picture: they show no outline. Check "
                "the masks of ingest, or train a scene (mask_weight 0)."
            )
        shown = int((views.mask.reshape(n, -1).max(axis=1) >= 128).sum())
        if shown < least:
            raise InputError(
                f"views: {shown} of {n} masks show anything, expected at least {least}. Check the "
                "masks of ingest: is the object in view and unlike the table?"
            )


def _check_finite(values: NDArray[np.floating], name: str, expected: str) -> None:
    bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"views: {name} of picture {i} is {values[i].tolist()}, expected {expected}; leave "
            "this picture out, or run ingest again."
        )
