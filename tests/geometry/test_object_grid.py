"""The one distance grid of an object: stored, missing, or too narrow for who asks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import trimesh
import xarray as xr

from stages.reconstruct.params import Params
from twinloop.capture.warning import CaptureWarning
from twinloop.geometry.object_grid import CELLS, MARGIN, grid_reach, object_grid
from twinloop.geometry.sdf import bake

BOX = trimesh.creation.box([0.06, 0.04, 0.05])
VERTICES, FACES = np.asarray(BOX.vertices, float), np.asarray(BOX.faces, np.int32)


def reconstruction(**groups: xr.Dataset) -> xr.DataTree:
    """The box as `reconstruct` stores it, with further groups."""
    mesh = xr.Dataset({"vertices": (("vertex", "xyz"), VERTICES), "faces": (("face", "c"), FACES)})
    return xr.DataTree.from_dict({"/mesh": mesh, **{f"/{k}": v for k, v in groups.items()}})


def test_the_stored_grid_is_the_one():
    """Values, origin and spacing come from the artifact, to the bit, and nothing is said."""
    grid = bake(VERTICES, FACES, margin=0.02, cells=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = object_grid(reconstruction(distance=grid.to_dataset()), "box", reach=0.02)
    np.testing.assert_array_equal(found.value, grid.value)
    np.testing.assert_array_equal(found.origin, grid.origin)
    assert found.spacing == grid.spacing


def test_an_older_artifact_has_one_baked_as_reconstruct_would():
    """Without the group the grid comes out that `reconstruct` makes by default, and it says so."""
    params = Params()
    assert (params.distance_cells, params.distance_margin) == (CELLS, MARGIN)
    wanted = bake(VERTICES, FACES, margin=params.distance_margin, cells=params.distance_cells)
    with pytest.warns(CaptureWarning, match="box: the reconstruction stores no distance grid"):
        found = object_grid(reconstruction(), "box", reach=0.01)
    np.testing.assert_array_equal(found.value, wanted.value)
    np.testing.assert_array_equal(found.origin, wanted.origin)


def test_a_grid_that_ends_too_early_is_not_used():
    """A margin of 5 mm does not show a fingertip of 15 mm: another is baked, and it says why."""
    narrow = bake(VERTICES, FACES, margin=0.005, cells=20)
    tree = reconstruction(distance=narrow.to_dataset())
    assert grid_reach(narrow, VERTICES) == pytest.approx(0.005, abs=1e-6)
    with pytest.warns(CaptureWarning, match=r"ends 5.0 mm from the mesh.*distance_margin"):
        found = object_grid(tree, "box", reach=0.03)
    assert grid_reach(found, VERTICES) >= 0.03
