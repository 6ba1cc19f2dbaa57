"""One camera's pass of the CPU rasteriser of 3D Gaussians, forward and backward.

Steps, all native: project and shade (by ranges of Gaussians), sort by depth, pack and bin (one
thread), composite (by tiles); back through the same, the rows of gradient sums gathered per
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
from twinloop.splat.native.projection import CAMERA, CHUNK, LENS
from twinloop.splat.native.projection import FIELDS as SCENE
from twinloop.splat.native.simd import MOST_ENTRIES, TILE
from twinloop.splat.raster_checks import inverse
from twinloop.threads import each, worker_count


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


def _addresses(fields: tuple[str, ...], values: dict[str, int | Tensor | None]) -> array[int]:
    """A struct of the native code: numbers and addresses of tensors, zero where there is none."""
    packed = array("q")
    for name in fields:
        value = values.get(name)
        if isinstance(value, Tensor):
            if not value.is_contiguous():
                raise ValueError(f"{name} must be contiguous for the native code")
            value = value.data_ptr()
        packed.append(value or 0)
    return packed


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
        rows = viewmat.tolist()
        rotation, translation = [row[:3] for row in rows[:3]], [row[3] for row in rows[:3]]
        back = inverse(rotation)
        if back is None:  # the public functions look before
            raise ValueError(f"view matrix {rows} cannot be inverted")
        self.back = back
        self.eye = [-sum(x * t for x, t in zip(row, translation, strict=True)) for row in back]
        self.chunks = max(1, -(-self.n // CHUNK))
        k = settings.Ks[camera].tolist()
        numbers = [
            *(x for row in rotation for x in row),
            *translation,
            *self.eye,
            *(k[0][0], k[1][1], k[0][2], k[1][2]),
            *(settings.width, settings.height, settings.near, settings.far, settings.eps2d),
        ]
        assert len(numbers) == len(LENS)
        self.lens = torch.tensor(numbers, dtype=torch.float32)

    def _ranges(self, work: Callable[[int, int], None]) -> None:
        """Call with parts (first, count) of the Gaussians, whole chunks, side by side."""
        parts = min(worker_count(), self.chunks)
        size = -(-self.chunks // parts) * CHUNK

        def part(i: int) -> None:
            first = i * size
            if first < self.n:
                work(first, min(size, self.n - first))

        each(part, parts)

    def _scene(self, **more: int | Tensor | None) -> array[int]:
        """The native code's `Scene` of this view."""
        s = self.settings
        names = ("means", "quats", "scales", "opacities", "colors")
        return _addresses(
            SCENE,
            {
                "count": self.n,
                "antialiased": int(s.antialiased),
                "bases": (s.bases or 0) if s.color else 0,
                "coefficients": self.inputs[4].shape[1],
                "lens": self.lens,
                **dict(zip(names, self.inputs, strict=True)),
                "geometry": self.geometry,
                "depths": self.depths,
                "features": self.features,
                **more,
            },
        )

    def forward(self) -> tuple[Tensor, Tensor]:
        """Image (height, width, x) and final transmittance (height, width)."""
        s, n = self.settings, self.n
        self.geometry, self.depths = torch.empty(n, GEOMETRY), torch.empty(n)
        shaded = s.color and s.bases is not None
        self.features = torch.empty(n, 4) if shaded else torch.empty(0)
        scene = self._scene()

        def work(first: int, count: int) -> None:
            inputs = [scene.buffer_info()[0], first, first + count]
            wp.launch(kernels_project.project, dim=1, inputs=inputs, device="cpu")

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
        numbers: dict[str, int | Tensor | None] = {
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
            numbers[name] = more[name] if name in more else getattr(self, name, None)
        return _addresses(FIELDS, numbers)

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
            self.place, self.list = torch.empty(2, capacity, dtype=torch.int32)
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
        first: bool,
        first_colors: bool,
    ) -> Tensor:
        """Add to the gradients of the inputs, or set them, and of colours, where they are `first`.

        Returns:
            Gradient of the image positions (n, 2), px^-1.
        """
        s = self.settings
        geometry, features = self.composite_backward(image_gradient, alpha_gradient)
        names = ("v_means", "v_quats", "v_scales", "v_opacities", "v_colors")
        shaded = s.color and s.bases is not None
        cameras = None if camera_gradient is None else torch.empty(self.chunks, CAMERA)
        depths = features[:, -1].contiguous() if s.depth and not shaded else None
        scene = self._scene(
            first=int(first),
            first_colors=int(first_colors),
            rank=self.rank,
            v_geometry=geometry,
            v_depths=depths,
            v_features=features,
            v_camera=cameras,
            **dict(zip(names, gradients, strict=True)),
        )

        def work(start: int, count: int) -> None:
            inputs = [scene.buffer_info()[0], start, start + count]
            wp.launch(kernels_project.project_adjoint, dim=1, inputs=inputs, device="cpu")

        self._ranges(work)
        if s.color and not shaded:
            plain = features[:, : gradients[4].shape[1]]
            gradients[4].copy_(plain if first_colors else gradients[4] + plain)
        elif not s.color and first_colors:
            gradients[4].zero_()
        if cameras is not None and camera_gradient is not None:
            self._camera_backward(cameras.double().sum(dim=0), camera_gradient)
        return geometry[:, :2]

    def _camera_backward(self, values: Tensor, gradient: Tensor) -> None:
        """Gradient of the view matrix by those of rotation, translation and eye, -R^-1 t."""
        pulled = torch.tensor(self.back, dtype=torch.float64).T @ values[12:]
        eye = torch.tensor(self.eye, dtype=torch.float64)
        rotation = values[:9].reshape(3, 3) - torch.outer(pulled, eye)
        gradient[:3, :3] += rotation.float()
        gradient[:3, 3] += (values[9:12] - pulled).float()
