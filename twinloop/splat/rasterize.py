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
from twinloop.splat.raster_checks import (
    check_background,
    check_image,
    check_memory,
    check_values,
    counts,
)

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
    radius_clip: float = 0.0,
    eps2d: float = 0.3,
    sh_degree: int | None = None,
    packed: bool = True,
    tile_size: int = 16,
    backgrounds: Tensor | None = None,
    render_mode: RenderMode = "RGB",
    sparse_grad: bool = False,
    absgrad: bool = False,
    rasterize_mode: Literal["classic", "antialiased"] = "classic",
    channel_chunk: int = 32,
    camera_model: Literal["pinhole"] = "pinhole",
    covars: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Render n Gaussians from c cameras; differentiable in the Gaussians and in the view matrices.

    An object's crop of a larger image is rendered by shifting cx and cy of its K; the principal
    point may lie outside the image. `packed`, `tile_size` and `channel_chunk` change how gsplat
    works and not what it returns; they are taken and not needed.

    Args:
        means: (n, 3) m.
        quats: (n, 4) wxyz, of any length.
        scales: (n, 3) standard deviations, m.
        opacities: (n,) 0..1.
        colors: (n, d) features of any number, or (n, k, 3) spherical-harmonics coefficients with
            `sh_degree`; either with a leading dimension c for colours of each camera's own.
        viewmats: (c, 4, 4) world to camera.
        Ks: (c, 3, 3) camera matrices, px; the first pixel's centre is (0.5, 0.5).
        width: Image width, px.
        height: Image height, px.
        near_plane: Nearest depth drawn, m, above zero.
        far_plane: Farthest depth drawn, m.
        radius_clip: Gaussians of this radius or less in the image, px, are not drawn.
        eps2d: Added to the diagonal of the projected covariance, px^2.
        sh_degree: Degree to use of the coefficients, 0 to 3.
        packed: Of no effect; `info` always has gsplat's shapes of `packed=False`.
        tile_size: Of no effect.
        backgrounds: (c, d) features behind everything; depth has zero there.
        render_mode: "D" adds accumulated, "ED" expected depth as the last channel.
        sparse_grad: Not supported.
        absgrad: Not supported.
        rasterize_mode: "antialiased" scales opacity by sqrt(det / det with eps2d) (Mip-Splatting).
        channel_chunk: Of no effect.
        camera_model: Only "pinhole".
        covars: Not supported; give `quats` and `scales`.
        **others: Further arguments of gsplat, not supported unless None or False.

    Returns:
        Images (c, height, width, x), alphas (c, height, width, 1), and a dict with means2d (c, n,
        2), conics (c, n, 3), depths (c, n), opacities (c, n), radii (c, n, 2), width, height and
        n_cameras. After a backward pass ``info["means2d"].grad`` is the gradient by image position
        (px^-1), as densification needs it; on the CPU nothing else of `info` carries gradients.

    Raises:
        InputError: Shapes that do not fit together, values that are not finite, an argument that
            is not supported, or images or Gaussians' tiles that memory does not allow for.
    """
    _refuse(sparse_grad, absgrad, camera_model, covars, others)
    check_image("rasterization", width, height, near_plane, far_plane, radius_clip)
    _check_options(eps2d, render_mode, rasterize_mode)
    check_tensors(means, quats, scales, opacities, colors, viewmats, Ks, sh_degree)
    channels = colors.shape[-1] if sh_degree is None else 3
    check_background("rasterization", backgrounds, (len(viewmats), channels))
    check_memory("rasterization", len(viewmats), width, height, channels + 1)
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
            radius_clip=radius_clip,
            eps2d=eps2d,
            sh_degree=sh_degree,
            packed=False,
            tile_size=tile_size,
            backgrounds=backgrounds,
            render_mode=render_mode,
            rasterize_mode=rasterize_mode,
            channel_chunk=channel_chunk,
        )
        return rendered
    from twinloop.splat.cpu import renderer
    from twinloop.splat.cpu_view import Settings

    shared = colors.ndim == (2 if sh_degree is None else 3)
    settings = Settings(
        Ks=Ks.detach().double(),
        width=width,
        height=height,
        near=float(near_plane),
        far=float(far_plane),
        eps2d=float(eps2d),
        radius_clip=float(radius_clip),
        antialiased=rasterize_mode == "antialiased",
        bases=None if sh_degree is None else (sh_degree + 1) ** 2,
        color="RGB" in render_mode,
        depth="D" in render_mode,
    )
    tensors = (means, quats, scales, opacities, colors[None] if shared else colors, viewmats)
    images, alphas, values = renderer()(*(t.float().contiguous() for t in tensors), settings)
    info: dict[str, Any] = {**values, "width": width, "height": height, "n_cameras": len(viewmats)}
    return finish(images, alphas, backgrounds, render_mode), alphas, info


def finish(
    images: Tensor, alphas: Tensor, backgrounds: Tensor | None, render_mode: RenderMode
) -> Tensor:
    """Add the backgrounds (c, d) and turn accumulated into expected depth, as gsplat does it."""
    if backgrounds is not None and "RGB" in render_mode:
        if "D" in render_mode:
            backgrounds = torch.cat([backgrounds, backgrounds.new_zeros(len(backgrounds), 1)], 1)
        images = images + (1 - alphas) * backgrounds[:, None, None, :]
    if "ED" in render_mode:
        expected = images[..., -1:] / alphas.clamp_min(1e-10)
        images = torch.cat([images[..., :-1], expected], dim=-1)
    return images


def _refuse(
    sparse_grad: bool, absgrad: bool, camera_model: str, covars: Any, others: dict[str, Any]
) -> None:
    asked = {"sparse_grad": sparse_grad, "absgrad": absgrad, "covars": covars, **others}
    for name, value in asked.items():
        if value is not None and value is not False:
            raise InputError(
                f"rasterization: {name} is not supported; leave it out"
                + ("; give quats and scales instead" if name == "covars" else "")
            )
    if camera_model != "pinhole":
        raise InputError(
            f"rasterization: camera_model {camera_model!r} is not supported; undistort the images "
            "and use 'pinhole'"
        )


def _check_options(eps2d: float, render_mode: str, rasterize_mode: str) -> None:
    if not 0 <= eps2d < float("inf"):
        raise InputError(f"rasterization: eps2d is {eps2d} px^2, expected zero or more")
    for name, word, known in (
        ("render_mode", render_mode, RenderMode.__args__),  # type: ignore[attr-defined]
        ("rasterize_mode", rasterize_mode, ("classic", "antialiased")),
    ):
        if word not in known:
            raise InputError(
                f"rasterization: {name} is {word!r}, expected one of {', '.join(known)}"
            )


def check_tensors(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    sh_degree: int | None,
) -> None:
    """Check shapes and values of the tensors that `rasterization` takes.

    Raises:
        InputError: Shapes that do not fit, values that are not finite, opacities outside 0..1,
            focal lengths not above zero, a camera matrix with skew, or a wrong SH degree.
    """
    n, c = counts(
        "rasterization",
        sh_degree,
        means=means,
        viewmats=viewmats,
        quats=quats,
        scales=scales,
        opacities=opacities,
        colors=colors,
        Ks=Ks,
    )
    expected = {
        "means": (means, (n, 3)),
        "quats": (quats, (n, 4)),
        "scales": (scales, (n, 3)),
        "opacities": (opacities, (n,)),
        "colors": (colors, _color_shape(colors, n, c, sh_degree)),
        "viewmats": (viewmats, (c, 4, 4)),
        "Ks": (Ks, (c, 3, 3)),
    }
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise InputError(
                f"rasterization: {name} has shape {tuple(tensor.shape)}, expected {shape}"
            )
        if tensor.device != means.device or not tensor.is_floating_point():
            raise InputError(
                f"rasterization: {name} is {tensor.dtype} on {tensor.device}, expected floats on "
                f"{means.device}, where the means are"
            )
        # A sum is an order of magnitude faster than a look at each value, and finds every NaN.
        if not bool(torch.isfinite(tensor.detach().sum())) and not bool(
            torch.isfinite(tensor).all()
        ):
            raise InputError(f"rasterization: {name} has values that are not finite")
    check_values("rasterization", opacities, Ks)


def _color_shape(colors: Tensor, n: int, c: int, sh_degree: int | None) -> tuple[int, ...]:
    if sh_degree is None:
        if colors.ndim not in (2, 3):
            raise InputError(
                f"rasterization: colors has shape {tuple(colors.shape)}; expected (n, d) or "
                "(c, n, d), or give sh_degree"
            )
        if colors.shape[-1] == 0:
            raise InputError("rasterization: colors has no channel, expected one or more")
        return (n, colors.shape[1]) if colors.ndim == 2 else (c, n, colors.shape[2])
    if (
        colors.ndim not in (3, 4)
        or not 0 <= sh_degree <= 3
        or colors.shape[-2] < (sh_degree + 1) ** 2
    ):
        raise InputError(
            f"rasterization: sh_degree {sh_degree} with colors of shape {tuple(colors.shape)}; "
            "expected degree 0 to 3 and at least (sh_degree + 1)^2 coefficients of 3 channels"
        )
    return (n, colors.shape[1], 3) if colors.ndim == 3 else (c, n, colors.shape[2], 3)
