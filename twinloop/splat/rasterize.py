"""Rasterise 3D Gaussians: one interface, shaped like gsplat's `rasterization`, two backends.

On a CPU the work is done by `twinloop.splat.cpu` (ours, in Warp); on CUDA by gsplat. The device of
the tensors picks. Argument names, shapes, pixel convention (the first pixel's centre is (0.5, 0.5),
so OpenCV's cx and cy need 0.5 added, see `camera_matrix`) and thresholds are gsplat's.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from twinloop.errors import InputError

RenderMode = Literal["RGB", "D", "ED", "RGB+D", "RGB+ED"]


def camera_matrix(intrinsics: Tensor) -> Tensor:
    """Camera matrices (..., 3, 3), gsplat's pixels, of OpenCV's fx, fy, cx, cy (..., 4)."""
    k = torch.zeros(*intrinsics.shape[:-1], 3, 3, dtype=intrinsics.dtype, device=intrinsics.device)
    k[..., 0, 0], k[..., 1, 1] = intrinsics[..., 0], intrinsics[..., 1]
    k[..., 0, 2], k[..., 1, 2] = intrinsics[..., 2] + 0.5, intrinsics[..., 3] + 0.5
    k[..., 2, 2] = 1.0
    return k


def rasterization(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    eps2d: float = 0.3,
    sh_degree: int | None = None,
    backgrounds: Tensor | None = None,
    render_mode: RenderMode = "RGB",
    rasterize_mode: Literal["classic", "antialiased"] = "classic",
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Render n Gaussians from c cameras; differentiable in everything but the cameras.

    Args:
        means: (n, 3) m.
        quats: (n, 4) wxyz, of any length.
        scales: (n, 3) standard deviations, m.
        opacities: (n,) 0..1.
        colors: (n, d) features, or (n, k, 3) spherical-harmonics coefficients with `sh_degree`.
        viewmats: (c, 4, 4) world to camera.
        Ks: (c, 3, 3) camera matrices, px; the first pixel's centre is (0.5, 0.5).
        width: Image width, px.
        height: Image height, px.
        near_plane: Nearest depth drawn, m.
        far_plane: Farthest depth drawn, m.
        eps2d: Added to the diagonal of the projected covariance, px^2.
        sh_degree: Degree to use of the coefficients, 0 to 3.
        backgrounds: (c, d) features behind everything.
        render_mode: "D" adds accumulated, "ED" expected depth as the last channel.
        rasterize_mode: "antialiased" scales opacity by sqrt(det / det with eps2d) (Mip-Splatting).

    Returns:
        Images (c, height, width, x), alphas (c, height, width, 1), and a dict with means2d (c, n,
        2), conics (c, n, 3), depths (c, n) and opacities (c, n); means2d keeps its gradient.

    Raises:
        InputError: Shapes that do not fit together, or values that are not finite.
    """
    _check(means, quats, scales, opacities, colors, viewmats, Ks, sh_degree)
    if means.device.type == "cuda":
        from gsplat.rendering import rasterization as on_cuda

        rendered: tuple[Tensor, Tensor, dict[str, Any]] = on_cuda(
            means,
            quats,
            scales,
            opacities,
            colors,
            viewmats,
            Ks,
            width,
            height,
            near_plane=near_plane,
            far_plane=far_plane,
            eps2d=eps2d,
            sh_degree=sh_degree,
            packed=False,
            backgrounds=backgrounds,
            render_mode=render_mode,
            rasterize_mode=rasterize_mode,
        )
        return rendered
    from twinloop.splat.cpu import Composite, Harmonics, Project

    images, alphas, meta = [], [], []
    for c in range(len(viewmats)):
        view, k = viewmats[c], Ks[c]
        means2d, conics, depths, factors = Project.apply(  # type: ignore[no-untyped-call]
            means, quats, scales, view, k, width, height, near_plane, far_plane, eps2d
        )
        if means2d.requires_grad:
            means2d.retain_grad()
        alpha = opacities * factors if rasterize_mode == "antialiased" else opacities
        features = []
        if "RGB" in render_mode:
            if sh_degree is None:
                features.append(colors)
            else:
                eye = -(view[:3, :3].double().T @ view[:3, 3].double())
                used = colors[:, : (sh_degree + 1) ** 2].contiguous()
                features.append(Harmonics.apply(means, eye, used))  # type: ignore[no-untyped-call]
        if "D" in render_mode:
            features.append(depths[:, None])
        image, transmittance = Composite.apply(  # type: ignore[no-untyped-call]
            means2d, conics, alpha, torch.cat(features, dim=1), depths, width, height
        )
        image = finish(
            image, transmittance, None if backgrounds is None else backgrounds[c], render_mode
        )
        images.append(image)
        alphas.append(1 - transmittance[..., None])
        meta.append((means2d, conics, depths, alpha))
    names = ("means2d", "conics", "depths", "opacities")
    info: dict[str, Any] = {n: [m[i] for m in meta] for i, n in enumerate(names)}
    return torch.stack(images), torch.stack(alphas), info


def finish(
    image: Tensor, transmittance: Tensor, background: Tensor | None, render_mode: RenderMode
) -> Tensor:
    """Add the background and turn accumulated into expected depth, as `render_mode` asks."""
    if background is not None:
        depth = "D" in render_mode
        if depth and len(background) == image.shape[-1] - 1:
            background = torch.cat([background, background.new_zeros(1)])
        image = image + transmittance[..., None] * background
    if "ED" in render_mode:
        expected = image[..., -1:] / (1 - transmittance[..., None]).clamp_min(1e-10)
        image = torch.cat([image[..., :-1], expected], dim=-1)
    return image


def _check(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    sh_degree: int | None,
) -> None:
    n, c = len(means), len(viewmats)
    expected = {
        "means": (means, (n, 3)),
        "quats": (quats, (n, 4)),
        "scales": (scales, (n, 3)),
        "opacities": (opacities, (n,)),
        "colors": (colors, (n, *colors.shape[1:])),
        "viewmats": (viewmats, (c, 4, 4)),
        "Ks": (Ks, (c, 3, 3)),
    }
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise InputError(
                f"rasterization: {name} has shape {tuple(tensor.shape)}, expected {shape}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"rasterization: {name} has values that are not finite")
    if sh_degree is None:
        if colors.ndim != 2:
            raise InputError(
                f"rasterization: colors has shape {tuple(colors.shape)}; expected (n, d), or give "
                "sh_degree"
            )
    elif colors.ndim != 3 or not 0 <= sh_degree <= 3 or colors.shape[1] < (sh_degree + 1) ** 2:
        raise InputError(
            f"rasterization: sh_degree {sh_degree} with colors of shape {tuple(colors.shape)}; "
            "expected degree 0 to 3 and at least (sh_degree + 1)^2 coefficients of 3 channels"
        )
