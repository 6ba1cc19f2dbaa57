"""Grip forces: closed forms, and MuJoCo as the judge of friction."""

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinloop.errors import InputError
from twinloop.policy.force_law import (
    GRAVITY,
    distribute,
    friction_law,
    paper_law,
    upper_load,
)

MASS, FRICTION = 0.365, 0.3
POINTS = np.array([[0.034, -0.03, 0.0], [0.0, -0.03, 0.0], [-0.034, -0.03, 0.0], [0, 0.03, 0.0]])
NORMALS = np.array([[0.0, 1, 0], [0, 1, 0], [0, 1, 0], [0, -1, 0]])
CLOSING = np.array([0.0, 1.0, 0.0])


def held_between_plates(force: float, seconds: float = 1.0) -> float:
    """How far a box of MASS falls in `seconds` between two plates pressed by `force` each, m."""
    plate = """<body name="{0}" pos="0 {1} 0.3"><joint name="{0}" type="slide" axis="0 1 0"/>
      <geom type="box" size=".02 .01 .02" mass="0.1" friction="{2} 0 0" condim="3" priority="1"/>
      </body>"""
    xml = f"""<mujoco><option timestep="0.001" cone="elliptic" impratio="50"
      integrator="implicitfast" noslip_iterations="5"/><worldbody>
      <body name="object" pos="0 0 0.3"><freejoint/>
      <geom type="box" size=".04 .0275 .04" mass="{MASS}" contype="1" conaffinity="1"/></body>
      {plate.format("left", -0.0375, FRICTION)}{plate.format("right", 0.0375, FRICTION)}
      </worldbody><actuator><motor name="l" joint="left"/><motor name="r" joint="right"/></actuator>
      </mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    data.ctrl[:] = force, -force
    mujoco.mj_step(model, data, int(seconds / 0.001))
    return 0.3 - float(data.body("object").xpos[2])


def test_friction_holds_a_box_at_the_law_and_not_below():
    """At S = 1.05 two plates carry the box in MuJoCo; at S = 0.9 it falls freely less friction."""
    held = held_between_plates(friction_law(MASS / FRICTION, 1.05).side_force)
    dropped = held_between_plates(friction_law(MASS / FRICTION, 0.9).side_force, 0.3)
    assert held < 0.002
    # Coulomb friction takes the share S of the weight: a = g (1 - S).
    assert dropped == pytest.approx(0.5 * GRAVITY * 0.1 * 0.3**2, rel=0.15)


def test_papers_law_cannot_lift_below_friction_one():
    """M g / n at n contacts carries mu m g: the box falls with a = g (1 - mu)."""
    force = paper_law(MASS, 4).side_force
    assert force == pytest.approx(MASS * GRAVITY / 2)
    fallen = held_between_plates(force, 0.1)
    assert fallen == pytest.approx(0.5 * GRAVITY * (1 - FRICTION) * 0.1**2, rel=0.1)


@given(st.floats(0.01, 5), st.floats(0.01, 5), st.floats(0.1, 1.5), st.floats(0.5, 4))
def test_force_grows_with_mass_and_falls_with_friction(light, extra, friction, margin):
    """Monotone in mass, inverse in friction, linear in both m/mu and S."""
    low = friction_law(light / friction, margin).side_force
    assert friction_law((light + extra) / friction, margin).side_force > low
    assert friction_law(light / (2 * friction), margin).side_force == pytest.approx(low / 2)
    assert 2 * friction * low == pytest.approx(margin * light * GRAVITY)


def test_upper_load_is_the_quantile_of_the_ratio():
    """A share `risk` of the samples loads more; samples are taken pairwise."""
    rng = np.random.default_rng(0)
    mass, friction = rng.lognormal(-1, 0.2, 4000), rng.lognormal(-1, 0.3, 4000)
    load = upper_load(mass, friction, 0.05)
    assert np.mean(mass / friction > load) == pytest.approx(0.05, abs=1e-3)
    assert upper_load(mass, 2 * mass, 0.05) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: upper_load(np.ones(3), np.ones(2), 0.05), "equally many"),
        (lambda: upper_load(np.ones(2), np.array([0.3, 0.0]), 0.05), "sample 1"),
        (lambda: upper_load(np.ones(2), np.ones(2), 1.5), "risk"),
        (lambda: friction_law(np.nan, 2.0), "m/mu"),
        (lambda: paper_law(0.3, 1), "at least 2"),
    ],
)
def test_impossible_inputs_are_refused(call, words):
    """Each message names what is wrong."""
    with pytest.raises(InputError, match=words):
        call()


def test_sides_balance_and_do_not_turn_the_object():
    """Both sides press with the side force and the moments about the centre cancel."""
    force = distribute(POINTS, NORMALS, 9.0, CLOSING)
    assert force[:3].sum() == pytest.approx(9.0)
    assert force[3] == pytest.approx(9.0)
    moment = np.cross(POINTS, NORMALS * force[:, None]).sum(axis=0)
    assert np.abs(moment).max() < 1e-3


def test_a_thumb_off_centre_loads_the_finger_beside_it():
    """The finger opposite the thumb takes more when the thumb moves over to it."""
    points = POINTS.copy()
    points[3, 0] = 0.02
    force = distribute(points, NORMALS, 9.0, CLOSING)
    assert force[0] > force[1] > force[2]


@given(st.permutations(range(3)))
def test_order_of_the_fingers_does_not_matter(order):
    """Permuting the fingers permutes the forces."""
    points = POINTS.copy()
    points[3, 0] = 0.01
    base = distribute(points, NORMALS, 5.0, CLOSING)
    index = [*order, 3]
    assert distribute(points[index], NORMALS[index], 5.0, CLOSING) == pytest.approx(
        base[index], abs=1e-6
    )
