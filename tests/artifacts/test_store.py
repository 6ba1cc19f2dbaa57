"""The store: round trips, equal bytes, whole or not at all, lazy, safe on hostile input."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from twinloop.artifacts import store
from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.migrate import migrate
from twinloop.artifacts.schema import ArraySpec
from twinloop.artifacts.store import MAX_FILES, open_artifact, write_artifact
from twinloop.errors import ArtifactError, MachineError


def frames(count=6, side=16, seed=0):
    """Return a valid frames group with random pictures."""
    rng = np.random.default_rng(seed)
    f = ("frame",)
    return xr.Dataset(
        {
            "image": (
                (*f, "y", "x", "channel"),
                rng.integers(0, 255, (count, side, side, 3), dtype=np.uint8),
            ),
            "mask": ((*f, "y", "x"), np.zeros((count, side, side), np.uint8)),
            "time": (f, np.arange(count) / 30),
            "position_world_camera": ((*f, "xyz"), rng.normal(size=(count, 3))),
            "quaternion_world_camera": ((*f, "wxyz"), np.tile([1.0, 0, 0, 0], (count, 1))),
            "intrinsics": ((*f, "fx_fy_cx_cy"), np.full((count, 4), 100.0)),
            "held_out": (f, np.zeros(count, bool)),
            "sharpness": (f, np.ones(count)),
            "reprojection_rms": (f, np.ones(count)),
        }
    )


def digest(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_round_trip_and_attributes(tmp_path):
    """What was written is read back; units, frames and versions stand in the attributes."""
    data = frames()
    write_artifact(tmp_path / "a.zarr", FRAMES, {"/": data}, {"object": "mug"})
    tree = open_artifact(tmp_path / "a.zarr", FRAMES, values=True)
    for name in data.data_vars:
        np.testing.assert_array_equal(tree[name].values, data[name].values)
    assert tree.attrs["schema"] == "twinloop.frames"
    assert tree.attrs["object"] == "mug"
    assert tree["time"].attrs["units"] == "s"
    assert "board" in tree["position_world_camera"].attrs["frame"]


def test_bytes_do_not_depend_on_order_process_or_hash_seed(tmp_path):
    """Same data, other insertion order and fresh processes with other hash seeds: same bytes."""
    data = frames()
    backwards = xr.Dataset({name: data[name] for name in reversed(list(data.data_vars))})
    write_artifact(tmp_path / "a" / "x.zarr", FRAMES, {"/": data}, {"b": 1, "a": [1.5, 2]})
    write_artifact(tmp_path / "b" / "x.zarr", FRAMES, {"/": backwards}, {"a": [1.5, 2], "b": 1})
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    script = (
        "import sys; from pathlib import Path; from tests.artifacts.test_store import *;"
        "write_artifact(Path(sys.argv[1]), FRAMES, {'/': frames()}, {'b': 1, 'a': [1.5, 2]})"
    )
    root = Path(__file__).parents[2]
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        target = tmp_path / seed / "x.zarr"
        subprocess.run([sys.executable, "-c", script, str(target)], check=True, cwd=root, env=env)
        assert digest(target.parent) == digest(tmp_path / "a")


def test_many_frames_stay_below_the_file_limit_and_read_lazily(tmp_path):
    """A thousand frames are few files, and one frame is read without reading the others."""
    write_artifact(tmp_path / "a.zarr", FRAMES, {"/": frames(1000, side=24)})
    files = [p for p in (tmp_path / "a.zarr").rglob("*") if p.is_file()]
    assert len(files) < MAX_FILES
    meta = json.loads((tmp_path / "a.zarr" / "image" / "zarr.json").read_text())
    assert meta["chunk_grid"]["configuration"]["chunk_shape"][0] > 1  # a shard of many frames
    started = time.process_time()
    tree = open_artifact(tmp_path / "a.zarr", FRAMES)
    assert tree["image"][500].values.shape == (24, 24, 3)
    assert time.process_time() - started < 1.0


def test_invalid_data_is_not_written_and_the_old_artifact_stays(tmp_path):
    """A fault on write leaves the former artifact byte for byte, and no rest beside it."""
    path = tmp_path / "a.zarr"
    write_artifact(path, FRAMES, {"/": frames()})
    before = digest(path)
    broken = frames(seed=1)
    broken["time"].values[0] = np.nan
    with pytest.raises(ArtifactError, match=r"time\[0\]"):
        write_artifact(path, FRAMES, {"/": broken})
    assert digest(path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.zarr"]


def test_full_disk_says_so_and_changes_nothing(tmp_path, monkeypatch):
    """ENOSPC becomes a message that says what to do; the former artifact stays."""
    path = tmp_path / "a.zarr"
    write_artifact(path, FRAMES, {"/": frames()})
    before = digest(path)

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "replace_tree", full)
    with pytest.raises(MachineError, match=r"(?s)no space left.*dvc gc"):
        write_artifact(path, FRAMES, {"/": frames(seed=1)})
    assert digest(path) == before


def test_missing_corrupt_and_foreign_stores_are_named(tmp_path):
    """Nothing there, damaged metadata, another kind: each has its own message."""
    with pytest.raises(ArtifactError, match="does not exist"):
        open_artifact(tmp_path / "none.zarr", FRAMES)
    path = tmp_path / "a.zarr"
    write_artifact(path, FRAMES, {"/": frames()})
    (path / "zarr.json").write_text("{ not json")
    with pytest.raises(ArtifactError, match="damaged"):
        open_artifact(path, FRAMES)
    xr.DataTree.from_dict({"/": xr.Dataset({"x": 1.0})}).to_zarr(
        tmp_path / "b.zarr", zarr_format=3, consolidated=False
    )
    with pytest.raises(ArtifactError, match=r"holds None, expected 'twinloop\.frames'"):
        open_artifact(tmp_path / "b.zarr", FRAMES)


def test_truncated_chunk_is_reported_as_damage(tmp_path):
    """A cut shard of a checked array does not pass as data."""
    path = tmp_path / "a.zarr"
    write_artifact(path, FRAMES, {"/": frames()})
    chunk = next(p for p in (path / "time" / "c").rglob("*") if p.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(ArtifactError, match="damaged"):
        open_artifact(path, FRAMES, values=True)


def test_header_that_claims_terabytes_is_refused(tmp_path):
    """A forged shape is refused before anything is read."""
    path = tmp_path / "a.zarr"
    write_artifact(path, FRAMES, {"/": frames()})
    meta = json.loads((path / "mask" / "zarr.json").read_text())
    meta["shape"] = [10**7, 10**4, 10**4]
    meta["dimension_names"] = ["a", "b", "c"]
    (path / "mask" / "zarr.json").write_text(json.dumps(meta))
    with pytest.raises(ArtifactError, match=r"(?s)claim.*refused"):
        open_artifact(path, FRAMES)


def test_an_older_minor_version_is_read(tmp_path):
    """A file without an array that a later minor version added (optional by rule) is read."""
    data = frames()
    older = FRAMES.model_copy(update={"version": "1.0.0"})
    write_artifact(tmp_path / "old.zarr", older, {"/": data})
    assert "gain" not in data  # optional, added later
    newer = FRAMES.model_copy(update={"version": "1.7.0"})
    assert (
        open_artifact(tmp_path / "old.zarr", newer, values=True).attrs["schema_version"] == "1.0.0"
    )


def test_ten_gigabytes_open_fast_and_small(tmp_path):
    """A store of 10 GB in shape opens and gives one frame in little time and memory."""
    import zarr

    path = tmp_path / "big.zarr"
    write_artifact(path, FRAMES, {"/": frames(4, side=16)})
    side, count = 1024, 3300  # 10.4 GB of pictures, of which a few shards are really there
    meta = json.loads((path / "image" / "zarr.json").read_text())
    codec = meta["codecs"][0]["configuration"]
    assert codec["chunk_shape"][0] == 1  # one frame is read without its neighbours
    meta["shape"] = [count, side, side, 3]
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [32, side, side, 3]
    codec["chunk_shape"] = [1, side, side, 3]
    meta["dimension_names"] = ["n", "v", "u", "c"]
    (path / "image" / "zarr.json").write_text(json.dumps(meta))
    array = zarr.open_array(path / "image", mode="r+")
    rng = np.random.default_rng(0)
    array[64:65] = rng.integers(0, 255, (1, side, side, 3), dtype=np.uint8)
    script = (
        "import resource, sys, time, xarray as xr; from pathlib import Path;"
        "from twinloop.artifacts.store import _refuse_bombs;"
        "rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "before = rss(); started = time.process_time();"
        "tree = xr.open_datatree(sys.argv[1], engine='zarr', consolidated=False, chunks=None);"
        "_refuse_bombs(tree, Path(sys.argv[1])); frame = tree['image'][64].values;"
        "print(tree['image'].nbytes, int(frame.max()), rss() - before,"
        " time.process_time() - started)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        check=True,
        cwd=root,
        capture_output=True,
        text=True,
    )
    claimed, brightest, grown, seconds = done.stdout.split()
    assert int(claimed) > 10**10
    assert int(brightest) > 200
    assert int(grown) < 200_000  # kB
    assert float(seconds) < 2


def test_versions(tmp_path):
    """Newer minor is read, newer major refused with the fix, older major migrated."""
    data = frames().assign(new_array=("frame", np.zeros(6)))
    root = FRAMES.groups["/"]
    array = ArraySpec(dims=("frame",), dtype="float64", units="1", description="new", optional=True)
    grown = root.model_copy(update={"arrays": {**root.arrays, "new_array": array}})
    newer = FRAMES.model_copy(update={"version": "1.9.0", "groups": {**FRAMES.groups, "/": grown}})
    write_artifact(tmp_path / "minor.zarr", newer, {"/": data})
    tree = open_artifact(tmp_path / "minor.zarr", newer)
    assert "new_array" in open_artifact(tmp_path / "minor.zarr", FRAMES)
    tree.attrs["schema_version"] = "2.0.0"
    with pytest.raises(ArtifactError, match="pip install --upgrade twinloop"):
        migrate(tree, FRAMES, "x")
    second = newer.model_copy(update={"version": "3.0.0"})
    tree.attrs["schema_version"] = "1.0.0"
    steps = {
        (FRAMES.name, 1): lambda t: t.assign(one=xr.DataArray(np.ones(6), dims="frame")),
        (FRAMES.name, 2): lambda t: t.assign(two=xr.DataArray(np.ones(6), dims="frame")),
    }
    lifted = migrate(tree, second, "x", steps)
    assert lifted.attrs["schema_version"] == "3.0.0"
    assert {"one", "two"} <= set(lifted.data_vars)
    with pytest.raises(ArtifactError, match="no migration from 2 to 3"):
        migrate(tree, second, "x", {k: v for k, v in steps.items() if k[1] == 1})
