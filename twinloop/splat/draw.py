"""Draw Gaussians from a camera, without gradients."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from twinloop.splat.gaussians import Gaussians
from twinloop.splat.rasterize import camera_matrix, rasterization


def render(
    gaussians: Gaussians,
    intrinsics: NDArray[np.floating],
    width: int,
    height: int,
    T_camera_gaussians: NDArray[np.floating],
    device: str = "cpu",
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Premultiplied colour (height, width, 3) and alpha (height, width) from one camera.

    `intrinsics` are OpenCV's fx, fy, cx, cy (first pixel's centre at (0, 0)), px.
    """

    def tensor(values: NDArray[np.floating]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(device)

    with torch.no_grad():
        image, alpha, _ = rasterization(
            tensor(gaussians.means),
            tensor(gaussians.quaternions),
            tensor(gaussians.scales),
            tensor(gaussians.opacities),
            tensor(gaussians.sh),
            tensor(T_camera_gaussians)[None],
            camera_matrix(tensor(intrinsics))[None],
            width,
            height,
            sh_degree=gaussians.degree,
        )
    return image[0].cpu().numpy(), alpha[0, ..., 0].cpu().numpy()
