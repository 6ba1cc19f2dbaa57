"""Mass properties of lab objects: closed forms, and sampling that shares no code with them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.lab.mass import (
    ball_moments,
    clip_triangles,
    contents_moments,
    shell_moments,
    solid_moments,
)
from twinloop.lab.objects import build_object, build_shape, mass_moments
from twinloop.lab.shapes import convex_hull
from twinloop.lab.spec import load_preset, presets

BOX = convex_hull(
    np.array([[x, y, z] for x in (0, 0.1) for y in (0, 0.06) for z in (0, 0.08)], dtype=float)
)


def test_solid_box_has_the_textbook_inertia():
    """m/12 (b^2 + c^2) about the centre of a uniform box."""
    body = solid_moments(*BOX).scaled_to(0.3)
    a, b, c = 0.1, 0.06, 0.08
    expected = 0.3 / 12.0 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
    np.testing.assert_allclose(body.com(), [0.05, 0.03, 0.04], atol=1e-14)
    np.testing.assert_allclose(body.inertia(), np.diag(expected), atol=1e-15)


def test_hollow_cube_has_the_textbook_inertia():
    """5/18 m a^2 about the centre of a thin cubic shell of edge a."""
    cube = convex_hull(
        np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1.0)]) * 0.1
    )
    body = shell_moments(*cube).scaled_to(0.2)
    np.testing.assert_allclose(body.inertia(), np.eye(3) * 5 / 18 * 0.2 * 0.01, atol=1e-15)


def test_ball_off_the_origin_follows_the_parallel_axis_theorem():
    """2/5 m r^2 about its centre, wherever it lies."""
    ball = ball_moments(0.5, np.array([0.1, -0.2, 0.3]), 0.02)
    np.testing.assert_allclose(ball.com(), [0.1, -0.2, 0.3])
    np.testing.assert_allclose(ball.inertia(), np.eye(3) * 0.4 * 0.5 * 0.02**2, atol=1e-15)


@given(
    level=st.floats(0.05, 0.999),
    direction=st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda d: np.linalg.norm(d) > 0.1),
)
@settings(max_examples=40, deadline=None)
def test_contents_fill_the_share_asked_for_and_sink(level, direction):
    """The cut keeps exactly the asked volume, on the side that the contents settle to."""
    whole = solid_moments(*BOX)
    part = contents_moments(*BOX, level, np.array(direction))
    assert part.mass == pytest.approx(level * whole.mass, rel=1e-8)
    assert (part.com() - whole.com()) @ np.array(direction) > 0.0


def test_contents_of_a_level_box_are_a_lower_box():
    """A box filled to 40 % along -z is a box of 40 % of the height."""
    part = contents_moments(*BOX, 0.4, np.array([0.0, 0.0, -1.0])).scaled_to(1.0)
    np.testing.assert_allclose(part.com(), [0.05, 0.03, 0.016], atol=1e-10)
    expected = np.array([0.06**2 + 0.032**2, 0.1**2 + 0.032**2, 0.1**2 + 0.06**2]) / 12
    np.testing.assert_allclose(np.diag(part.inertia()), expected, rtol=1e-7)


def test_clipping_splits_the_surface_without_loss():
    """Areas of both sides of a cut add up to the whole surface."""

    def area(t):
        return 0.5 * np.linalg.norm(np.cross(t[:, 1] - t[:, 0], t[:, 2] - t[:, 0]), axis=1).sum()

    triangles, normal = BOX[0][BOX[1]], np.array([0.48, 0.6, 0.64])
    below = clip_triangles(triangles, normal, 0.07)
    above = clip_triangles(triangles, -normal, -0.07)
    assert area(below) + area(above) == pytest.approx(area(triangles), rel=1e-12)


def _inside_any(points, parts):
    """Membership in the union of convex pieces, by the half-spaces of their faces."""
    inside = np.zeros(len(points), dtype=bool)
    for vertices, faces in parts:
        t = vertices[faces]
        normal = np.cross(t[:, 1] - t[:, 0], t[:, 2] - t[:, 0])
        depth = points @ normal.T - np.einsum("fi,fi->f", normal, t[:, 0])
        inside |= (depth <= 1e-15).all(axis=1)
    return inside


@pytest.mark.parametrize("name", presets())
def test_mass_properties_agree_with_sampling(name):
    """Shell, contents and lumps against random points in volume and on the surface."""
    spec = load_preset(name)
    shape = build_shape(spec)
    exact = mass_moments(spec, shape)
    rng = np.random.default_rng(5)
    low, high = shape.vertices.min(axis=0), shape.vertices.max(axis=0)
    points = rng.uniform(low, high, (120_000, 3))
    points = points[_inside_any(points, shape.parts)]
    filling = spec.filling
    depth = points @ np.asarray(filling.direction)  # contents lie deepest along the direction
    points = points[depth >= np.quantile(depth, 1.0 - filling.level)]
    t = shape.vertices[shape.faces]
    area = np.linalg.norm(np.cross(t[:, 1] - t[:, 0], t[:, 2] - t[:, 0]), axis=1)
    pick = t[rng.choice(len(t), 40_000, p=area / area.sum())]
    skin = np.einsum("nk,nki->ni", rng.dirichlet([1, 1, 1], len(pick)), pick)
    clouds = [(points, 1.0 - filling.shell - sum(x.share for x in filling.lumps))]
    clouds.append((skin, filling.shell))
    for lump in filling.lumps:
        ball = rng.standard_normal((20_000, 3))
        ball *= (rng.random(20_000) ** (1 / 3) / np.linalg.norm(ball, axis=1))[:, None]
        clouds.append((low + np.array(lump.at) * (high - low) + lump.radius * ball, lump.share))
    weight = np.concatenate([np.full(len(p), share / len(p)) for p, share in clouds]) * spec.mass
    x = np.concatenate([p for p, _ in clouds])
    com = weight @ x / spec.mass
    r = x - com
    inertia = np.einsum("n,nij->ij", weight, (r**2).sum(1)[:, None, None] * np.eye(3)) - (
        np.einsum("n,ni,nj->ij", weight, r, r)
    )
    size = np.linalg.norm(high - low)
    np.testing.assert_allclose(exact.com(), com, atol=0.003 * size)
    np.testing.assert_allclose(exact.inertia(), inertia, atol=0.012 * np.trace(inertia))
    assert exact.mass == pytest.approx(spec.mass, rel=1e-12)


@pytest.mark.parametrize("name", presets())
def test_centre_of_mass_is_not_the_uniform_one_and_rests(name):
    """Every recipe is unevenly filled, yet stands: its CoM projects well inside its footprint."""
    spec = load_preset(name)
    item = build_object(spec, name)
    uniform = solid_moments(item.vertices, item.faces)
    assert np.linalg.norm(item.com - uniform.com()) > 0.01 * np.linalg.norm(item.size)
    foot = item.vertices[item.vertices[:, 2] < 1e-6][:, :2]
    hull = convex_hull(
        np.concatenate([np.c_[foot, 0 * foot[:, :1]], np.c_[foot, 0 * foot[:, :1] + 1]])
    )
    point = np.array([[*item.com[:2], 0.5]])
    margin = 0.002 * np.array([[[1, 0], [-1, 0], [0, 1], [0, -1]]])
    for shift in margin[0]:
        assert _inside_any(point + np.array([*shift, 0.0]), [hull])[0]
    eigenvalues = np.linalg.eigvalsh(item.inertia)
    assert eigenvalues[0] > 0
    assert eigenvalues[0] + eigenvalues[1] > eigenvalues[2]
