"""Pose errors against stored values by bop_toolkit's definitions, and against brute force."""

import json
from pathlib import Path

import numpy as np
import pytest

from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.symmetry import Symmetry
from twinloop.metrics.poses import average_distance
from twinloop.metrics.symmetric import nearest_distance, projection_distance, surface_distance
from twinloop.metrics.visible import visible_discrepancy

DATA = Path(__file__).resolve().parents[1] / "data"
DISTANCES = json.loads((DATA / "bop_distances.json").read_text())
SEEN = json.loads((DATA / "bop_vsd.json").read_text())


@pytest.mark.parametrize("case", DISTANCES["cases"], ids=lambda case: case["name"])
def test_distances_agree(case):
    """ADD, ADD-S, MSSD and MSPD, for every kind of symmetry, to 1e-9 (mm, px)."""
    symmetry = Symmetry.from_bop(case["info"], "case", unit=1.0)
    transforms = symmetry.transforms(case["step"])
    assert len(transforms) == case["transforms"]
    assert transforms.sum(axis=0)[:3] == pytest.approx(np.array(case["transform_sum"]), abs=1e-9)
    points = np.array(case["points"])
    estimate = np.array([row["estimate"] for row in case["poses"]])
    truth = np.array([row["truth"] for row in case["poses"]])
    intrinsics = DISTANCES["intrinsics"]
    ours = {
        "add": average_distance(estimate, truth, points),
        "adi": nearest_distance(estimate, truth, points),
        "mssd": surface_distance(estimate, truth, points, transforms),
        "mspd": projection_distance(estimate, truth, points, transforms, intrinsics),
    }
    for name, found in ours.items():
        stored = np.array([row[name] for row in case["poses"]])
        assert found == pytest.approx(stored, abs=1e-9, rel=1e-12), name


@pytest.mark.parametrize("number", range(len(SEEN["cases"])))
def test_visible_discrepancy_agrees(number):
    """VSD with both costs, in parts of the diameter and in mm, holes and occluders in the scene."""
    case = SEEN["cases"][number]
    pictures = [np.array(case[name]) for name in ("estimate", "truth", "scene")]
    rest = (*pictures, SEEN["intrinsics"], case["delta"])
    for cost in ("step", "tlinear"):
        found = visible_discrepancy(*rest, case["taus"], case["diameter"], cost)
        assert found == pytest.approx(case[cost], abs=1e-9)
    assert visible_discrepancy(*rest, [10.0, 20.0]) == pytest.approx(case["step_mm"], abs=1e-9)


def test_largest_distance_is_at_a_corner_of_the_hull():
    """MSSD over hull corners equals brute force over all points and symmetries."""
    rng = np.random.default_rng(5)
    points = rng.normal(size=(400, 3)) * [0.03, 0.04, 0.05]
    turns = Symmetry.from_bop(
        {"symmetries_continuous": [{"axis": [0, 1, 0], "offset": [3.0, 0, 1.0]}]}, "case"
    ).transforms(0.1)
    estimate, truth = se3.exp(rng.normal(size=(2, 6)) * 0.3)
    brute = min(
        np.linalg.norm(se3.apply(estimate, points) - se3.apply(truth @ S, points), axis=1).max()
        for S in turns
    )
    assert surface_distance(estimate, truth, points, turns) == pytest.approx(brute, abs=1e-12)


def test_symmetric_errors_do_not_see_a_symmetry():
    """A square prism's quarter turn costs ADD, but neither ADD-S nor MSSD nor MSPD."""
    ring = np.stack(np.meshgrid([-0.03, 0.03], [-0.03, 0.03], [0.0, 0.1]), -1).reshape(-1, 3)
    quarter = np.eye(4)
    quarter[:2, :2] = [[0, -1], [1, 0]]
    symmetry = Symmetry(np.stack([np.linalg.matrix_power(quarter, k) for k in range(4)]))
    truth = se3.exp(np.array([0.1, 0.0, 0.7, 0.3, 0.2, 0.1]))
    turned = truth @ quarter
    assert average_distance(turned, truth, ring) == pytest.approx(0.06)
    assert nearest_distance(turned, truth, ring) == pytest.approx(0.0, abs=1e-12)
    assert surface_distance(turned, truth, ring, symmetry.transforms()) < 1e-12
    camera = (500.0, 500.0, 320.0, 240.0)
    assert projection_distance(turned, truth, ring, symmetry.transforms(), camera) < 1e-9
    assert projection_distance(turned, truth, ring, np.eye(4)[None], camera) > 10


def test_bad_depth_maps_are_refused():
    """Sizes that differ and tolerances that are not positive are named."""
    flat = np.ones((4, 5))
    with pytest.raises(InputError, match=r"\(4, 5\), \(4, 5\) and \(5, 4\)"):
        visible_discrepancy(flat, flat, flat.T, (10, 10, 2, 2), 0.01, [0.1])
    with pytest.raises(InputError, match="tolerances"):
        visible_discrepancy(flat, flat, flat, (10, 10, 2, 2), 0.01, [0.0])
