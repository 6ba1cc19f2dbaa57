"""The CPU rasteriser of surfels: one differentiable torch function per camera, Warp kernels inside.

Tiles write the gradient of each entry of their lists to a place of its own, and entries are added
up in order, so results do not depend on the number of threads, bit for bit. A Warp launch on the
CPU is one sequential loop that releases the interpreter lock; slices of the work run on the
threads of `twinloop.threads`, which says how to keep torch's own out of their way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from torch import Tensor

from twinloop.splat import kernels_2dgs as kernels
from twinloop.splat.backend import native
from twinloop.splat.native.simd import TILE
from twinloop.splat.native.surfels import FEATURES, FLAT, GRADIENT, RECORD
from twinloop.threads import each, worker_count

SLICES = 4
"""Parts of the projection's adjoint; each adds up a camera gradient of its own."""


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


def _each(work: Callable[[int, int], None]) -> None:
    """Call work(slice, slices) on as many slices as there are workers."""
    slices = worker_count()
    each(lambda s: work(s, slices), slices)


def _wrap(tensor: Tensor | None, dtype: Any = wp.float32) -> Any:
    if tensor is None:
        return None
    return wp.from_torch(tensor.detach(), dtype=dtype, requires_grad=False)


def _flat(tensor: Tensor | None) -> Any:
    return None if tensor is None else _wrap(tensor.reshape(-1))


def _launch(kernel: Any, size: int, *inputs: Any) -> None:
    wp.launch(kernel, dim=size, inputs=inputs, device="cpu")


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
        depths, centres, outlines, radii = _outlines(inputs, values, camera)
        order = _order(depths)
        records, extra = _records(inputs, values, centres, outlines, order, camera)
        lists = _bin(records, len(order), camera)
        background = background.detach().contiguous()
        pictures = _composite(lists, records, extra, background, camera)
        image, alpha, normal, distortion, median, transmittance = pictures
        ctx.save_for_backward(
            means, quats, scales, opacities, colors, background, image, normal, distortion
        )
        ctx.kept = values, centres, outlines, order, records, extra, lists, transmittance
        ctx.mark_non_differentiable(radii, centres, depths)
        return image, alpha, normal, distortion, median, radii, centres, depths

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Hand-written adjoint of the compositing, then Warp's of the projection."""
        camera: Camera = ctx.camera
        *inputs, background, image, normal, distortion = ctx.saved_tensors
        values, centres, outlines, order, records, extra, lists, transmittance = ctx.kept
        inputs = [t.detach().contiguous() for t in inputs]
        given = [None if g is None else g.contiguous() for g in gradients[:5]]
        v_records, v_extra, v_screen = _composite_adjoint(
            lists, records, extra, background, image, normal, distortion, transmittance, given,
            camera,
        )  # fmt: skip
        adjoint, v_values = _project_adjoint(
            inputs, values, centres, outlines, order, v_records, records, camera,
            any(ctx.needs_input_grad[5:7]),
        )  # fmt: skip
        if v_extra is not None:
            adjoint[4][order.long(), 3:] = v_extra[:, : adjoint[4].shape[1] - 3]
        v_view = v_k = v_background = None
        if v_values is not None:
            v_view, v_k = torch.zeros(4, 4), torch.zeros(3, 3)
            v_view[:3, :3], v_view[:3, 3] = v_values[:9].reshape(3, 3), v_values[9:12]
            v_k[0, 0], v_k[1, 1], v_k[0, 2], v_k[1, 2] = v_values[12:]
        if ctx.needs_input_grad[7] and given[0] is not None:
            v_background = (given[0] * transmittance[..., None]).sum(dim=(0, 1))
            if camera.expected:
                scale = transmittance / (1 - transmittance).clamp_min(1e-10)
                v_background[-1] = (given[0][..., -1] * scale).sum()
        screen = torch.zeros(len(inputs[0]), 2)
        screen[order.long()] = v_screen
        return (*adjoint, v_view, v_k, v_background, screen, None)


def _outlines(
    inputs: list[Tensor], values: Tensor, camera: Camera
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n = len(inputs[0])
    depths, centres = torch.zeros(n), torch.zeros(n, 2)
    outlines, radii = torch.zeros(n, 8), torch.zeros(n, 2, dtype=torch.int32)
    means, quats, scales, opacities, _ = inputs
    _launch(
        kernels.outline,
        n,
        _wrap(values),
        camera.width,
        camera.height,
        camera.near,
        camera.far,
        camera.radius_clip,
        camera.strength,
        _wrap(means, wp.vec3),
        _wrap(quats, wp.vec4),
        _wrap(scales),
        _wrap(opacities),
        _wrap(depths),
        _wrap(centres, wp.vec2),
        _wrap(outlines),
        _wrap(radii, wp.int32),
    )
    return depths, centres, outlines, radii


def _order(depths: Tensor) -> Tensor:
    """Indices (m) of what is seen, near to far."""
    n = len(depths)
    order, scratch = torch.empty(n, dtype=torch.int32), torch.empty(3 * n, dtype=torch.int32)
    found = torch.zeros(1, dtype=torch.int32)
    integers = [_wrap(t, wp.int32) for t in (scratch, order, found)]
    _launch(kernels.depth_order, 1, n, _wrap(depths), *integers)
    return order[: int(found)]


def _project_inputs(
    inputs: list[Tensor], values: Tensor, centres: Tensor | None, outlines: Tensor | None,
    camera: Camera,
) -> list[Any]:  # fmt: skip
    means, quats, scales, opacities, colors = inputs
    harmonic = camera.coefficients > 0
    return [
        _wrap(centres, wp.vec2),
        _wrap(outlines),
        _wrap(values),
        _wrap(means, wp.vec3),
        _wrap(quats, wp.vec4),
        _wrap(scales),
        _wrap(opacities),
        _wrap(colors, wp.vec3) if harmonic else None,
        None if harmonic else _wrap(colors),
    ]


def _records(
    inputs: list[Tensor], values: Tensor, centres: Tensor, outlines: Tensor, order: Tensor,
    camera: Camera,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    m, colors = len(order), inputs[4]
    records = torch.zeros(m * RECORD)
    fixed = _project_constants(order, colors, camera)
    arrays = _project_inputs(inputs, values, centres, outlines, camera)
    target = _wrap(records)

    def work(s: int, slices: int) -> None:
        part = -(-m // slices)
        bounds = [s * part, min(m, (s + 1) * part)]
        _launch(kernels.project, part, *bounds, *fixed, *arrays, target)

    _each(work)
    extra = None
    if camera.colour and camera.coefficients == 0 and colors.shape[1] > 3:
        more = colors.shape[1] - 3
        extra = torch.zeros(m, -(-more // FLAT) * FLAT)
        extra[:, :more] = colors[order.long(), 3:]
    return records, extra


def _project_constants(order: Tensor, colors: Tensor, camera: Camera) -> list[Any]:
    channels = 0 if camera.coefficients or not camera.colour else min(3, colors.shape[1])
    bases = camera.coefficients if camera.colour else 0
    crossing = 1.0 if camera.crossing else 0.0
    return [_wrap(order, wp.int32), camera.strength, crossing, bases, channels]


def _bin(records: Tensor, count: int, camera: Camera) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Start of each tile's list (tiles + 1), the lists, each record's entries: begin, place."""
    across, down = -(-camera.width // TILE), -(-camera.height // TILE)
    start = torch.zeros(across * down + 1, dtype=torch.int32)
    begin = torch.zeros(count + 1, dtype=torch.int32)
    total = torch.zeros(1, dtype=torch.int32)
    capacity = 8 * count + 1024
    while True:
        place = torch.empty(capacity, dtype=torch.int32)
        entries = torch.empty(capacity, dtype=torch.int32)
        integers = [_wrap(t, wp.int32) for t in (start, begin, place, entries, total)]
        _launch(kernels.bin_surfels, 1, count, _wrap(records), across, down, capacity, *integers)
        if int(total) <= capacity:
            return start, entries[: int(total)], begin, place
        capacity = int(total)


def _passes(extra: Tensor | None, camera: Camera, width: int) -> list[tuple[int, int, int]]:
    """First channel, number of channels and feature offset of each pass; the first is -1."""
    colours = width - int(camera.depth)
    passes = [(0, min(3, colours), -1)]
    if extra is not None:
        passes += [(c, min(FLAT, colours - c), c - 3) for c in range(3, colours, FLAT)]
    return passes


def _composite(
    lists: tuple[Tensor, ...], records: Tensor, extra: Tensor | None, background: Tensor,
    camera: Camera,
) -> tuple[Tensor, ...]:  # fmt: skip
    h, w, x = camera.height, camera.width, len(background)
    start, entries, _, _ = lists
    image, alpha, transmittance = torch.empty(h, w, x), torch.empty(h, w), torch.empty(h, w)
    normal = torch.empty(h, w, 3) if camera.normals else torch.zeros(h, w, 3)
    distortion = torch.empty(h, w) if camera.distortion else torch.zeros(h, w)
    median = torch.empty(h, w) if camera.depth else torch.zeros(h, w)
    tiles = len(start) - 1
    lists_of = [_wrap(start, wp.int32), _wrap(entries, wp.int32), _wrap(records)]
    near = camera.near if camera.crossing else -1e30
    for first, taken, offset in _passes(extra, camera, x):
        main = offset < 0
        depth = (1 + camera.distortion) * (camera.depth and main)
        arguments = [
            tiles,
            depth,
            w,
            h,
            x,
            first,
            taken,
            x - 1 if camera.depth and main else -1,
            int(camera.expected),
            near,
            *lists_of,
            *((_wrap(records), FEATURES, RECORD) if extra is None or main else
              (_flat(extra), offset, extra.shape[1])),
            _wrap(background),
            _flat(image),
            _flat(normal) if camera.normals and main else None,
            _flat(alpha) if main else None,
            _flat(distortion) if camera.distortion and main else None,
            _flat(median) if camera.depth and main else None,
            _flat(transmittance),
        ]  # fmt: skip

        def work(s: int, slices: int, arguments: list[Any] = arguments) -> None:
            _launch(kernels.forward, -(-tiles // slices), s, slices, *arguments)

        _each(work)
    return image, alpha, normal, distortion, median, transmittance


def _composite_adjoint(
    lists: tuple[Tensor, ...], records: Tensor, extra: Tensor | None, background: Tensor,
    image: Tensor, normal: Tensor, distortion: Tensor, transmittance: Tensor,
    given: list[Tensor | None], camera: Camera,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    h, w, x = image.shape
    start, entries, begin, place = lists
    v_image, v_alpha, v_normal, v_distortion, v_median = given
    tiles, m = len(start) - 1, len(begin) - 1
    v_records = torch.empty(m * RECORD)
    v_extra = None if extra is None else torch.empty_like(extra)
    v_screen = torch.empty(m, 2)
    gradient = torch.empty(max(1, len(entries)) * GRADIENT)
    near = camera.near if camera.crossing else -1e30
    wrapped = [_wrap(start, wp.int32), _wrap(entries, wp.int32), _wrap(records)]
    order = [_wrap(begin, wp.int32), _wrap(place, wp.int32), _wrap(records), _wrap(gradient)]
    for first, taken, offset in _passes(extra, camera, x):
        main = offset < 0
        has_depth = camera.depth and main
        depth = 0
        if has_depth:
            depth = int(v_image is not None or v_median is not None)
            depth = 2 if camera.distortion and v_distortion is not None else depth
        features = (FEATURES, RECORD) if extra is None or main else (offset, extra.shape[1])
        arguments = [
            tiles,
            depth,
            w,
            h,
            x,
            first,
            taken,
            x - 1 if has_depth else -1,
            int(camera.expected),
            near,
            *wrapped,
            _wrap(records) if extra is None or main else _flat(extra),
            *features,
            _wrap(background),
            _flat(image),
            _flat(normal),
            _flat(distortion),
            _flat(transmittance),
            _flat(v_image),
            _flat(v_alpha) if main else None,
            _flat(v_normal) if camera.normals and main else None,
            _flat(v_distortion) if depth == 2 else None,
            _flat(v_median) if has_depth else None,
            _wrap(gradient),
        ]
        target = [
            _wrap(v_records),
            _wrap(v_records) if v_extra is None or main else _flat(v_extra),
            *features,
            _wrap(v_screen.reshape(-1)),
        ]

        def composite(s: int, slices: int, arguments: list[Any] = arguments) -> None:
            _launch(kernels.backward, -(-tiles // slices), s, slices, *arguments)

        def add(s: int, slices: int, main: bool = main, target: list[Any] = target) -> None:
            part = -(-m // slices)
            bounds = [s * part, min(m, (s + 1) * part), int(main)]
            _launch(kernels.gather, 1, *bounds, *order, *target)

        _each(composite)
        _each(add)
    return v_records, v_extra, v_screen


def _project_adjoint(
    inputs: list[Tensor], values: Tensor, centres: Tensor, outlines: Tensor, order: Tensor,
    v_records: Tensor, records: Tensor, camera: Camera, cameras: bool,
) -> tuple[list[Tensor], Tensor | None]:  # fmt: skip
    m = len(order)
    adjoint = [torch.zeros_like(t) for t in inputs]
    v_values = torch.zeros(SLICES, 16)
    fixed = _project_constants(order, inputs[4], camera)
    arrays = _project_inputs(inputs, values, centres, outlines, camera)
    outputs, v_outputs = [_wrap(records)], [_wrap(v_records)]
    targets = [_project_inputs(adjoint, v, None, None, camera) for v in v_values]
    if not cameras:
        for target in targets:
            target[2] = None
    part = -(-m // SLICES)

    def work(s: int, slices: int) -> None:
        for j in range(s, SLICES, slices):  # fixed slices: their sums are the same on any machine
            bounds = [j * part, min(m, (j + 1) * part)]
            wp.launch(
                kernels.project,
                dim=part,
                inputs=[*bounds, *fixed, *arrays],
                outputs=outputs,
                adj_inputs=[*bounds, None, *fixed[1:], *targets[j]],
                adj_outputs=v_outputs,
                adjoint=True,
                device="cpu",
            )

    _each(work)
    return adjoint, v_values.sum(dim=0) if cameras else None
