"""Schemas: every rule is found, all faults at once, each with file, variable, index and value."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.artifacts.schema import RULES, ArraySpec, ArtifactSchema, GroupSpec, validate
from twinloop.errors import ArtifactError

SCHEMA = ArtifactSchema(
    name="test.poses",
    version="1.2.0",
    groups={
        "/": GroupSpec(
            arrays={
                "time": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="s",
                    description="time",
                    invariants=("finite", "monotone"),
                ),
                "quaternion": ArraySpec(
                    dims=("frame", "wxyz"),
                    dtype="float64",
                    units="1",
                    description="orientation",
                    frame="world",
                    sizes={"wxyz": 4},
                    invariants=("unit_quaternion",),
                ),
                "note": ArraySpec(
                    dims=("frame",), dtype="int8", units="1", description="note", optional=True
                ),
            }
        ),
        "push_": GroupSpec(
            pattern=True,
            arrays={
                "covariance": ArraySpec(
                    dims=("a", "b"),
                    dtype="float64",
                    units="1",
                    description="covariance",
                    invariants=("spd",),
                )
            },
        ),
    },
)


def dataset(frames=4):
    """Return a valid root group."""
    quaternion = np.tile([1.0, 0, 0, 0], (frames, 1))
    return xr.Dataset(
        {
            "time": ("frame", np.arange(frames) / 30, {"units": "s"}),
            "quaternion": (("frame", "wxyz"), quaternion, {"units": "1", "frame": "world"}),
        }
    )


def faults(groups):
    """Return the message that validation raises."""
    with pytest.raises(ArtifactError) as caught:
        validate(xr.DataTree.from_dict(groups), SCHEMA, "poses.zarr")
    return str(caught.value)


def test_valid_tree_passes():
    """A tree that follows the schema, with a pattern group, raises nothing."""
    push = xr.Dataset({"covariance": (("a", "b"), np.eye(6), {"units": "1"})})
    validate(xr.DataTree.from_dict({"/": dataset(), "/push_000": push}), SCHEMA, "poses.zarr")


def test_all_faults_are_listed_at_once_with_index_and_value():
    """One message names the file and every fault: variable, index, value, rule."""
    broken = dataset()
    broken["time"].values[2] = 0.0
    broken["quaternion"].values[3] = [2, 0, 0, 0]
    broken["extra"] = ("frame", np.zeros(4))
    message = faults(
        {
            "/": broken,
            "/push_007": xr.Dataset({"covariance": (("a", "b"), -np.eye(3), {"units": "1"})}),
        }
    )
    assert "poses.zarr" in message
    assert "time[2]: value 0." in message
    assert "strictly increasing" in message
    assert "quaternion[3]" in message
    assert "extra: not declared" in message
    assert "push_007: covariance" in message
    assert "4 faults" in message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d.drop_vars("time"), "time: missing"),
        (lambda d: d.assign(time=d.time.astype("float32")), "dtype float32, expected float64"),
        (lambda d: d.rename(frame="view"), "dims ('view',), expected ('frame',)"),
        (lambda d: d.isel(wxyz=slice(3)), "size of 'wxyz' is 3, expected 4"),
        (lambda d: d.assign(time=d.time.assign_attrs(units="ms")), "units 'ms', expected 's'"),
        (lambda d: d.assign(time=d.time.drop_attrs()), "units None, expected 's'"),
        (
            lambda d: d.assign(quaternion=d.quaternion.assign_attrs(frame="camera")),
            "frame 'camera', expected 'world'",
        ),
    ],
)
def test_structure_faults(change, expected):
    """Missing arrays, wrong dtype, dims, size and units are each named."""
    assert expected in faults({"/": change(dataset())})


def test_undeclared_group_is_a_fault():
    """A group that the kind does not know is refused."""
    assert "'other': not declared" in faults({"/": dataset(), "/other": xr.Dataset({"x": 1.0})})


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_rules_agree_with_their_definition(values):
    """Each scalar rule marks exactly the values that break it (NaN breaks every one)."""
    x = np.array(values)
    assert (RULES["finite"](x)[0] == ~np.isfinite(x)).all()
    assert (RULES["positive"](x)[0] == np.array([not v > 0 for v in values])).all()
    assert (RULES["non_negative"](x)[0] == np.array([not v >= 0 for v in values])).all()
    assert (RULES["probability"](x)[0] == np.array([not 0 <= v <= 1 for v in values])).all()


def test_spd_rule_refuses_asymmetric_indefinite_and_nan():
    """Symmetry, definiteness and finiteness are each required of a covariance."""
    good = np.diag([1e-8, 1.0, 4.0])
    asymmetric = good + np.triu(np.full((3, 3), 0.1), 1)
    stack = np.stack([good, asymmetric, np.diag([1.0, -1e-9, 1]), good * np.nan])
    assert list(RULES["spd"](stack)[0]) == [False, True, True, True]
