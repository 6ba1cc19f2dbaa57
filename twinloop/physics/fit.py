"""Identify an object from its pushes: the library's entry point.

Theorem used throughout: with the fingertip's motion given, replacing mass, inertia and all contact
stiffness and damping by s times themselves leaves the object's path unchanged, because gravity and
every contact force scale with s. Poses alone therefore hold no information on mass; all of it comes
through the measured contact force.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from twinloop.errors import InputError
from twinloop.geometry.object_grid import grid_reach
from twinloop.geometry.sdf import DistanceGrid
from twinloop.physics.likelihood import Likelihood, NoiseModel
from twinloop.physics.parameters import DRAG, LOG_MASS, PLACE, SHARED, Priors, unknowns
from twinloop.physics.posterior import Estimates, covariance, estimates
from twinloop.physics.record import (
    PROXIMITY,
    PushRecord,
    PushWindow,
    WindowSettings,
    cut_window,
    rest_rotation,
)
from twinloop.physics.shape import CollisionShape, collision_shape
from twinloop.physics.solver import Optimum, minimise, mixture_weights, solve

Array = npt.NDArray[np.float64]

_SMALLEST_SHARE = 0.02  # optima that count for less are dropped
_UPRIGHT = 0.2  # rad, a rest pose closer than this to the scan's is the scan's


@dataclass(frozen=True)
class FitSettings:
    """How an identification is run.

    Attributes:
        window: Cutting and sampling of pushes.
        noise: Model error.
        priors: Priors of the unknowns.
        cells: Of the distance grid along the longest side, where `identify` is given none.
        starts: Starts followed after the scan.
        first_iterations: Steps from each start.
        explore_iterations: Steps on the misfit averaged over the posterior.
        iterations: Most steps of the last descent.
        draws: Rollouts per averaged step; under 40 for no averaging.
        samples: Posterior draws.
        seed: Of the draws.
        threads: Threads that share the rollouts; never changes the result.
    """

    window: WindowSettings = field(default_factory=WindowSettings)
    noise: NoiseModel = field(default_factory=NoiseModel)
    priors: Priors = field(default_factory=Priors)
    cells: int = 48
    starts: int = 3
    first_iterations: int = 6
    explore_iterations: int = 4
    iterations: int = 12
    draws: int = 96
    samples: int = 512
    seed: int = 0
    threads: int = 2


@dataclass(frozen=True)
class Curves:
    """Measured and predicted signals of one push.

    Attributes:
        name: Of the push.
        held_out: Predicted only.
        frame_time: (F,) s since the window's start.
        measured_position: (F, 3) m, object origin relative to rest.
        predicted_position: (F, 3) m.
        measured_rotation: (F, 3) rad, rotation vector relative to rest, world.
        predicted_rotation: (F, 3) rad.
        bin_time: (B,) s.
        measured_force: (B, 3) N.
        predicted_force: (B, 3) N, contact force; force nuisances are taken off the measured one.
        force_std: (B, 3) N.
        pose_chi2: Mean squared whitened pose residual.
        force_chi2: Mean squared whitened force residual, 0 without forces.
    """

    name: str
    held_out: bool
    frame_time: Array
    measured_position: Array
    predicted_position: Array
    measured_rotation: Array
    predicted_rotation: Array
    bin_time: Array
    measured_force: Array
    predicted_force: Array
    force_std: Array
    pose_chi2: float
    force_chi2: float


@dataclass(frozen=True)
class Identification:
    """Result of ``identify``.

    Attributes:
        full: Estimates from poses and efforts.
        pose_only: The same from poses alone: mass must be unidentifiable.
        curves: Of every push that could be used, fitted and held out.
        excluded: Pushes left out and why.
        optimum: The best one of the full fit; the estimates are a mean over optima.
        unknown_names: Names of the shared unknowns.
        unknown_value: (u,) their values, mean over optima.
        unknown_std: (u,) their posterior sd.
        unknown_prior_std: (u,) their prior sd.
        shape: The collision shape that was used.
    """

    full: Estimates
    pose_only: Estimates
    curves: tuple[Curves, ...]
    excluded: dict[str, str]
    optimum: Optimum
    unknown_names: tuple[str, ...]
    unknown_value: Array
    unknown_std: Array
    unknown_prior_std: Array
    shape: CollisionShape


def identify(
    records: list[PushRecord],
    vertices: Array,
    faces: npt.NDArray[np.int32],
    settings: FitSettings,
    *,
    grid: DistanceGrid | None = None,
    initial_mass: float | None = None,
) -> Identification:
    """Estimate mass, frictions, centre of mass and inertia with intervals and verdicts.

    Args:
        records: Pushes; those marked held out are predicted, never fitted.
        vertices: (V, 3) m, closed mesh, object frame.
        faces: (F, 3) vertex indices, outward.
        settings: How to run.
        grid: Signed distances of the mesh, object frame, which reach `contact_reach` beyond it;
            None: baked here.
        initial_mass: kg, where the search starts; it does not change the answer.

    Raises:
        InputError: No push can be used; the message lists the reason of each. Or the grid ends
            before the fingertip touches.
    """
    reach = contact_reach(records)
    if grid is not None and grid_reach(grid, vertices) < reach:
        raise InputError(
            f"identify: the distance grid ends {1e3 * grid_reach(grid, vertices):.1f} mm from the "
            f"mesh, expected at least {1e3 * reach:.1f} mm: radius of the fingertip and the gap at "
            "which a push begins; bake it with more margin"
        )
    shape = collision_shape(
        vertices,
        faces,
        _down(records),
        grid=grid,
        margin=_widest_tip(records) + 0.01,
        cells=settings.cells,
    )
    windows, excluded = _windows(records, shape, settings.window)
    fitted = [w for w in windows if not w.held_out]
    if not fitted:
        reasons = "; ".join(f"{name}: {why}" for name, why in excluded.items()) or "none given"
        raise InputError(f"identify: no push can be fitted ({reasons}); record more pushes")
    prior = unknowns(shape, fitted, settings.priors)
    likelihood = Likelihood(
        shape, fitted, prior, settings.window, settings.noise, threads=settings.threads
    )
    start = prior.mean.copy()
    if initial_mass is not None:
        start[LOG_MASS] = np.log(initial_mass)
    optima = solve(
        likelihood,
        initial=start,
        start_count=settings.starts,
        first_iterations=settings.first_iterations,
        explore_iterations=settings.explore_iterations,
        iterations=settings.iterations,
        draws=settings.draws,
        seed=settings.seed,
    )
    optimum = optima[0]
    mean, cov = _mixture(likelihood, optima, settings)
    full = estimates(likelihood, mean, cov, samples=settings.samples, seed=settings.seed)
    u = len(SHARED)
    return Identification(
        full=full,
        pose_only=_pose_only(likelihood, optimum, settings),
        curves=(
            *_curves(likelihood, optimum.theta),
            *_predictions(shape, windows, optimum.theta, settings),
        ),
        excluded=excluded,
        optimum=optimum,
        unknown_names=SHARED,
        unknown_value=mean[:u],
        unknown_std=np.sqrt(np.diagonal(cov)[:u]),
        unknown_prior_std=prior.std[:u],
        shape=shape,
    )


def _mixture(
    likelihood: Likelihood, optima: list[Optimum], settings: FitSettings
) -> tuple[Array, Array]:
    """Mean and covariance over the optima that count, each with its own covariance."""
    share = mixture_weights(optima, likelihood.noise.temperature)
    kept = [k for k in range(len(optima)) if share[k] > _SMALLEST_SHARE]
    share = share[kept] / share[kept].sum()
    thetas = np.stack([optima[k].theta for k in kept])
    mean = share @ thetas
    cov = np.zeros((len(mean), len(mean)))
    for weight, theta in zip(share, thetas, strict=True):
        own = covariance(
            likelihood, theta, settings.priors, draws=settings.draws, seed=settings.seed
        )
        cov = cov + weight * (own + np.outer(theta - mean, theta - mean))
    return mean, cov


def _pose_only(likelihood: Likelihood, optimum: Optimum, settings: FitSettings) -> Estimates:
    """The ablation without efforts: same poses, mass back at its prior."""
    poses = Likelihood(
        likelihood.shape,
        likelihood.windows,
        likelihood.prior,
        settings.window,
        settings.noise,
        use_force=False,
        threads=settings.threads,
    )
    theta = optimum.theta.copy()
    theta[LOG_MASS] = likelihood.prior.mean[LOG_MASS]
    found = minimise(poses, theta, settings.first_iterations)
    cov = covariance(poses, found.theta, settings.priors, draws=settings.draws, seed=settings.seed)
    return estimates(poses, found.theta, cov, samples=settings.samples, seed=settings.seed)


def _down(records: list[PushRecord]) -> Array:
    """Direction of gravity in the object frame at rest.

    The object frame's z is up where the object was scanned; pushes normally start from the same
    face. Only a clearly different rest pose overrides that.
    """
    scanned = np.array([0.0, 0.0, -1.0])
    seen = []
    for record in records:
        try:
            seen.append(-rest_rotation(record)[2])
        except InputError:
            continue
    if not seen:
        return scanned
    mean = np.median(np.stack(seen), axis=0)
    mean = mean / np.linalg.norm(mean)
    return scanned if np.arccos(np.clip(mean @ scanned, -1, 1)) < _UPRIGHT else mean


def contact_reach(records: list[PushRecord]) -> float:
    """How far (m) from the object distances are asked for: where the nearest tip's centre is."""
    return _widest_tip(records) + PROXIMITY


def _widest_tip(records: list[PushRecord]) -> float:
    return max((r.tip_radius for r in records), default=0.01)


def _windows(
    records: list[PushRecord], shape: CollisionShape, settings: WindowSettings
) -> tuple[list[PushWindow], dict[str, str]]:
    windows, excluded = [], {}
    for record in records:
        try:
            window = cut_window(record, shape, settings)
            down = -rest_rotation(record)[2] @ shape.R_object_body
            lean = float(np.arccos(np.clip(down @ shape.down, -1.0, 1.0)))
            if lean > _UPRIGHT:
                raise InputError(
                    f"{record.name}: the object stands {np.rad2deg(lean):.0f} deg off the rest "
                    "pose of the other pushes; stand it the same way in all pushes"
                )
            windows.append(window)
        except InputError as error:
            excluded[record.name] = str(error)
    return windows, excluded


def _curves(likelihood: Likelihood, theta: Array) -> list[Curves]:
    """Measured and predicted signals at ``theta``."""
    u = len(SHARED)
    out = []
    residuals = likelihood.residuals(theta)
    for p, window in enumerate(likelihood.windows):
        own = theta[likelihood.prior.push_slice(p)]
        rolled = likelihood.roll(theta[None, :u], np.array([p], np.int32), own[None, : len(PLACE)])
        predicted = likelihood.predict(p, rolled, theta[None, SHARED.index("clock")])
        poses = 6 * len(window.frame_time)
        r = residuals[p]
        bias = own[len(PLACE) : len(PLACE) + 3]
        out.append(
            Curves(
                name=window.name,
                held_out=window.held_out,
                frame_time=window.frame_time,
                measured_position=window.translation,
                predicted_position=predicted.translation[0],
                measured_rotation=rotation_vector(window.rotation),
                predicted_rotation=rotation_vector(predicted.rotation[0]),
                bin_time=window.bin_time,
                measured_force=window.force - theta[DRAG] * window.drag - bias,
                predicted_force=np.exp(theta[LOG_MASS]) * predicted.force[0],
                force_std=1 / likelihood.force_scale[p],
                pose_chi2=float(np.mean(r[:poses] ** 2)),
                force_chi2=float(np.mean(r[poses:] ** 2)) if len(r) > poses else 0.0,
            )
        )
    return out


def rotation_vector(R: Array) -> Array:
    """(..., 3) rad rotation vectors of (..., 3, 3) rotations."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_matrix(R).as_rotvec(), dtype=np.float64)


def _predictions(
    shape: CollisionShape, windows: list[PushWindow], theta: Array, settings: FitSettings
) -> list[Curves]:
    """Held-out pushes from their rest pose alone, with the shared unknowns of the fit."""
    held = [w for w in windows if w.held_out]
    if not held:
        return []
    prior = unknowns(shape, held, settings.priors)
    likelihood = Likelihood(
        shape, held, prior, settings.window, settings.noise, threads=settings.threads
    )
    values = prior.mean.copy()
    values[: len(SHARED)] = theta[: len(SHARED)]
    return _curves(likelihood, values)
