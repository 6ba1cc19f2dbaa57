"""The CPU rasteriser of surfels: one differentiable torch function per camera, Warp kernels inside.

Tiles write the gradient of each entry of their lists to a place of its own, and entries are added
up in order, so results do not depend on the number of threads, bit for bit. A Warp launch on the
CPU is one sequential loop that releases the interpreter lock; slices of the work run on the
threads of `twinloop.threads`, which says how to keep torch's own out of their way.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat import kernels_2dgs as kernels
from twinloop.splat.backend import native
from twinloop.splat.native import surfel_steps as steps
from twinloop.splat.native.simd import MOST_ENTRIES, TILE
from twinloop.splat.native.surfels import FEATURES, FLAT, GRADIENT, RECORD
from twinloop.threads import each, worker_count

SLICES = 4
"""Parts of the projection's adjoint, the same on any machine, as are their sums for the camera."""


@dataclass(frozen=True)
class Camera:
    """What is the same for all surfels: the picture's size (px), planes (m) and what is drawn.

    `coefficients` of harmonics, or 0 for plain features; `depth` adds a channel, divided by alpha
    if `expected`; `crossing` takes depth where the ray meets the surfel, else at its mean;
    `strength` is the low-pass filter's factor.
    """

    width: int
    height: int
    near: float
    far: float
    radius_clip: float
    strength: float
    crossing: bool
    coefficients: int
    colour: bool
    depth: bool
    expected: bool
    distortion: bool
    normals: bool


def run(
    step: int,
    whole: list[int],
    real: list[float],
    tensors: Sequence[Tensor | None],
    slices: int = 1,
) -> None:
    """Run a step of `surfel_steps` in slices on the threads there are.

    Tensors, all contiguous, are float32 or int32 as the step wants them; None is a null address.
    """
    # As addresses: an array of Warp's costs 20 us to make and 5 us to launch with.
    packed: list[array[Any]] = [
        array("i", whole),
        array("f", [*real, 0.0]),
        array("q", [0 if t is None else t.data_ptr() for t in tensors]),
    ]
    places = [values.buffer_info()[0] for values in packed]

    def work(s: int) -> None:
        wp.launch(kernels.run, dim=1, inputs=[step, s, slices, *places], device="cpu")

    each(work, slices)


def renderer() -> Callable[..., tuple[Tensor, ...]]:
    """Return `Rasterize.apply`, kernels compiled and loaded, or where that cannot be torch's."""
    if native(kernels):
        return Rasterize.apply  # type: ignore[no-any-return]
    from twinloop.splat import fallback_2dgs

    return fallback_2dgs.rasterize


class Rasterize(torch.autograd.Function):
    """One camera's picture of surfels.

    Takes means (n, 3) m, quats (n, 4) wxyz, scales (n, 2 or more) m, opacities (n), colors (n, k,
    3) harmonics or (n, d) features, viewmat (4, 4), K (3, 3) px, background (x), and `screen`
    (n, 2), whose values are not used: its gradient is that of a shift of each surfel in the image.
    Gives the image (h, w, x), alpha (h, w), normal (h, w, 3) in the world, distortion (h, w),
    median depth (h, w), radii (n, 2) px, centres (n, 2) px and depths (n); a depth of zero is not
    seen.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        means: Tensor,
        quats: Tensor,
        scales: Tensor,
        opacities: Tensor,
        colors: Tensor,
        viewmat: Tensor,
        intrinsics: Tensor,
        background: Tensor,
        screen: Tensor,
        camera: Camera,
    ) -> tuple[Tensor, ...]:
        """Project, sort, bin into tiles and composite front to back."""
        ctx.set_materialize_grads(False)
        ctx.camera = camera
        inputs = [t.detach().contiguous() for t in (means, quats, scales, opacities, colors)]
        values = torch.empty(16)
        values[:9] = viewmat[:3, :3].reshape(-1)
        values[9:12] = viewmat[:3, 3]
        k = intrinsics
        values[12:] = torch.stack([k[0, 0], k[1, 1], k[0, 2], k[1, 2]])
        depths = _find(inputs, values, camera)
        order, ranks = _order(depths)
        records, extra, radii, centres = _records(inputs, values, order, ranks, camera)
        lists = _bin(records, len(order), camera)
        background = background.detach().contiguous()
        pictures = _composite(lists, records, extra, background, camera)
        image, alpha, normal, distortion, median, transmittance, used = pictures
        ctx.save_for_backward(
            means, quats, scales, opacities, colors, background, image, normal, distortion
        )
        ctx.kept = values, order, ranks, records, extra, lists, transmittance, used
        ctx.mark_non_differentiable(radii, centres, depths)
        return image, alpha, normal, distortion, median, radii, centres, depths

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Adjoint of the compositing, then of the projection, both by hand."""
        camera: Camera = ctx.camera
        *inputs, background, image, normal, distortion = ctx.saved_tensors
        values, order, ranks, records, extra, lists, transmittance, used = ctx.kept
        inputs = [t.detach().contiguous() for t in inputs]
        given = [None if g is None else g.contiguous() for g in gradients[:5]]
        v_records, v_extra, v_screen = _composite_adjoint(
            lists, order, len(inputs[0]), records, extra, background, image, normal, distortion,
            transmittance, used, given, camera,
        )  # fmt: skip
        adjoint, v_values = _project_adjoint(inputs, values, ranks, records, v_records, camera)
        if v_extra is not None:
            adjoint[4][order.long(), 3:] = v_extra[:, : adjoint[4].shape[1] - 3]
        v_view = v_k = v_background = None
        if any(ctx.needs_input_grad[5:7]):
            v_view, v_k = torch.zeros(4, 4), torch.zeros(3, 3)
            v_view[:3, :3], v_view[:3, 3] = v_values[:9].reshape(3, 3), v_values[9:12]
            v_k[0, 0], v_k[1, 1], v_k[0, 2], v_k[1, 2] = v_values[12:]
        if ctx.needs_input_grad[7] and given[0] is not None:
            v_background = (given[0] * transmittance[..., None]).sum(dim=(0, 1))
            if camera.expected:
                scale = transmittance / (1 - transmittance).clamp_min(1e-10)
                v_background[-1] = (given[0][..., -1] * scale).sum()
        return (*adjoint, v_view, v_k, v_background, v_screen, None)


def _find(inputs: list[Tensor], values: Tensor, camera: Camera) -> Tensor:
    """Depths (n) of what can be seen, else zero."""
    means, _, _, opacities, _ = inputs
    depths = torch.empty(len(means))
    planes = [camera.near, camera.far]
    run(steps.FIND, [len(means)], planes, [values, means, opacities, depths])
    return depths


def _order(depths: Tensor) -> tuple[Tensor, Tensor]:
    """Indices (m) of what is seen, near to far, and the place (n) of each in them, or -1."""
    n = len(depths)
    order, ranks = torch.empty(n, dtype=torch.int32), torch.empty(n, dtype=torch.int32)
    scratch, found = torch.empty(3 * n, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    run(steps.ORDER, [n], [], [depths, scratch, order, ranks, found])
    return order[: int(found)], ranks


def _shapes(inputs: list[Tensor], camera: Camera) -> list[int]:
    """Count, scales' columns, bases used, bases there, plain features used, features there."""
    means, _, scales, _, colors = inputs
    harmonic = camera.colour and camera.coefficients > 0
    channels = 0 if harmonic or not camera.colour else min(3, colors.shape[1])
    bases = camera.coefficients if harmonic else 0
    return [len(means), scales.shape[1], bases, colors.shape[1], channels, colors.shape[1]]


def _records(
    inputs: list[Tensor], values: Tensor, order: Tensor, ranks: Tensor, camera: Camera
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    n, m, colors = len(inputs[0]), len(order), inputs[4]
    records = torch.empty(m * RECORD)
    radii, centres = torch.empty(n, 2, dtype=torch.int32), torch.empty(n, 2)
    run(
        steps.PROJECT,
        [*_shapes(inputs, camera), camera.width, camera.height],
        [camera.strength, camera.radius_clip],
        [values, *inputs, ranks, records, radii, centres],
        worker_count(),
    )
    extra = None
    if camera.colour and camera.coefficients == 0 and colors.shape[1] > 3:
        more = colors.shape[1] - 3
        extra = torch.zeros(m, -(-more // FLAT) * FLAT)
        extra[:, :more] = colors[order.long(), 3:]
    return records, extra, radii, centres


def _bin(records: Tensor, count: int, camera: Camera) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Start of each tile's list (tiles + 1), the lists, each record's entries: begin, place."""
    across, down = -(-camera.width // TILE), -(-camera.height // TILE)
    start = torch.empty(across * down + 1, dtype=torch.int32)
    begin = torch.empty(count + 1, dtype=torch.int32)
    total = torch.zeros(1, dtype=torch.int32)
    capacity = 8 * count + 1024
    while True:
        place = torch.empty(capacity, dtype=torch.int32)
        entries = torch.empty(capacity, dtype=torch.int32)
        whole = [count, across, down, capacity]
        run(steps.BIN, whole, [], [records, start, begin, place, entries, total])
        if int(total) <= capacity:
            return start, entries[: int(total)], begin, place
        capacity = int(total)
        if capacity > MOST_ENTRIES:
            raise InputError(
                f"rasterization_2dgs: {count} visible surfels fill more than {MOST_ENTRIES} "
                f"(surfel, tile) pairs of a {camera.width} x {camera.height} image; expected "
                "surfels small in the image: check their scales and the camera's distance (m), or "
                "render a smaller image"
            )


def _passes(extra: Tensor | None, camera: Camera, width: int) -> list[tuple[int, int, int]]:
    """First channel, number of channels and feature offset of each pass; the first is -1."""
    colours = width - int(camera.depth)
    passes = [(0, min(3, colours), -1)]
    if extra is not None:
        passes += [(c, min(FLAT, colours - c), c - 3) for c in range(3, colours, FLAT)]
    return passes


def _layout(
    tiles: int, depth: int, channels: int, part: tuple[int, int, int], extra: Tensor | None,
    camera: Camera,
) -> list[int]:  # fmt: skip
    """What a pass draws, for the steps FORWARD and BACKWARD; last where its features are."""
    first, taken, offset = part
    main = offset < 0
    at, stride = (FEATURES, RECORD) if main or extra is None else (offset, extra.shape[1])
    depth_channel = channels - 1 if camera.depth and main else -1
    return [
        tiles, depth, camera.width, camera.height, channels, first, taken, depth_channel,
        int(camera.expected), at, stride, int(camera.crossing),
    ]  # fmt: skip


def _composite(
    lists: tuple[Tensor, ...], records: Tensor, extra: Tensor | None, background: Tensor,
    camera: Camera,
) -> tuple[Tensor, ...]:  # fmt: skip
    h, w, x = camera.height, camera.width, len(background)
    start, entries, _, _ = lists
    image, alpha, transmittance = torch.empty(h, w, x), torch.empty(h, w), torch.empty(h, w)
    normal = torch.empty(h, w, 3) if camera.normals else torch.zeros(h, w, 3)
    used = torch.empty(len(entries), dtype=torch.int32)
    distortion = torch.empty(h, w) if camera.distortion else torch.zeros(h, w)
    median = torch.empty(h, w) if camera.depth else torch.zeros(h, w)
    for part in _passes(extra, camera, x):
        main = part[2] < 0
        depth = (1 + camera.distortion) * (camera.depth and main)
        seen = normal if camera.normals else None
        pictures = [image, *(t if main else None for t in (seen, alpha, distortion, median))]
        run(
            steps.FORWARD,
            _layout(len(start) - 1, depth, x, part, extra, camera),
            [_near(camera)],
            [start, entries, records, records if main else extra, background, transmittance,
             *pictures, used],
            worker_count(),
        )  # fmt: skip
    return image, alpha, normal, distortion, median, transmittance, used


def _near(camera: Camera) -> float:
    """Least depth of a contribution; depths of means are looked at before."""
    return camera.near if camera.crossing else -1e30


def _composite_adjoint(
    lists: tuple[Tensor, ...], order: Tensor, count: int, records: Tensor, extra: Tensor | None,
    background: Tensor, image: Tensor, normal: Tensor, distortion: Tensor, transmittance: Tensor,
    used: Tensor, given: list[Tensor | None], camera: Camera,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Gradients of the records, of the features that are in none, and of shifts in the image."""
    start, entries, begin, place = lists
    v_image, v_alpha, v_normal, v_distortion, v_median = given
    m, x = len(order), image.shape[2]
    v_records, v_screen = torch.empty(m * RECORD), torch.zeros(count, 2)
    v_extra = None if extra is None else torch.empty_like(extra)
    gradient = torch.empty(len(entries) * GRADIENT)
    for part in _passes(extra, camera, x):
        main = part[2] < 0
        depth = 0
        if camera.depth and main:
            depth = int(v_image is not None or v_median is not None)
            depth = 2 if camera.distortion and v_distortion is not None else depth
        layout = _layout(len(start) - 1, depth, x, part, extra, camera)
        back = [
            v_image,
            v_normal if main and camera.normals else None,
            v_alpha if main else None,
            v_distortion if depth == 2 else None,
            v_median if depth else None,
        ]
        run(
            steps.BACKWARD,
            layout,
            [_near(camera)],
            [start, entries, records, records if main else extra, background, transmittance,
             image, normal, None, distortion, None, *back, gradient, used],
            worker_count(),
        )  # fmt: skip
        run(
            steps.GATHER,
            [m, *layout[9:11], int(main)],
            [],
            [begin, place, order, records, gradient, v_records, v_records if main else v_extra,
             v_screen, used],
            worker_count(),
        )  # fmt: skip
    return v_records, v_extra, v_screen


def _project_adjoint(
    inputs: list[Tensor],
    values: Tensor,
    ranks: Tensor,
    records: Tensor,
    v_records: Tensor,
    camera: Camera,
) -> tuple[list[Tensor], Tensor]:
    """Gradients of the inputs and of the camera's sixteen values."""
    adjoint = [torch.zeros_like(t) for t in inputs]
    v_values = torch.zeros(SLICES, 16)
    tensors = [values, *inputs, ranks, records, v_records, v_values, *adjoint]
    run(steps.ADJOINT, _shapes(inputs, camera), [], tensors, SLICES)
    return adjoint, v_values.sum(dim=0)
