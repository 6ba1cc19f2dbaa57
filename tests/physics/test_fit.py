"""Identification against an independent MuJoCo world with hidden truth."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh

from tests.physics import world
from twinloop.errors import InputError
from twinloop.geometry.sdf import bake
from twinloop.physics.fit import FitSettings, identify
from twinloop.physics.likelihood import Likelihood, NoiseModel
from twinloop.physics.parameters import CLOCK, LOG_MASS, SHARED, Priors, unknowns
from twinloop.physics.posterior import NAMES
from twinloop.physics.record import WindowSettings, cut_window
from twinloop.physics.shape import collision_shape
from twinloop.physics.solver import huber_weight

WINDOW = WindowSettings(dt=1e-3, every=5)
QUICK = FitSettings(
    window=WINDOW, cells=32, starts=1, explore_iterations=4, iterations=10, draws=48, samples=64
)
KINDS = (("tilt", 3, 0.0), ("slide", 1, 0.4), ("tap", 0, 0.45), ("tap", 2, -0.3))


@functools.cache
def hidden(mass):
    """Hidden box of a mass (kg)."""
    half = [0.045, 0.025, 0.05] if mass > 0.1 else [0.03, 0.018, 0.03]
    return world.hidden_object(half, mass, seed=5, friction=0.33)


@functools.cache
def recorded(mass):
    """Pushes of the hidden box: three fitted, the last held out."""
    pushes = world.push_set(hidden(mass), 3, KINDS, coulomb=0.05, bias=(0.002, -0.001, 0.0))
    return (*pushes[:3], replace(pushes[3], held_out=True))


def mesh(mass):
    """Vertices and faces of the box."""
    box = trimesh.creation.box(2 * hidden(mass).half)
    return np.asarray(box.vertices, float), np.asarray(box.faces, np.int32)


@functools.cache
def fitted(mass):
    """Identification of the hidden box."""
    return identify(list(recorded(mass)), *mesh(mass), QUICK)


def truth(mass):
    """True values in the order of NAMES."""
    box = hidden(mass)
    inertia = box.mass * box.gyration**2
    return np.array([box.mass, box.friction, *box.com, *inertia, 0, 0, 0, box.tip_friction])


def problem(mass=0.3, use_force=True):
    """Likelihood of the first three pushes."""
    shape = collision_shape(*mesh(mass), np.array([0.0, 0.0, -1.0]), cells=32)
    windows = [cut_window(r, shape, WINDOW) for r in recorded(mass)[:3]]
    prior = unknowns(shape, windows, Priors())
    return Likelihood(shape, windows, prior, WINDOW, NoiseModel(), use_force=use_force)


CPU = Path("/proc/cpuinfo")
WIDE = CPU.is_file() and "avx512f" in CPU.read_text()
NARROW = pytest.mark.xfail(
    not WIDE, reason="without AVX-512 the light box's search ends 3.6 sd off: a known bias"
)


@pytest.mark.parametrize("mass", [pytest.param(0.06, marks=NARROW), 0.3])
def test_intervals_cover_the_truth(mass):
    """Mass and friction lie in their 95 % intervals, the centre of mass within 3 sd."""
    found = fitted(mass).full
    for name in ("mass", "friction"):
        i = NAMES.index(name)
        assert found.low[i] <= truth(mass)[i] <= found.high[i], name
    for name in ("com_x", "com_y", "com_z"):
        i = NAMES.index(name)
        assert abs(found.value[i] - truth(mass)[i]) < 3 * found.std[i], name
    assert found.std[0] < 0.2 * mass
    assert found.verdict[0] == "identified"


LIGHT = pytest.mark.xfail(
    strict=True, reason="a light box comes out 16 to 24 % too heavy: a known bias, not mended yet"
)


@pytest.mark.parametrize("mass", [pytest.param(0.06, marks=LIGHT), 0.3])
def test_mass_is_within_15_percent(mass):
    """The point estimate itself; where it is known to miss, the miss is on record."""
    assert fitted(mass).full.value[0] == pytest.approx(mass, rel=0.15)


def test_poses_alone_cannot_tell_mass():
    """Without efforts the posterior of mass is its prior, and the verdict says so."""
    alone = fitted(0.3).pose_only
    assert alone.verdict[NAMES.index("mass")] == "unidentifiable"
    prior = Priors().density[1]
    spread = np.log(alone.high[0] / alone.low[0]) / (2 * 1.96)
    assert spread == pytest.approx(prior, rel=1e-3)


def test_pose_residuals_do_not_change_with_mass():
    """Scaling theorem through the whole likelihood: mass moves no pose residual."""
    likelihood = problem(use_force=False)
    heavy = likelihood.prior.mean.copy()
    heavy[LOG_MASS] += np.log(4.0)
    for light, other in zip(
        likelihood.residuals(likelihood.prior.mean), likelihood.residuals(heavy), strict=True
    ):
        np.testing.assert_allclose(other, light, atol=1e-9)


def test_the_start_does_not_matter():
    """Starting at a tenth and at ten times the mass gives the same answer."""
    quick = replace(QUICK, explore_iterations=0, draws=0, iterations=4, first_iterations=3)
    pushes = list(recorded(0.3)[1:3])
    found = [identify(pushes, *mesh(0.3), quick, initial_mass=m).full.value[0] for m in (0.03, 3.0)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_held_out_pushes_are_predicted_and_never_fitted():
    """Spoiling a held-out push leaves the estimates as they are, to the byte."""
    quick = replace(QUICK, explore_iterations=0, draws=0, iterations=2, first_iterations=1)
    pushes = [recorded(0.3)[1], recorded(0.3)[3]]
    spoiled = replace(pushes[1], contact_force=5 + pushes[1].contact_force)
    first, second = (
        identify([pushes[0], held], *mesh(0.3), quick) for held in (pushes[1], spoiled)
    )
    assert first.full.value.tobytes() == second.full.value.tobytes()
    assert [c.held_out for c in first.curves] == [False, True]
    predicted = fitted(0.3).curves[-1]
    miss = np.linalg.norm(predicted.predicted_position - predicted.measured_position, axis=1)
    assert np.sqrt(np.mean(miss**2)) < 0.005


def test_jacobian_is_the_derivative():
    """Every column equals central differences of the residuals while the object slides."""
    likelihood = problem()
    theta = likelihood.prior.mean.copy()
    _, jacobians = likelihood.linearise(theta, 0.1)
    slide, first = 1, 6 * len(likelihood.windows[1].frame_time)
    columns = {"log_mass": 1e-4, "log_friction": 1e-4, "clock": 1e-5, "drag_x": 1e-3}
    for name, step in columns.items():
        column = SHARED.index(name)
        move = np.zeros_like(theta)
        move[column] = step
        ahead, behind = (likelihood.residuals(theta + s * move)[slide] for s in (1, -1))
        change = (ahead - behind) / (2 * step)
        expected = jacobians[slide][:, column]
        scale = np.abs(change).max()
        gap = np.abs(change - expected)
        assert np.quantile(gap, 0.95) < 0.02 * scale, name
        if column != CLOCK:
            assert np.abs(change[first:]).max() > 0


def test_huber_weight():
    """Weights are one inside the bound and fall as bound over size outside."""
    np.testing.assert_allclose(huber_weight(np.array([0.0, 2.0, -5.0]), 2.5), [1.0, 1.0, 0.5])


def test_refuses_when_nothing_can_be_fitted():
    """A fingertip that never comes near the object is excluded, with the distance."""
    far = replace(recorded(0.3)[0], tip_position=recorded(0.3)[0].tip_position + [0.5, 0.0, 0.0])
    with pytest.raises(InputError, match="never comes within"):
        identify([far], *mesh(0.3), QUICK)


def test_refuses_a_grid_that_ends_before_the_touch():
    """A distance grid of 5 mm margin does not show a fingertip of 10 mm radius."""
    grid = bake(*mesh(0.3), margin=0.005, cells=24)
    with pytest.raises(InputError, match=r"ends 5.0 mm from the mesh, expected at least 13.0 mm"):
        identify(list(recorded(0.3)), *mesh(0.3), QUICK, grid=grid)
