"""One camera's pass of the CPU rasteriser of 3D Gaussians, forward and backward.

Steps: project and shade (Warp, by ranges of Gaussians), sort by depth, pack and bin (native, one
thread), composite (native, by tiles); back through the same, the rows of gradient sums gathered per
Gaussian. No result depends on how ranges and tiles are split over threads.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat import kernels, kernels_project
from twinloop.splat.native.gaussians import CHANNELS, FIELDS, GEOMETRY, RECORD, SUMS
from twinloop.splat.native.simd import TILE
from twinloop.threads import each, worker_count

MOST_ENTRIES = 2**28
"""List entries (Gaussian in a tile) allowed in one image: 1 GiB of lists, 12 GiB of gradients."""


@dataclass(frozen=True)
class Settings:
    """What one call renders; lengths m, images px, Ks (c, 3, 3) float64."""

    Ks: Tensor
    width: int
    height: int
    near: float
    far: float
    eps2d: float
    radius_clip: float
    antialiased: bool
    bases: int | None  # SH coefficients used; None where colours are features
    color: bool
    depth: bool


def _wrap(tensor: Tensor, dtype: Any = wp.float32) -> Any:
    width = {wp.vec3: 1, wp.vec4: 1, kernels_project.vec6: 1, wp.mat33: 2}.get(dtype, 0)
    shape = tuple(tensor.shape[: tensor.ndim - width]) if width else (tensor.numel(),)
    if not tensor.is_contiguous():
        raise ValueError("only contiguous tensors share their memory with Warp")
    return wp.array(ptr=tensor.data_ptr(), dtype=dtype, shape=shape, device="cpu", copy=False)


class View:
    """One camera's forward pass, kept for its backward pass."""

    def __init__(
        self,
        means: Tensor,
        quats: Tensor,
        scales: Tensor,
        opacities: Tensor,
        colors: Tensor,
        viewmat: Tensor,
        settings: Settings,
        camera: int,
    ) -> None:
        self.inputs = [t.detach() for t in (means, quats, scales, opacities, colors)]
        self.settings = settings
        self.n = len(means)
        self.viewmat = viewmat.detach().double()
        rotation, translation = self.viewmat[:3, :3], self.viewmat[:3, 3]
        self.eye = -torch.linalg.solve(rotation, translation)
        self.chunks = max(1, -(-self.n // kernels_project.CHUNK))
        self.rotations = rotation.float().expand(self.chunks, 3, 3).contiguous()
        self.translations = translation.float().expand(self.chunks, 3).contiguous()
        self.eyes = self.eye.float().expand(self.chunks, 3).contiguous()
        k = settings.Ks[camera].tolist()
        self.lens = [
            wp.vec4(k[0][0], k[1][1], k[0][2], k[1][2]),
            wp.vec2(float(settings.width), float(settings.height)),
            settings.near,
            settings.far,
            settings.eps2d,
            int(settings.antialiased),
        ]

    def _ranges(self, work: Callable[[int, int], None]) -> None:
        """Call with parts (first, count) of the Gaussians, whole chunks, side by side."""
        parts = min(worker_count(), self.chunks)
        size = -(-self.chunks // parts) * kernels_project.CHUNK

        def part(i: int) -> None:
            first = i * size
            if first < self.n:
                work(first, min(size, self.n - first))

        each(part, parts)

    def _project_arguments(
        self, tensors: list[Tensor], cameras: list[Tensor] | None, outputs: list[Tensor]
    ) -> list[Any]:
        means, quats, scales, opacities = tensors
        moved: list[Any] = [None, None]
        if cameras is not None:
            moved = [_wrap(cameras[0], wp.mat33), _wrap(cameras[1], wp.vec3)]
        return [
            _wrap(means, wp.vec3),
            _wrap(quats, wp.vec4),
            _wrap(scales, wp.vec3),
            _wrap(opacities),
            *moved,
            *self.lens,
            _wrap(outputs[0], kernels_project.vec6),
            _wrap(outputs[1]),
        ]

    def _shade_arguments(
        self,
        means: Tensor,
        eyes: Tensor | None,
        coefficients: Tensor,
        depths: Tensor,
        features: Tensor,
    ) -> list[Any]:
        return [
            self.settings.bases,
            _wrap(means, wp.vec3),
            None if eyes is None else _wrap(eyes, wp.vec3),
            _wrap(coefficients, wp.vec3),
            _wrap(depths),
            _wrap(features, wp.vec4),
        ]

    def forward(self) -> tuple[Tensor, Tensor]:
        """Image (height, width, x) and final transmittance (height, width)."""
        s, n = self.settings, self.n
        self.geometry, self.depths = torch.empty(n, GEOMETRY), torch.empty(n)
        shaded = s.color and s.bases is not None
        self.features = torch.empty(n, 4) if shaded else torch.empty(0)
        # Kept for the backward pass: wrapping an array for Warp takes 4 us, and there are many.
        self.project = project = self._project_arguments(
            self.inputs[:4], [self.rotations, self.translations], [self.geometry, self.depths]
        )
        self.shade = shade = (
            self._shade_arguments(
                self.inputs[0], self.eyes, self.inputs[4], self.depths, self.features
            )
            if shaded
            else []
        )

        def work(first: int, count: int) -> None:
            wp.launch(kernels_project.project, dim=count, inputs=[first, *project], device="cpu")
            if shade:
                wp.launch(kernels_project.shade, dim=count, inputs=[first, *shade], device="cpu")

        self._ranges(work)
        if shaded:
            self.channels = 3 + s.depth
        else:
            parts = [self.inputs[4]] * s.color + [self.depths[:, None]] * s.depth
            self.features = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
            self.features = self.features.contiguous()
            self.channels = self.features.shape[1]
        self._sort()
        self.image = torch.empty(s.height, s.width, self.channels)
        self.transmittance = torch.empty(s.height, s.width)
        self.used = torch.empty(self.entries, dtype=torch.int32)
        self.composite()
        return self.image, self.transmittance

    def _table(self, first: int = 0, **more: Tensor) -> array[int]:
        """The native code's `View` of this one, for the channels from `first` on."""
        s = self.settings
        numbers = {
            "count": self.n,
            "width": s.width,
            "height": s.height,
            "channels": self.channels,
            "first": first,
            "part": min(CHANNELS, self.channels - first),
            "stride": self.features.shape[1],
            "capacity": len(self.list),
        }
        for name in FIELDS[FIELDS.index("geometry") :]:
            tensor = more[name] if name in more else getattr(self, name, None)
            if tensor is not None:
                if not tensor.is_contiguous():
                    raise ValueError(f"{name} must be contiguous for the native code")
                numbers[name] = tensor.data_ptr()
        return array("q", [numbers.get(name, 0) for name in FIELDS])

    def _sort(self) -> None:
        """Depth order, packed records and the lists of the tiles."""
        s, n = self.settings, self.n
        self.tiles = -(-s.width // TILE) * -(-s.height // TILE)
        scratch = torch.empty(3 * n, dtype=torch.int32)
        self.order, self.rank = torch.empty(2, n, dtype=torch.int32)
        self.radii = torch.zeros(n, 2, dtype=torch.int32)
        self.records = torch.empty(n, RECORD)
        self.start = torch.empty(self.tiles + 1, dtype=torch.int32)
        self.begin = torch.empty(n + 1, dtype=torch.int32)
        self.totals = torch.zeros(2, dtype=torch.int32)
        capacity, again = 6 * n + 1024, 0
        while True:
            self.place, self.list, self.row = torch.empty(3, capacity, dtype=torch.int32)
            table = self._table(scratch=scratch)
            wp.launch(
                kernels.pack_and_bin,
                dim=1,
                inputs=[table.buffer_info()[0], again, s.radius_clip],
                device="cpu",
            )
            visible, self.entries = self.totals.tolist()
            if 0 <= self.entries <= capacity:
                return
            if not 0 <= self.entries <= MOST_ENTRIES:
                raise InputError(
                    f"rasterization: {visible} visible Gaussians fill more than "
                    f"{MOST_ENTRIES} (Gaussian, tile) pairs of a {s.width} x {s.height} image; "
                    "expected Gaussians small in the image: check their scales and the camera's "
                    "distance (m), or render a smaller image"
                )
            capacity, again = self.entries, 1

    def _over_tiles(self, kernel: Any, table: array[int]) -> None:
        address = table.buffer_info()[0]
        if self.channels > CHANNELS:  # else they are in the records from `_sort` on
            wp.launch(kernels.pack_features, dim=1, inputs=[address], device="cpu")
        slices = min(worker_count(), self.tiles)

        def part(i: int) -> None:
            wp.launch(
                kernel,
                dim=-(-self.tiles // slices),
                inputs=[address, i, slices, self.tiles],
                device="cpu",
            )

        each(part, slices)

    def composite(self) -> None:
        """Composite the sorted Gaussians into the image and its transmittance."""
        for first in range(0, self.channels, CHANNELS):
            self._over_tiles(kernels.forward, self._table(first))

    def composite_backward(
        self, image_gradient: Tensor, alpha_gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the geometry (n, 6) and of the features, by those of image and alpha."""
        geometry = torch.zeros(self.n, GEOMETRY)
        features = torch.empty_like(self.features)
        if self.channels < features.shape[1]:
            features.zero_()
        rows = torch.empty(self.entries, SUMS)
        for first in range(0, self.channels, CHANNELS):
            table = self._table(
                first,
                image_gradient=image_gradient,
                alpha_gradient=alpha_gradient,
                rows=rows,
                geometry_gradient=geometry,
                feature_gradient=features,
            )
            self._over_tiles(kernels.backward, table)
            address = table.buffer_info()[0]

            def gather(first: int, count: int, address: int = address) -> None:
                wp.launch(
                    kernels.gather, dim=1, inputs=[address, first, first + count], device="cpu"
                )

            self._ranges(gather)
        return geometry, features

    def backward(
        self,
        image_gradient: Tensor,
        alpha_gradient: Tensor,
        gradients: list[Tensor],
        camera_gradient: Tensor | None,
    ) -> Tensor:
        """Add to the gradients of the inputs; return that of the image positions (n, 2)."""
        geometry, features = self.composite_backward(image_gradient, alpha_gradient)
        means2d = geometry[:, :2].clone()  # Warp's adjoint clears what it has used
        self._project_backward(geometry, features, gradients, camera_gradient)
        return means2d

    def _project_backward(
        self,
        geometry: Tensor,
        features: Tensor,
        gradients: list[Tensor],
        camera_gradient: Tensor | None,
    ) -> None:
        s = self.settings
        depths = torch.zeros(self.n)
        adjoint_shade: list[Any] = []
        cameras = eyes = None
        if camera_gradient is not None:
            cameras = [torch.zeros_like(self.rotations), torch.zeros_like(self.translations)]
            eyes = torch.zeros_like(self.eyes)
        if self.shade:
            adjoint_shade = self._shade_arguments(
                gradients[0], eyes, gradients[4], depths, features
            )
        else:
            if s.color:
                gradients[4] += features[:, : gradients[4].shape[1]]
            if s.depth:
                depths.copy_(features[:, -1])
        adjoint_project = self._project_arguments(gradients[:4], cameras, [geometry, depths])

        def work(first: int, count: int) -> None:
            for kernel, values, adjoint, outputs in (
                (kernels_project.shade, self.shade, adjoint_shade, 1),
                (kernels_project.project, self.project, adjoint_project, 2),
            ):
                if not values:
                    continue
                wp.launch(
                    kernel,
                    dim=count,
                    inputs=[first, *values[:-outputs]],
                    outputs=values[-outputs:],
                    adj_inputs=[first, *adjoint[:-outputs]],
                    adj_outputs=adjoint[-outputs:],
                    adjoint=True,
                    device="cpu",
                )

        self._ranges(work)
        if camera_gradient is not None and cameras is not None and eyes is not None:
            self._camera_backward(cameras[0], cameras[1], eyes, camera_gradient)

    def _camera_backward(
        self, rotations: Tensor, translations: Tensor, eyes: Tensor, gradient: Tensor
    ) -> None:
        """Sum over the copies of the camera; the eye is -R^-1 t."""
        pulled = torch.linalg.solve(self.viewmat[:3, :3].T, eyes.double().sum(dim=0))
        gradient[:3, :3] += (rotations.double().sum(0) - torch.outer(pulled, self.eye)).float()
        gradient[:3, 3] += (translations.double().sum(0) - pulled).float()
