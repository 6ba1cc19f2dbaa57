"""The state of a training of Gaussians or surfels, and one step of it.

Each step draws one picture's crop around the object, over a random background that both the render
and the masked picture get (`twinloop.splat.loss`), and takes one Adam step; so colour cannot hide
in the background and nothing may stay outside the silhouette. What else a set shall obey comes in
as an `Objective`: more terms of the loss, and keywords for the rasteriser by progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol

import numpy as np
import torch
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat import densify
from twinloop.splat.densify_gsplat import DefaultDensifier
from twinloop.splat.exposure import Exposure
from twinloop.splat.loss import masked_loss
from twinloop.splat.model import NAMES, Drawn, Model, Splats
from twinloop.splat.pictures import Crop, check_views, crops, halved
from twinloop.splat.pose_refine import PoseRefinement
from twinloop.splat.prune import Silhouettes
from twinloop.splat.surfels import device_keywords
from twinloop.splat.train_settings import TrainSettings
from twinloop.splat.views import Views

MCMC_NOISE = 80.0
"""Noise of MCMC at the start, 1/radius: gsplat's 5e5 times its step 1.6e-4 of the means."""


@dataclass
class Step:
    """What an objective sees of one step: progress 0..1, the picture and what was drawn."""

    iteration: int
    progress: float
    crop: Crop
    drawn: Drawn
    model: Model[Any]
    radius: float


class Objective(Protocol):
    """What else a set shall obey. Holds no state that changes: checkpoints do not keep it."""

    def keywords(self, iteration: int, progress: float) -> dict[str, Any]:
        """Keywords of the rasteriser for this step, for example ``render_mode``."""
        ...

    def loss(self, step: Step) -> Tensor | None:
        """Terms to add to the loss of this step; None for none."""
        ...


class Trainer(Generic[Splats]):
    """The state of a training; `step` takes it further by one."""

    def __init__(
        self,
        start: Splats,
        views: Views,
        settings: TrainSettings,
        device: str = "cpu",
        objective: Objective | None = None,
    ) -> None:
        masked = settings.mask_weight > 0
        check_views(views, masked)
        if len(start) == 0:
            raise InputError("start of training: no Gaussians; expected at least one.")
        self.settings, self.device, self.objective = settings, device, objective
        self.generator = torch.Generator().manual_seed(settings.seed)
        pictures = crops(views, device=device, masked=masked)
        self.watched, self.pictures = _watched(pictures, settings.validate)
        self.radius = _radius(start, views, masked)
        # A start of few, large ones is no fault: they may be twice as large as they began.
        begun = 2 * float(np.median(start.scales.max(axis=1))) / self.radius
        self.largest = self.radius * max(settings.largest, min(begun, 1.0))
        eyes = -np.einsum(
            "vji,vj->vi", views.T_camera_world[:, :3, :3], views.T_camera_world[:, :3, 3]
        )
        middle = np.median(start.means.astype(np.float64), axis=0)
        self.distance = float(np.median(np.linalg.norm(eyes - middle, axis=1)))
        near = min(0.01, 0.02 * self.distance)
        self.model: Model[Splats] = Model(start, settings, self.radius, near, device)
        self.degree = start.degree
        self.silhouettes = Silhouettes(self.pictures)
        self.levels = _levels(self.pictures, settings)
        self.exposure: Exposure | None = None
        if settings.exposure:
            self.exposure = Exposure(len(self.pictures), settings.step_exposure, device=device)
        self.poses: PoseRefinement | None = None
        if settings.refine_poses:
            viewmats = [c.viewmat for c in self.pictures]
            self.poses = PoseRefinement(viewmats, self.distance, settings.step_poses, device)
        self.default = (
            DefaultDensifier(settings, self.radius, self.model.flat)
            if settings.densify == "default"
            else None
        )
        self.pressure = torch.zeros(len(start), device=device)
        self.visits = torch.zeros(len(start), device=device)
        self.order: list[int] = []
        self.iteration = 0
        self.progress = 0.0
        self.events = _events(settings)
        self.psnr = float("nan")
        self.best: tuple[float, dict[str, Tensor]] | None = None
        self.stale = 0
        if settings.prune_outside and bool(self._outside().all()):
            raise InputError(
                "start of training: every Gaussian lies outside the masks of over a fifth of the "
                "pictures. Do the poses belong to these pictures, and are they in the units of "
                "the start (metres)?"
            )

    def step(self, progress: float) -> None:
        """One step; `progress` (0..1) sets the step sizes, densification and filters."""
        self.progress = progress
        s, model = self.settings, self.model
        if not self.order:
            if self.iteration:
                self._fix_gauges()
            self.order = torch.randperm(len(self.pictures), generator=self.generator).tolist()
        index = self.order.pop()
        crop = self._level(progress)[index]
        background = self._background()
        viewmat = self.poses.viewmat(index) if self.poses else crop.viewmat
        drawn = model.draw(crop, self._degree(progress), viewmat, **self._keywords(progress))
        image = drawn.image
        if self.exposure:
            image = self.exposure.apply(index, image, drawn.alpha)
        loss = masked_loss(
            image,
            drawn.alpha,
            crop.image,
            crop.mask,
            background,
            ssim_weight=s.ssim_weight,
            alpha_weight=s.mask_weight,
        )
        if s.opacity_weight:
            loss = loss + s.opacity_weight * torch.sigmoid(model.free["opacities"]).mean()
        if s.scale_weight:
            loss = loss + s.scale_weight / self.radius * model.free["scales"].exp().mean()
        if self.objective is not None:
            more = self.objective.loss(
                Step(self.iteration, progress, crop, drawn, model, self.radius)
            )
            loss = loss if more is None else loss + more
        if self.default:
            self.default.watch(drawn)
        loss.backward()  # type: ignore[no-untyped-call]
        self._press(crop, drawn)
        decay = s.last_means**progress
        others = s.last_others**progress
        model.step({name: decay if name == "means" else others for name in NAMES})
        if self.exposure:
            self.exposure.step(index, others)
        if self.poses:
            self.poses.step(index, others)
        self.iteration += 1
        if s.densify == "mcmc" and progress < s.densify_until:
            densify.shake(model, MCMC_NOISE / self.radius * decay, self.generator)
        if self.iteration % 20 == 1:
            self._note(image.detach(), crop)
        self._densify_when_due(progress)

    def _keywords(self, progress: float) -> dict[str, Any]:
        s = self.settings
        keywords: dict[str, Any] = {}
        if self.model.flat:
            grown = min(1.0, progress / s.filter_until) if s.filter_until > 0 else 1.0
            keywords |= device_keywords(self.device, s.filter_last**grown)
        else:
            keywords |= s.low_pass.keywords
        if self.objective is not None:
            keywords |= self.objective.keywords(self.iteration, progress)
        return keywords

    def _background(self) -> Tensor:
        if self.settings.background == "random":
            return torch.rand(3, generator=self.generator).to(self.device)
        level = 1.0 if self.settings.background == "white" else 0.0
        return torch.full((3,), level, device=self.device)

    def _degree(self, progress: float) -> int:
        part = self.settings.raise_degree
        if part <= 0 or progress >= part:
            return self.degree
        return min(self.degree, int((self.degree + 1) * progress / part))

    def _level(self, progress: float) -> list[Crop]:
        if progress >= self.settings.coarse or len(self.levels) == 1:
            return self.levels[0]
        return self.levels[
            len(self.levels)
            - 1
            - min(
                len(self.levels) - 2,
                int((len(self.levels) - 1) * progress / self.settings.coarse),
            )
        ]

    @torch.no_grad()
    def _press(self, crop: Crop, drawn: Drawn) -> None:
        """Add this step's gradient, by angle at the camera, to what decides who is split."""
        gradient = self.model.free["means"].grad
        if gradient is None or self.progress >= self.settings.densify_until:
            return
        if self.default:
            self.default.see(self.model, drawn)
            return
        depth = self.model.free["means"] @ crop.viewmat[2, :3] + crop.viewmat[2, 3]
        size = gradient.norm(dim=1)
        self.pressure += size * depth.clamp_min(0)
        self.visits += (size > 0).float()

    @torch.no_grad()
    def _note(self, image: Tensor, crop: Crop) -> None:
        wanted = crop.image * crop.mask[..., None]
        error = float(((image.clamp(0, 1) - wanted) ** 2).mean())
        now = -10 * float(np.log10(max(error, 1e-10)))
        self.psnr = now if np.isnan(self.psnr) else 0.8 * self.psnr + 0.2 * now

    @torch.no_grad()
    def _outside(self) -> Tensor:
        poses = self.poses.current() if self.poses else None
        return self.silhouettes.outside(self.model.free["means"], poses)

    @torch.no_grad()
    def sound(self, least_opacity: float) -> Tensor:
        """Which Gaussians (n,) are to stay: visible, not huge, and inside the silhouettes."""
        free = self.model.free
        keep = torch.sigmoid(free["opacities"]) > least_opacity
        keep &= free["scales"].max(dim=1).values < float(np.log(self.largest))
        if self.settings.prune_outside:
            keep &= ~self._outside()
        if not bool(keep.any()):
            raise InputError(
                f"training: no Gaussian is left after {self.iteration} steps: all are faint, huge "
                "or outside the masks. The poses and masks of ingest disagree, or step sizes are "
                "too large for this scene."
            )
        return keep

    def _densify_when_due(self, progress: float) -> None:
        if not self.events or progress < self.events[0][0]:
            return
        _, grow = self.events.pop(0)
        s = self.settings
        keep = self.sound(s.least_opacity)
        share = s.densify_share if grow else 0.0
        if self.default:
            self.model.drop(keep)
            self.default.drop(keep)
            if grow:
                self.default.apply(self.model, s.most, self.generator)
        elif s.densify == "mcmc":
            most = max(s.most, int(keep.sum()))
            densify.relocate(self.model, keep, share, most, self.generator, s.least_opacity)
        else:
            pressure = self.pressure / self.visits.clamp_min(1)
            densify.split(self.model, pressure, keep, share, s.most, self.generator)
        self.pressure = torch.zeros(len(self.model), device=self.device)
        self.visits = torch.zeros(len(self.model), device=self.device)

    def _fix_gauges(self) -> None:
        if self.exposure:
            self.exposure.fix_gauge()
        if self.poses:
            self.poses.fix_gauge()

    def finish(self) -> Splats:
        """Prune for the last time and return the set."""
        if self.best is not None:
            self.model.load(self.best[1])
        keep = self.sound(min(0.02, self.settings.least_opacity))
        self.model.drop(keep)
        return self.model.result()

    @torch.no_grad()
    def check(self) -> bool:
        """Judge by the watched pictures; whether to go on."""
        total = 0.0
        for crop in self.watched:
            drawn = self.model.draw(crop, self._degree(1.0), **self._keywords(self.progress))
            error = drawn.image.clamp(0, 1) - crop.image * crop.mask[..., None]
            total += -10 * float(np.log10(max(float((error**2).mean()), 1e-10)))
        score = total / len(self.watched)
        if self.best is None or score > self.best[0]:
            state = {k: v.clone() for k, v in self.model.state().items()}
            self.best = (score, state)
            self.stale = 0
        else:
            self.stale += 1
        return self.stale < self.settings.patience

    def state(self) -> dict[str, Tensor]:
        """Everything that the next steps depend on, by name."""
        out = self.model.state()
        if self.exposure:
            out |= self.exposure.rows.state("exposure")
        if self.poses:
            out |= self.poses.rows.state("poses") | {"poses.now": self.poses.now}
        if self.default:
            out |= self.default.state()
        out["pressure"], out["visits"] = self.pressure, self.visits
        out["order"] = torch.tensor(self.order, dtype=torch.int64)
        out["generator"] = self.generator.get_state()
        out["counts"] = torch.tensor([self.iteration, len(self.events), self.stale])
        out["scores"] = torch.tensor(
            [self.progress, self.psnr, self.best[0] if self.best else 0.0], dtype=torch.float64
        )
        if self.best:
            out |= {f"best/{k}": v for k, v in self.best[1].items()}
        return out

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave; the settings and views must be those it was made with."""
        self.model.load(state)
        if self.exposure:
            self.exposure.rows.load("exposure", state)
        if self.poses:
            self.poses.rows.load("poses", state)
            self.poses.now = state["poses.now"].clone().to(self.device)
        if self.default:
            self.default.load(state)
        self.pressure = state["pressure"].clone().to(self.device)
        self.visits = state["visits"].clone().to(self.device)
        self.order = state["order"].tolist()
        self.generator.set_state(state["generator"])
        self.iteration, events, self.stale = state["counts"].tolist()
        self.events = self.events[len(self.events) - events :]
        self.progress, self.psnr, score = state["scores"].tolist()
        best = {k[len("best/") :]: v for k, v in state.items() if k.startswith("best/")}
        self.best = (score, best) if best else None


def _watched(pictures: list[Crop], count: int) -> tuple[list[Crop], list[Crop]]:
    """Pictures to watch, evenly spread, and the others."""
    if count == 0:
        return [], pictures
    if count > len(pictures) - 2:
        raise InputError(
            f"training: {count} of {len(pictures)} pictures to watch leave "
            f"{max(0, len(pictures) - count)} to fit, expected at least 2; lower `validate`."
        )
    at = {int((i + 0.5) * len(pictures) / count) for i in range(count)}
    return (
        [c for i, c in enumerate(pictures) if i in at],
        [c for i, c in enumerate(pictures) if i not in at],
    )


def _radius(start: Any, views: Views, masked: bool) -> float:
    """Extent of what is fitted, m: the object's, or for a scene that of the cameras."""
    if masked:
        radius = float(np.linalg.norm(start.means - start.means.mean(0), axis=1).max())
        return radius if radius > 0 else float(np.max(start.scales, initial=1e-6))
    T = views.T_camera_world
    eyes = -np.einsum("vji,vj->vi", T[:, :3, :3], T[:, :3, 3])
    return max(1e-6, 1.1 * float(np.linalg.norm(eyes - eyes.mean(0), axis=1).max()))


def _levels(pictures: list[Crop], settings: TrainSettings) -> list[list[Crop]]:
    """The pictures, and where training starts coarse those of half the size and so on."""
    levels = [pictures]
    if settings.coarse > 0:
        while len(levels) < 4 and min(min(c.mask.shape) for c in levels[-1]) >= 64:
            if len(levels) > 1 and max(max(c.mask.shape) for c in levels[-1]) <= 200:
                break
            levels.append([halved(c) for c in levels[-1]])
    return levels


def _events(settings: TrainSettings) -> list[tuple[float, bool]]:
    """When the set is pruned, in parts of the training, and whether it grows then."""
    n = settings.densify_times
    grow = [(settings.densify_until * (i + 1) / (n + 1), True) for i in range(n)]
    return grow + [(t, False) for t in (0.7, 0.8, 0.9) if t > settings.densify_until]
