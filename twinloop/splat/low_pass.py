"""How 3D Gaussians smaller than a pixel are drawn; a set is to be drawn as it was trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twinloop.errors import ParamsError


@dataclass(frozen=True)
class LowPass:
    """The rasteriser's low-pass filter for 3D Gaussians."""

    antialiased: bool = False
    """Whether what the filter widens gets fainter by as much (Mip-Splatting, Yu et al. 2024), so
    that a small Gaussian's light stays the same at any distance."""
    eps2d: float = 0.3
    """What is added to both variances in the image, px^2."""

    def __post_init__(self) -> None:
        """Raise ParamsError for what is no filter."""
        if not 0 <= self.eps2d <= 100:
            raise ParamsError(f"low-pass filter: eps2d is {self.eps2d} px^2, expected 0 to 100.")

    @property
    def keywords(self) -> dict[str, Any]:
        """Keywords of `twinloop.splat.rasterize.rasterization`."""
        mode = "antialiased" if self.antialiased else "classic"
        return {"rasterize_mode": mode, "eps2d": self.eps2d}


PLAIN = LowPass()
"""That of 3D Gaussian splatting, which viewers of its files have."""
