"""How well a set of Gaussians or surfels reproduces pictures that it was not fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twinloop.splat.gaussians import Gaussians
from twinloop.splat.loss import ssim_map
from twinloop.splat.low_pass import PLAIN, LowPass
from twinloop.splat.lpips import Lpips
from twinloop.splat.rasterize import camera_matrix, rasterization
from twinloop.splat.surfels import Surfels
from twinloop.splat.views import Views, signed_distance

Float32 = NDArray[np.float32]

MIXED = 1.0
"""Half width (px) of the band along the outline whose pixels mix object and background."""
RING = 4.0
"""How far (px) outside the outline a render is still judged."""
FILTER = 32.0
"""The low-pass factor that surfels are drawn with: where training ends (see `TrainSettings`)."""


@dataclass(frozen=True)
class Comparison:
    """One judged picture: crops (h, w, 3) float 0..1 of truth and render over black, and scores.

    judged (h, w) bool: the pixels that count. psnr dB over them; psnr_edge dB with the mixed pixels
    of the outline too. overlap: intersection over union of the mask and of alpha > 0.5.
    """

    truth: Float32
    shown: Float32
    judged: NDArray[np.bool_]
    psnr: float
    psnr_edge: float
    overlap: float


@dataclass(frozen=True)
class ViewScore:
    """Scores of one picture: a row of the table of a report.

    psnr dB and overlap as in `Comparison`. psnr_white dB and ssim over the whole picture, with
    everything outside the mask white in both. lpips: None where its weights are not on disk.
    """

    index: int
    psnr: float
    psnr_white: float
    ssim: float
    overlap: float
    lpips: float | None


def psnr(difference: NDArray[np.floating]) -> float:
    """Peak signal-to-noise ratio (dB) of differences between values in 0..1; 100 at most."""
    mse = float(np.mean(np.square(difference, dtype=np.float64))) if difference.size else 0.0
    return float(-10 * np.log10(max(mse, 1e-10)))


def drawn(
    splats: Gaussians | Surfels,
    intrinsics: NDArray[np.floating],
    width: int,
    height: int,
    T_camera_splats: NDArray[np.floating],
    device: str = "cpu",
    low_pass: LowPass = PLAIN,
) -> tuple[Float32, Float32]:
    """Colour times coverage (height, width, 3) and coverage (height, width), as training draws.

    `intrinsics` are OpenCV's fx, fy, cx, cy (first pixel's centre at (0, 0)), px. Surfels are drawn
    with the low-pass factor `FILTER`, Gaussians with `low_pass`, which is to be that of training.
    """

    def tensor(values: NDArray[np.floating]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(device)

    middle = np.median(splats.means, axis=0) if len(splats) else np.zeros(3)
    away = np.linalg.norm(T_camera_splats[:3, :3] @ middle + T_camera_splats[:3, 3])
    near = float(np.clip(0.02 * away, 1e-9, 0.01))
    arguments: dict[str, Any] = {
        "means": tensor(splats.means),
        "quats": tensor(splats.quaternions),
        "scales": tensor(splats.scales),
        "opacities": tensor(splats.opacities),
        "colors": tensor(splats.sh),
        "viewmats": tensor(T_camera_splats)[None],
        "Ks": camera_matrix(tensor(intrinsics))[None],
        "width": width,
        "height": height,
        "sh_degree": splats.degree,
        "near_plane": near,
    }
    with torch.no_grad():
        if isinstance(splats, Surfels):
            from twinloop.splat.rasterize_2dgs import rasterization_2dgs

            if device == "cpu":  # gsplat's kernels have 2 built in
                arguments |= {"filter_inv_square": FILTER, "surface_normals": False}
            image, alpha = rasterization_2dgs(**arguments)[:2]
        else:
            image, alpha, _ = rasterization(**arguments, **low_pass.keywords)
    return image[0].cpu().numpy(), alpha[0, ..., 0].cpu().numpy()


def compare(
    splats: Gaussians | Surfels,
    views: Views,
    index: int,
    margin: int = 8,
    device: str = "cpu",
    low_pass: LowPass = PLAIN,
) -> Comparison:
    """Judge picture `index` of `views` (poses in the set's frame).

    The picture is cut out over black by its mask (see `Views.matte`); the render is over black
    anyway. What counts: the object's pixels, and a ring outside the outline where any colour is a
    leak. So the real background never helps, and the empty pixels of the crop do not dilute the
    error. Pixels within `MIXED` px of the outline mix the object with whatever is behind it, and
    have no true colour over black; they are left out of `psnr` and part of `psnr_edge`.
    """
    height, width = views.mask.shape[1:]
    x0, y0, x1, y1 = views.box(index, margin) or (0, 0, width, height)
    k = views.intrinsics[index] - [0, 0, x0, y0]
    T = views.T_camera_world[index]
    image, alpha = drawn(splats, k, x1 - x0, y1 - y0, T, device, low_pass)
    mask = views.mask[index, y0:y1, x0:x1]
    distance = signed_distance(mask)
    picture = views.image[index, y0:y1, x0:x1].astype(np.float32) / np.float32(255)
    matte = views.matte(index)[y0:y1, x0:x1]
    truth = np.asarray(picture * matte[..., None], np.float32)
    shown = np.asarray(image.clip(0, 1), np.float32)
    near = distance > -RING
    judged = near & (np.abs(distance) >= MIXED)
    solid, inside = alpha > 0.5, mask >= 128
    union = int((solid | inside).sum())
    overlap = float((solid & inside).sum() / union) if union else 0.0
    error = shown - truth
    return Comparison(truth, shown, judged, psnr(error[judged]), psnr(error[near]), overlap)


def over_white(
    splats: Gaussians | Surfels,
    views: Views,
    index: int,
    device: str = "cpu",
    masked: bool = True,
    low_pass: LowPass = PLAIN,
) -> tuple[Float32, Float32]:
    """The whole picture and its render (h, w, 3) 0..1, both over white outside the mask.

    Without `masked` the picture is as it is, and the render over black.
    """
    height, width = views.mask.shape[1:]
    T = views.T_camera_world[index]
    image, alpha = drawn(splats, views.intrinsics[index], width, height, T, device, low_pass)
    picture = views.image[index].astype(np.float32) / np.float32(255)
    if not masked:
        return picture, image.clip(0, 1)
    matte = views.matte(index)[..., None]
    return picture * matte + (1 - matte), (image + (1 - alpha)[..., None]).clip(0, 1)


def psnr_white(
    splats: Gaussians | Surfels,
    views: Views,
    device: str = "cpu",
    masked: bool = True,
    low_pass: LowPass = PLAIN,
) -> list[float]:
    """PSNR (dB) of each whole picture over white (see `over_white`), as NeRF's scenes are judged.

    Background that both show white counts, so that the figure rises with the share of it.
    """
    pairs = (over_white(splats, views, i, device, masked, low_pass) for i in range(len(views)))
    return [psnr(shown - truth) for truth, shown in pairs]


def score(
    splats: Gaussians | Surfels,
    views: Views,
    device: str = "cpu",
    lpips: Lpips | None = None,
    low_pass: LowPass = PLAIN,
) -> list[ViewScore]:
    """A row of scores for each picture (poses in the set's frame); empty masks are left out."""
    rows = []
    for i in range(len(views)):
        if views.box(i, 0) is None:
            continue
        judged = compare(splats, views, i, device=device, low_pass=low_pass)
        truth, shown = over_white(splats, views, i, device, low_pass=low_pass)
        pair = torch.from_numpy(shown), torch.from_numpy(np.asarray(truth, np.float32))
        rows.append(
            ViewScore(
                i,
                judged.psnr,
                psnr(shown - truth),
                float(ssim_map(*pair).mean()),
                judged.overlap,
                None if lpips is None else lpips(shown, truth),
            )
        )
    return rows


def error_image(comparison: Comparison, full: float = 0.25) -> NDArray[np.uint8]:
    """Mean absolute error of the judged pixels (h, w, 3): black 0, through red to white at `full`.

    Pixels that do not count are grey.
    """
    error = np.abs(comparison.shown - comparison.truth).mean(axis=2) / full
    ramp = np.stack([3 * error, 3 * error - 1, 3 * error - 2], axis=2).clip(0, 1)
    ramp[~comparison.judged] = 0.5
    return np.asarray(np.rint(255 * ramp), np.uint8)
