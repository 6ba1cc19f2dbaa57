"""Settings of the training engine, for single objects and for whole scenes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from twinloop.errors import ParamsError
from twinloop.splat.low_pass import PLAIN, LowPass

Densify = Literal["split", "default", "mcmc"]
Background = Literal["random", "black", "white"]


@dataclass(frozen=True)
class TrainSettings:
    """Settings of `train`. Lengths are in radii of the start, times in parts of the training."""

    iterations: int = 1500
    mask_weight: float = 0.5
    """Weight of mean |alpha - mask|; 0 for pictures without masks."""
    ssim_weight: float = 0.2
    """Share of 1 - SSIM in the photometric loss."""
    opacity_weight: float = 0.0
    """Weight of the mean opacity."""
    scale_weight: float = 0.0
    """Weight of the mean scale, in radii."""
    background: Background = "random"
    """What is behind render and masked picture: a colour drawn for each step, or a fixed one."""
    step_means: float = 2e-3
    """Adam step of the means at the start, in radii; falls to `last_means` of it."""
    step_scales: float = 8e-3
    step_quaternions: float = 2e-3
    step_opacities: float = 3e-2
    step_sh: float = 1.2e-2
    sh_rest: float = 0.25
    """Step of the direction-dependent coefficients relative to `step_sh`."""
    last_means: float = 0.05
    last_others: float = 0.2
    """What the steps fall to, exponentially."""
    raise_degree: float = 0.3
    """Part of the training over which the degree of the spherical harmonics rises from 0."""
    densify: Densify = "split"
    """Ours by gradient, gsplat's DefaultStrategy, or relocation as a Markov chain (MCMC)."""
    densify_share: float = 0.15
    """Share of the set that is added at each densification; gsplat's strategy decides itself."""
    grow_gradient: float = 2e-4
    """Gradient in the image (half widths) over which gsplat's strategy clones or splits."""
    densify_times: int = 8
    densify_until: float = 0.6
    """Densifications are spread evenly over this part of the training."""
    most: int = 12000
    """Most Gaussians."""
    least_opacity: float = 0.05
    """Fainter ones are pruned."""
    largest: float = 0.2
    """Ones with a longer standard deviation (radii) are pruned; where the start's median is over
    half of it, twice that median counts, up to one radius."""
    prune_outside: bool = True
    """Drop what leaves the dilated masks, or is in frame in too few pictures (see `prune`)."""
    exposure: bool = False
    """Fit an affine change of colour to each picture."""
    step_exposure: float = 1e-2
    refine_poses: bool = False
    """Fit a small rigid motion to each camera."""
    step_poses: float = 5e-4
    """Adam step of the poses, rad, and in distances to the object."""
    low_pass: LowPass = PLAIN
    """Gaussians only: the rasteriser's filter; the result is to be drawn with the same."""
    filter_last: float = 32.0
    """Surfels only: what the low-pass factor of the rasteriser grows to from 1, over
    `filter_until` of the training. gsplat's 2 blurs by 0.7 px and sinks surfels into the object."""
    filter_until: float = 0.3
    coarse: float = 0.0
    """Part of the training on pictures of half the size (and a quarter, if that is over 200 px)."""
    validate: int = 0
    """Pictures that are left out and watched: training ends when they get no better."""
    patience: int = 3
    """Checks (one per 5 % of the training) without gain after which it ends."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ParamsError for values that make no training."""
        for name, low, high in (
            ("iterations", 0, 10_000_000),
            ("mask_weight", 0, 1e3),
            ("ssim_weight", 0, 1),
            ("opacity_weight", 0, 1e3),
            ("scale_weight", 0, 1e3),
            ("densify_share", 0, 1),
            ("densify_until", 0, 1),
            ("densify_times", 0, 100_000),
            ("most", 1, 100_000_000),
            ("coarse", 0, 1),
            ("validate", 0, 10_000),
            ("filter_last", 1, 1e6),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ParamsError(f"training: {name} is {value}, expected {low} to {high}.")
        for name, known in (
            ("densify", ("split", "default", "mcmc")),
            ("background", ("random", "black", "white")),
        ):
            if getattr(self, name) not in known:
                raise ParamsError(
                    f"training: {name} is {getattr(self, name)!r}, expected one of "
                    f"{', '.join(known)}."
                )

    def with_(self, **changes: Any) -> TrainSettings:
        """The same settings but for `changes`."""
        return replace(self, **changes)


def scene_settings(**changes: Any) -> TrainSettings:
    """Settings for whole pictures without masks: nothing is behind, nothing is outside."""
    plain = TrainSettings(
        mask_weight=0.0, background="black", prune_outside=False, largest=1.0, most=30000
    )
    return replace(plain, **changes)
