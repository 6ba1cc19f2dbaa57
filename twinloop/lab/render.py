"""Headless rendering of a MuJoCo scene by any pinhole camera, and photos through a lens.

Close a Renderer explicitly (or use ``with``): GL objects freed at interpreter exit crash in some
drivers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import MachineError
from twinloop.lab.gl import choose_backend, make_context
from twinloop.lab.lens import LabCamera, Lens

_GL_ERROR: MachineError | None = None
try:
    choose_backend()  # must come before mujoco is imported
except MachineError as error:  # raised again when something is to be rendered
    _GL_ERROR = error
    os.environ.pop("MUJOCO_GL", None)  # a value that MuJoCo refuses must not break its import

import mujoco  # noqa: E402

NEAR, FAR = 0.02, 12.0
SHADOW_MAP = 2048
"""px; a scene's own, coarser map draws shadows with teeth of a centimetre."""
Image = NDArray[np.uint8]


class Renderer:
    """Renders one compiled model with images up to ``width`` x ``height`` px.

    Geometries of groups 0..2 are drawn; collision pieces live in group 3 and are not.
    Raises MachineError, naming what to install, where no OpenGL is found.
    """

    def __init__(self, model: Any, width: int, height: int, *, shadows: bool = False) -> None:
        if _GL_ERROR is not None:
            raise _GL_ERROR
        self.model = model
        self.width, self.height = width, height
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        model.vis.quality.offsamples = 0  # supersampling does it, the same on every driver
        if shadows:
            model.vis.quality.shadowsize = SHADOW_MAP
        self._context = make_context(width, height)
        self._gpu = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._gpu)
        self._scene = mujoco.MjvScene(model, maxgeom=2000)
        self._option = mujoco.MjvOption()
        self._view = mujoco.MjvCamera()
        flags = self._scene.flags
        flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
        flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        flags[mujoco.mjtRndFlag.mjRND_HAZE] = False

    def render(self, data: Any, camera: LabCamera, T_world_camera: NDArray[np.float64]) -> Image:
        """RGB (height, width, 3) of a pinhole camera (its distortion is ignored), row 0 on top."""
        return self._draw(data, camera, T_world_camera)

    def bodies(
        self, data: Any, camera: LabCamera, T_world_camera: NDArray[np.float64]
    ) -> NDArray[np.int32]:
        """Body seen by each pixel (height, width) of a pinhole camera, -1 where there is none."""
        flags = self._scene.flags
        flags[mujoco.mjtRndFlag.mjRND_SEGMENT] = flags[mujoco.mjtRndFlag.mjRND_IDCOLOR] = True
        colour = self._draw(data, camera, T_world_camera).astype(np.int32)
        flags[mujoco.mjtRndFlag.mjRND_SEGMENT] = flags[mujoco.mjtRndFlag.mjRND_IDCOLOR] = False
        drawn = [g for g in self._scene.geoms[: self._scene.ngeom] if g.segid >= 0]
        body = np.full(max((g.segid for g in drawn), default=-1) + 2, -1, np.int32)
        for geom in drawn:
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM:
                body[geom.segid + 1] = self.model.geom_bodyid[geom.objid]
            elif geom.objtype == mujoco.mjtObj.mjOBJ_SITE:
                body[geom.segid + 1] = self.model.site_bodyid[geom.objid]
        return np.asarray(body[colour @ np.array([1, 256, 65536])])

    def _draw(self, data: Any, camera: LabCamera, T_world_camera: NDArray[np.float64]) -> Image:
        self._context.make_current()
        mujoco.mjv_updateScene(
            self.model,
            data,
            self._option,
            None,
            self._view,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        _aim(self._scene, camera, T_world_camera)
        rect = mujoco.MjrRect(0, 0, camera.width, camera.height)
        mujoco.mjr_render(rect, self._scene, self._gpu)
        image = np.empty((camera.height, camera.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(image, None, rect, self._gpu)
        return image[::-1]

    def close(self) -> None:
        """Free the GL objects. Further use is an error; closing twice is not."""
        if self._gpu is not None:
            self._context.make_current()
            self._gpu.free()
            self._context.free()
            self._gpu = None

    def __enter__(self) -> Renderer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _aim(scene: Any, camera: LabCamera, T_world_camera: NDArray[np.float64]) -> None:
    """Set the scene's (stereo pair of) cameras to a pinhole with any principal point."""
    fx, fy, cx, cy = camera.intrinsics
    left = NEAR * (-0.5 - cx) / fx
    right = NEAR * (camera.width - 0.5 - cx) / fx
    for gl in (scene.camera[0], scene.camera[1]):
        gl.pos = T_world_camera[:3, 3]
        gl.forward = T_world_camera[:3, 2]
        gl.up = -T_world_camera[:3, 1]
        gl.frustum_center = 0.5 * (left + right)
        gl.frustum_width = 0.5 * (right - left)
        gl.frustum_top = NEAR * (cy + 0.5) / fy
        gl.frustum_bottom = -NEAR * (camera.height - 0.5 - cy) / fy
        gl.frustum_near, gl.frustum_far = NEAR, FAR
        gl.orthographic = 0


class PhotoCamera:
    """A camera with a lens and a shutter: mean of the instants of an exposure, then the lens."""

    def __init__(
        self, model: Any, camera: LabCamera, *, supersample: int = 2, shadows: bool = False
    ) -> None:
        self.lens = Lens(camera, supersample)
        wide = self.lens.pinhole
        self.renderer = Renderer(model, wide.width, wide.height, shadows=shadows)

    def expose(self, instants: Iterable[tuple[Any, NDArray[np.float64]]]) -> NDArray[np.float32]:
        """Mean photo (height, width, 3) in 0..255 over (data, T_world_camera) of each instant."""
        total: NDArray[np.float32] | None = None
        count = 0
        for data, T_world_camera in instants:
            image = self.renderer.render(data, self.lens.pinhole, T_world_camera)
            if total is None:
                total = image.astype(np.float32)
            else:
                total += image
            count += 1
        assert total is not None, "an exposure needs at least one instant"
        if count > 1:
            total /= np.float32(count)
        return np.asarray(self.lens.bend(total), dtype=np.float32)

    def close(self) -> None:
        """Free the GL objects."""
        self.renderer.close()

    def __enter__(self) -> PhotoCamera:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
