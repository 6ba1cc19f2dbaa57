"""Packing: any number of pushes is few files, read back exactly, lazily, and checked."""

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.artifacts.kinds.tracks import TRACKS
from twinloop.artifacts.packing import pack, unpack
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.errors import ArtifactError


def session(lengths):
    """Return a tracks artifact with one clip per length."""
    rng = np.random.default_rng(len(lengths))
    root = xr.Dataset(
        {
            "position_world_camera": ("xyz", np.zeros(3)),
            "quaternion_world_camera": ("wxyz", np.array([1.0, 0, 0, 0])),
            "intrinsics": ("fx_fy_cx_cy", np.full(4, 100.0)),
            "distortion": ("k1_k2_p1_p2_k3", np.zeros(5)),
        }
    )
    groups = {"/": root}
    for i, n in enumerate(lengths):
        groups[f"/push_{i:03d}"] = xr.Dataset(
            {
                "time": ("frame", np.arange(n) / 60),
                "position_world_object": (("frame", "xyz"), rng.normal(size=(n, 3))),
                "quaternion_world_object": (("frame", "wxyz"), np.tile([1.0, 0, 0, 0], (n, 1))),
                "covariance": (
                    ("frame", "twist", "twist_"),
                    np.tile(np.eye(6) * (i + 1), (n, 1, 1)),
                ),
                "status": ("frame", np.zeros(n, np.int8)),
                "inliers": ("frame", rng.integers(0, 99, n).astype(np.int32)),
            },
            attrs={"action": f"tap {i}"},
        )
    return groups


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_pack_and_unpack_are_inverse(lengths):
    """Clips of any length, empty ones too, come back with their values and attributes."""
    tree = xr.DataTree.from_dict(session(lengths))
    back = unpack(pack(tree, TRACKS), "x")
    assert set(back.children) == set(tree.children)
    for name in tree.children:
        xr.testing.assert_identical(back[name].to_dataset(), tree[name].to_dataset())


def test_forty_pushes_are_few_files(tmp_path):
    """Forty clips stay far below the limit of files, and one clip reads alone."""
    groups = session([5 + i % 3 for i in range(40)])
    write_artifact(tmp_path / "track.zarr", TRACKS, groups)
    files = [p for p in (tmp_path / "track.zarr").rglob("*") if p.is_file()]
    assert len(files) < 40
    tree = open_artifact(tmp_path / "track.zarr", TRACKS, values=True)
    assert len(tree.children) == 40
    xr.testing.assert_equal(tree["push_017"].to_dataset().load(), groups["/push_017"])
    assert tree["push_017"].attrs["action"] == "tap 17"


def test_forged_offsets_are_refused(tmp_path):
    """Offsets that leave the arrays, or names that are no names, do not pass."""
    write_artifact(tmp_path / "track.zarr", TRACKS, session([3, 4]))
    meta = tmp_path / "track.zarr" / "push" / "zarr.json"
    content = json.loads(meta.read_text())
    content["attributes"]["packed_groups"] = ["push_000", "../push_001"]
    meta.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match="do not fit"):
        open_artifact(tmp_path / "track.zarr", TRACKS)
    packed = pack(xr.DataTree.from_dict(session([3, 4])), TRACKS)
    ends = xr.DataArray(np.array([0, 99, 7]), dims="ends_frame")
    packed["push"] = packed["push"].assign(offset_frame=ends)
    with pytest.raises(ArtifactError, match="do not fit"):
        unpack(packed, "x")
