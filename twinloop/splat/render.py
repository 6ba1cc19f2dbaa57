"""Pictures of splats: colour, coverage, depth, normals and what is where, from any camera."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.splat.cameras import Camera
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.low_pass import PLAIN, LowPass
from twinloop.splat.raster_checks import check_device
from twinloop.splat.rasterize import camera_matrix, rasterization
from twinloop.splat.scene import Splats, SplatScene
from twinloop.splat.surfels import Surfels

Layer = Literal["depth", "normal", "segmentation"]
LAYERS: tuple[Layer, ...] = ("depth", "normal", "segmentation")
SOLID = 0.5
"""Coverage from which on a pixel has a depth, a normal and a label."""
SHARP, BLURRED = 32.0, 2.0
"""Low-pass factor that surfels are drawn with: where training ends, and all that gsplat has."""
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class RenderedView:
    """What a camera sees; every array has the image's rows and columns first.

    rgb (h, w, 3) float32, 0..1, over the background. alpha (h, w) float32, 0..1: how much of the
    background is hidden. depth (h, w) float32 m along the camera's z. normal (h, w, 3) float32
    unit, in the world, towards the camera. segmentation (h, w) int32: the label that covers most
    of the pixel. Where alpha is below a half, depth and normal are 0 and the label is -1. Layers
    that were not asked for are None.
    """

    rgb: Float32
    alpha: Float32
    depth: Float32 | None
    normal: Float32 | None
    segmentation: NDArray[np.int32] | None

    def picture(self) -> NDArray[np.uint8]:
        """The colours as (h, w, 3) uint8."""
        return np.asarray(np.rint(self.rgb * 255), np.uint8)


@overload
def render(
    scene: SplatScene | Splats,
    cameras: Camera,
    *,
    layers: Collection[Layer] = ...,
    depth: Literal["expected", "median"] | None = ...,
    background: tuple[float, float, float] = ...,
    device: str = ...,
    low_pass: LowPass = ...,
) -> RenderedView: ...
@overload
def render(
    scene: SplatScene | Splats,
    cameras: Sequence[Camera],
    *,
    layers: Collection[Layer] = ...,
    depth: Literal["expected", "median"] | None = ...,
    background: tuple[float, float, float] = ...,
    device: str = ...,
    low_pass: LowPass = ...,
) -> list[RenderedView]: ...
def render(
    scene: SplatScene | Splats,
    cameras: Camera | Sequence[Camera],
    *,
    layers: Collection[Layer] = LAYERS,
    depth: Literal["expected", "median"] | None = None,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    device: str = "cpu",
    low_pass: LowPass = PLAIN,
) -> RenderedView | list[RenderedView]:
    """Render a scene from one camera, or from each of several (which need not be alike).

    Args:
        scene: What to render, in the world's frame; bare splats are a scene of one part.
        cameras: From where.
        layers: What to make besides colour and coverage; each costs time.
        depth: "expected" is the mean of the depths that a pixel sees, weighted by how much;
            "median", for surfels alone, the depth at which half of the light is stopped, which
            what shines through from behind does not shift. By default the best there is.
        background: Colour behind everything, 0..1.
        device: "cpu", or a CUDA device such as "cuda:0" (through gsplat).
        low_pass: Of Gaussians: that which they were trained with.

    A surfel's normal is its own, a Gaussian's its shortest axis; a pixel's is their mean. Depth is
    that of the centres for Gaussians (on slopes off by up to a splat's size) and for surfels on
    CUDA (gsplat's), and for surfels on the CPU where the ray crosses them.

    Raises:
        InputError: An unknown layer or device, or median depth of Gaussians, which have no surface.
        MachineError: A CUDA device that is not there.
    """
    unknown = sorted(set(layers) - set(LAYERS))
    if unknown:
        raise InputError(f"render: layers {unknown} are not known, expected some of {LAYERS}")
    if not isinstance(scene, SplatScene):
        scene = SplatScene.of(scene)
    depth = depth or ("median" if isinstance(scene.splats, Surfels) else "expected")
    if depth not in ("expected", "median"):
        raise InputError(f"render: depth {depth!r}, expected 'expected' or 'median'")
    if depth == "median" and isinstance(scene.splats, Gaussians) and "depth" in layers:
        raise InputError(
            "render: Gaussians have no median depth, since they are no surface; ask for "
            "depth='expected', or render the surfels"
        )
    check_device("render", device)
    drawing = _Drawing(scene, frozenset(layers), depth == "median", background, device, low_pass)
    if isinstance(cameras, Camera):
        return drawing.view(cameras)
    return [drawing.view(camera) for camera in cameras]


class _Drawing:
    """A scene's arrays on a device, ready for cameras."""

    def __init__(
        self,
        scene: SplatScene,
        layers: frozenset[Layer],
        median: bool,
        background: tuple[float, float, float],
        device: str,
        low_pass: LowPass,
    ) -> None:
        splats = scene.splats
        self.low_pass = low_pass.keywords
        self.layers, self.median, self.device = layers, median, device
        self.background = np.asarray(background, np.float32)
        self.degree, self.flat = splats.degree, isinstance(splats, Surfels)
        self.shape = (
            self._tensor(splats.means),
            self._tensor(splats.quaternions),
            self._tensor(splats.scales),
            self._tensor(splats.opacities),
        )
        self.sh = self._tensor(splats.sh)
        # One channel a part tells how much of a pixel it covers; the last part takes what is left.
        parts = np.arange(len(scene.names) - 1)
        self.parts = (scene.label[:, None] == parts).astype(np.float32)
        self.means, self.axes = splats.means, None
        if not self.flat and "normal" in layers:
            turns = quaternion.to_matrix(splats.quaternions)
            thin = splats.scales.argmin(axis=1)
            self.axes = np.take_along_axis(turns, thin[:, None, None], axis=2)[..., 0]

    def _tensor(self, values: NDArray[np.floating]) -> Tensor:
        return torch.from_numpy(np.array(values, np.float32, order="C")).to(self.device)

    @torch.no_grad()
    def view(self, camera: Camera) -> RenderedView:
        where = (
            self._tensor(se3.inverse(camera.T_world_camera))[None],
            camera_matrix(self._tensor(camera.intrinsics))[None],
            camera.width,
            camera.height,
        )
        image, alpha, normal, median = self._colours(where)
        features = self._features(camera)
        extra = np.zeros((*alpha.shape, 0), np.float32)
        if features.shape[1]:
            extra = self._draw(self._tensor(features), None, "RGB", where)[0]
        solid = alpha >= SOLID
        if self.axes is not None:
            normal, extra = extra[..., :3], extra[..., 3:]
        hidden = image[..., :3] + (1 - alpha)[..., None] * self.background
        return RenderedView(
            hidden.clip(0, 1),
            alpha,
            self._depth(image, median, solid),
            _unit(normal, solid) if normal is not None and "normal" in self.layers else None,
            self._labels(extra, alpha, solid),
        )

    def _colours(
        self, where: tuple[Tensor, Tensor, int, int]
    ) -> tuple[Float32, Float32, Float32 | None, Float32 | None]:
        """Colours with depth (h, w, 4) or without, coverage, and for surfels normal and median."""
        mode: Literal["RGB", "RGB+ED"] = "RGB+ED" if "depth" in self.layers else "RGB"
        return self._draw(self.sh, self.degree, mode, where)

    def _draw(
        self,
        colors: Tensor,
        degree: int | None,
        mode: Literal["RGB", "RGB+ED"],
        where: tuple[Tensor, Tensor, int, int],
    ) -> tuple[Float32, Float32, Float32 | None, Float32 | None]:
        if not self.flat:
            image, alpha, _ = rasterization(
                *self.shape, colors, *where, sh_degree=degree, render_mode=mode, **self.low_pass
            )
            return image[0].cpu().numpy(), alpha[0, ..., 0].cpu().numpy(), None, None
        from twinloop.splat.rasterize_2dgs import rasterization_2dgs

        image, alpha, normal, _, _, median, _ = rasterization_2dgs(
            *self.shape,
            colors,
            *where,
            sh_degree=degree,
            render_mode=mode,
            depth="intersection" if self.device == "cpu" else "center",
            filter_inv_square=SHARP if self.device == "cpu" else BLURRED,
            surface_normals=False,
        )
        return (
            image[0].cpu().numpy(),
            alpha[0, ..., 0].cpu().numpy(),
            normal[0].cpu().numpy(),
            median[0, ..., 0].cpu().numpy(),
        )

    def _features(self, camera: Camera) -> Float32:
        """Channels (n, c) that a second pass draws: normals of Gaussians, then parts."""
        columns = [np.zeros((len(self.means), 0), np.float32)]
        if self.axes is not None:
            # An axis has no front: take the end that looks at the camera.
            outward = camera.T_world_camera[:3, 3] - self.means
            side = np.where(np.einsum("nc,nc->n", self.axes, outward) < 0, -1, 1)
            columns.append((self.axes * side[:, None]).astype(np.float32))
        if "segmentation" in self.layers:
            columns.append(self.parts)
        return np.concatenate(columns, axis=1)

    def _depth(
        self, image: Float32, median: Float32 | None, solid: NDArray[np.bool_]
    ) -> Float32 | None:
        if "depth" not in self.layers:
            return None
        depth = median if self.median and median is not None else image[..., 3]
        return np.where(solid, depth, np.float32(0))

    def _labels(
        self, extra: Float32, alpha: Float32, solid: NDArray[np.bool_]
    ) -> NDArray[np.int32] | None:
        if "segmentation" not in self.layers:
            return None
        rest = alpha[..., None] - extra.sum(axis=-1, keepdims=True)
        label = np.concatenate([extra, rest], axis=-1).argmax(axis=-1).astype(np.int32)
        return np.where(solid, label, np.int32(-1))


def _unit(normal: Float32, solid: NDArray[np.bool_]) -> Float32:
    length = np.linalg.norm(normal, axis=-1, keepdims=True)
    good = solid[..., None] & (length > 1e-6)
    return np.where(good, normal / np.where(good, length, 1), 0).astype(np.float32)
