"""Rasterise surfels (2D Gaussians): one interface, gsplat's `rasterization_2dgs`, two backends.

On a CPU the work is done by `twinloop.splat.cpu_2dgs` (ours, in Warp); on CUDA by gsplat. The
device of the tensors picks. Argument names, shapes, pixel convention (the first pixel's centre is
(0.5, 0.5), see `twinloop.splat.rasterize.camera_matrix`), thresholds and returns are gsplat's.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat.depth_normals import depth_to_normal
from twinloop.splat.raster_checks import (
    check_background,
    check_image,
    check_memory,
    check_values,
    counts,
)

RenderMode = Literal["RGB", "D", "ED", "RGB+D", "RGB+ED"]
FILTER = 2.0
"""gsplat's low-pass factor: sigma of the disc is 1 / sqrt(2) px."""


def rasterization_2dgs(
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
    packed: bool = False,
    tile_size: int = 16,
    backgrounds: Tensor | None = None,
    render_mode: RenderMode = "RGB",
    sparse_grad: bool = False,
    absgrad: bool = False,
    distloss: bool = False,
    depth_mode: Literal["expected", "median"] = "expected",
    *,
    depth: Literal["intersection", "center"] = "intersection",
    filter_inv_square: float = FILTER,
    surface_normals: bool = True,
    normals: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor, dict[str, Any]]:
    """Render n surfels from c cameras; differentiable in everything but the switches.

    Args:
        means: (n, 3) m.
        quats: (n, 4) wxyz, of any length; the third axis of the rotation is the surfel's normal.
        scales: (n, 2) standard deviations along the first two axes, m, or (n, 3), third not used.
        opacities: (n,) 0..1.
        colors: (n, d) features, or (n, k, 3) spherical-harmonics coefficients with `sh_degree`;
            either may have a leading dimension of cameras.
        viewmats: (c, 4, 4) world to camera.
        Ks: (c, 3, 3) camera matrices, px, without skew; the first pixel's centre is (0.5, 0.5).
        width: Image width, px.
        height: Image height, px.
        near_plane: Nearest depth drawn, m: of means, and of crossings with `depth="intersection"`.
        far_plane: Farthest depth of means drawn, m.
        radius_clip: Surfels of at most this radius in the image, px, are left out.
        eps2d: Has no effect, as in gsplat.
        sh_degree: Degree to use of the coefficients, 0 to 3.
        packed: Has no effect on the CPU, where nothing is kept of what is not seen.
        tile_size: Has no effect on the CPU.
        backgrounds: (c, d) features behind everything.
        render_mode: "D" adds accumulated, "ED" expected depth as the last channel.
        sparse_grad: Must be False on the CPU.
        absgrad: Must be False on the CPU.
        distloss: Whether to compute the distortion; needs a depth channel.
        depth_mode: Which depth `surf_normals` come from.
        depth: Depth of a surfel in a pixel: where the ray crosses it, or of its mean (gsplat's).
        filter_inv_square: Low-pass factor k: sigma = k |pixel - centre|^2 / 2. Training raises it.
        surface_normals: Whether to compute `surf_normals`, which gsplat always does.
        normals: Whether to sum the normals, which gsplat always does; without they are zero.

    Returns:
        Colours (c, h, w, x), alphas (c, h, w, 1), normals (c, h, w, 3) summed with the weights of
        the colours, in the world, each towards the camera; surface normals (c, h, w, 3) in the
        world from the depth image, or None without colours and depth; distortion (c, h, w, 1) and
        median depth (c, h, w, 1), zero if not asked for or without depth; and a dict with radii
        (c, n, 2) px, means2d (c, n, 2) px, depths (c, n) m, width, height, n_cameras and
        gradient_2dgs (c, n, 2), whose `grad` after a backward pass is that of a shift of each
        surfel in the image, for densification.

    Raises:
        InputError: Shapes that do not fit together, values that are not finite, an option that the
            device does not have, or images or surfels' tiles that memory does not allow for.
    """
    check_image("rasterization_2dgs", width, height, near_plane, far_plane, radius_clip)
    _check(means, quats, scales, opacities, colors, viewmats, Ks, sh_degree, backgrounds)
    # Beside the colours and alpha three of the normal, distortion and median depth.
    check_memory("rasterization_2dgs", len(viewmats), width, height, colors.shape[-1] + 6)
    on_cuda = means.device.type == "cuda"
    _check_options(
        on_cuda, render_mode, distloss, depth_mode, depth, filter_inv_square, sparse_grad, absgrad
    )
    if on_cuda:
        from gsplat.rendering import rasterization_2dgs as gsplat_2dgs

        if scales.shape[1] == 2:
            scales = torch.cat([scales, scales[:, :1]], dim=1)
        rendered: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor, dict[str, Any]]
        rendered = gsplat_2dgs(
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
            packed=packed,
            tile_size=tile_size,
            backgrounds=backgrounds,
            render_mode=render_mode,
            sparse_grad=sparse_grad,
            absgrad=absgrad,
            distloss=distloss,
            depth_mode=depth_mode,
        )
        return rendered
    from twinloop.splat.cpu_2dgs import Camera, renderer

    colour = "RGB" in render_mode
    has_depth = "D" in render_mode.replace("RGB", "")
    camera = Camera(
        width=width,
        height=height,
        near=near_plane,
        far=far_plane,
        radius_clip=radius_clip,
        strength=filter_inv_square,
        crossing=depth == "intersection",
        coefficients=0 if sh_degree is None else (sh_degree + 1) ** 2,
        colour=colour,
        depth=has_depth,
        expected="ED" in render_mode,
        distortion=distloss,
        normals=normals,
    )
    shared = colors.ndim == (2 if sh_degree is None else 3)
    channels = (colors.shape[-1] if colour else 0) + int(has_depth)
    screen = torch.zeros(len(viewmats), len(means), 2, requires_grad=True)
    draw = renderer()
    views = []
    for c in range(len(viewmats)):
        background = means.new_zeros(channels)
        if backgrounds is not None:
            missing = channels - backgrounds.shape[-1]
            background = torch.nn.functional.pad(backgrounds[c], (0, missing))
        views.append(
            draw(
                means,
                quats,
                scales,
                opacities,
                colors if shared else colors[c],
                viewmats[c],
                Ks[c],
                background,
                screen[c],
                camera,
            )
        )
    image, alpha, normal, distortion, median, radii, centres, depths = (
        values[0][None] if len(values) == 1 else torch.stack(values)
        for values in zip(*views, strict=True)
    )
    surface = None
    if surface_normals and colour and has_depth:
        chosen = image[..., -1] if depth_mode == "expected" else median
        surface = depth_to_normal(chosen, viewmats, Ks)
    info = {
        "radii": radii,
        "means2d": centres,
        "depths": depths,
        "gradient_2dgs": screen,
        "render_distort": distortion[..., None],
        "width": width,
        "height": height,
        "n_cameras": len(viewmats),
    }
    return (
        image,
        alpha[..., None],
        normal,
        surface,
        distortion[..., None],
        median[..., None],
        info,
    )


def _check_options(
    on_cuda: bool,
    render_mode: str,
    distloss: bool,
    depth_mode: str,
    depth: str,
    filter_inv_square: float,
    sparse_grad: bool,
    absgrad: bool,
) -> None:
    choices = {
        "render_mode": (render_mode, ("RGB", "D", "ED", "RGB+D", "RGB+ED")),
        "depth_mode": (depth_mode, ("expected", "median")),
        "depth": (depth, ("intersection", "center")),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            raise InputError(
                f"rasterization_2dgs: {name} is {value!r}, expected one of {', '.join(allowed)}"
            )
    if distloss and render_mode == "RGB":
        raise InputError(
            "rasterization_2dgs: distloss needs depth, but render_mode is 'RGB'; use 'RGB+ED'"
        )
    if not 0 < filter_inv_square < float("inf"):
        raise InputError(
            f"rasterization_2dgs: filter_inv_square is {filter_inv_square}, expected above 0"
        )
    if on_cuda and (depth != "center" or filter_inv_square != FILTER):
        raise InputError(
            f"rasterization_2dgs: depth={depth!r} with filter_inv_square={filter_inv_square} on "
            "CUDA, where gsplat's kernels have depth='center' and filter_inv_square=2 only; pass "
            "these, or tensors on the CPU"
        )
    if not on_cuda and (sparse_grad or absgrad):
        raise InputError(
            "rasterization_2dgs: sparse_grad and absgrad are gsplat's on CUDA; leave them False"
        )


def _check(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    sh_degree: int | None,
    backgrounds: Tensor | None,
) -> None:
    n, c = counts(
        "rasterization_2dgs",
        sh_degree,
        means=means,
        viewmats=viewmats,
        quats=quats,
        scales=scales,
        opacities=opacities,
        colors=colors,
        Ks=Ks,
    )
    plain = 2 if sh_degree is None else 3
    lead = (n,) if colors.ndim == plain else (c, n)
    expected = {
        "means": (means, (n, 3)),
        "quats": (quats, (n, 4)),
        "scales": (scales, (n, 3 if scales.ndim != 2 or scales.shape[1] != 2 else 2)),
        "opacities": (opacities, (n,)),
        "colors": (colors, (*lead, *colors.shape[-(plain - 1) :])),
        "viewmats": (viewmats, (c, 4, 4)),
        "Ks": (Ks, (c, 3, 3)),
    }
    if backgrounds is not None:
        check_background("rasterization_2dgs", backgrounds, (c, colors.shape[-1]))
        expected["backgrounds"] = (backgrounds, (c, colors.shape[-1]))
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise InputError(
                f"rasterization_2dgs: {name} has shape {tuple(tensor.shape)}, expected {shape}"
            )
        if tensor.dtype != torch.float32:
            raise InputError(
                f"rasterization_2dgs: {name} has dtype {tensor.dtype}, expected torch.float32"
            )
        # The sum is finite if all are, but for overflow; it is several times faster to look at.
        if not bool(torch.isfinite(tensor.sum())) and not bool(torch.isfinite(tensor).all()):
            raise InputError(f"rasterization_2dgs: {name} has values that are not finite")
    check_values("rasterization_2dgs", opacities, Ks)
    if sh_degree is not None and (
        not 0 <= sh_degree <= 3 or colors.shape[-1] != 3 or colors.shape[-2] < (sh_degree + 1) ** 2
    ):
        raise InputError(
            f"rasterization_2dgs: sh_degree {sh_degree} with colors of shape "
            f"{tuple(colors.shape)}; expected degree 0 to 3 and at least (sh_degree + 1)^2 "
            "coefficients of 3 channels"
        )
