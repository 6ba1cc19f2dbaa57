"""Captures that cannot be reconstructed: each is refused with a reason, none gives silent garbage.

What `ingest` could have written wrongly, from a dozen small pictures of a box whose right answer is
known. Nothing here trains for long: a refusal comes first, and where there is none, the few steps
suffice to see that the result would be nonsense.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from stages.harness import Inputs
from stages.reconstruct import run
from stages.reconstruct.params import Params
from tests.splat.synthetic import SIZE, rounded_box, scan
from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.schema import validate
from twinloop.capture.warning import CaptureWarning
from twinloop.card import ObjectCard
from twinloop.errors import ArtifactError, InputError, TwinloopError
from twinloop.geometry import quaternion

SMALL = Params(
    resolution=24,
    faces=400,
    gaussians=200,
    most_gaussians=300,
    iterations=6,
    refine=False,
    most_parts=4,
    surface="hull",
    scene_iterations=0,
    texture=0,
)
POSITION, QUATERNION = "position_world_camera", "quaternion_world_camera"
Change = Callable[[xr.Dataset], xr.Dataset]


@pytest.fixture(scope="module")
def good() -> xr.Dataset:
    """Twelve pictures of a box, one of them held out (number 4)."""
    return scan(rounded_box(), views=12, width=96, height=72, supersample=1).frames


def reconstruct(frames: xr.Dataset) -> dict[str, xr.Dataset]:
    """Run the stage's function on frames."""
    tree = xr.DataTree.from_dict({"/": frames})
    card = ObjectCard(name="box", license="Apache-2.0")
    return run.run(Inputs("box", Path("unused"), card, {"ingest": tree}, "cpu", 0), SMALL)


def size_of(result: dict[str, xr.Dataset]) -> np.ndarray:
    """Extent of the mesh (3,) m."""
    return np.asarray(np.ptp(result["mesh"]["vertices"].values, axis=0))


def put(name: str, where: object, value: float) -> Change:
    """Overwrite a part of an array."""

    def change(frames: xr.Dataset) -> xr.Dataset:
        frames[name].values[where] = value
        return frames

    return change


def scaled(factor: float) -> Change:
    """Camera positions in another unit, as from an export in millimetres."""

    def change(frames: xr.Dataset) -> xr.Dataset:
        frames[POSITION].values[:] *= factor
        return frames

    return change


def repeated(count: int) -> Change:
    """The same picture again and again."""

    def change(frames: xr.Dataset) -> xr.Dataset:
        same = frames.isel(frame=[0] * count).copy(deep=True)
        same["held_out"].values[:] = False
        return same

    return change


def turned_away(frames: xr.Dataset) -> xr.Dataset:
    """Each camera looks elsewhere: no two pictures show the same place."""
    R = quaternion.to_matrix(frames[QUATERNION].values)
    for i, angle in enumerate(np.linspace(0, 2 * np.pi, len(R), endpoint=False)):
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
        frames[QUATERNION].values[i] = quaternion.from_matrix(R[i] @ turn)
    return frames


def inverted(frames: xr.Dataset) -> xr.Dataset:
    """Poses given as world to camera: the usual mistake of an export."""
    R, p = quaternion.to_matrix(frames[QUATERNION].values), frames[POSITION].values.copy()
    for i in range(len(R)):
        frames[QUATERNION].values[i] = quaternion.from_matrix(R[i].T)
        frames[POSITION].values[i] = -R[i].T @ p[i]
    return frames


def opengl_axes(frames: xr.Dataset) -> xr.Dataset:
    """Camera axes with y up and z backwards."""
    R = quaternion.to_matrix(frames[QUATERNION].values)
    for i in range(len(R)):
        frames[QUATERNION].values[i] = quaternion.from_matrix(R[i] @ np.diag([1.0, -1.0, -1.0]))
    return frames


def sunk(frames: xr.Dataset) -> xr.Dataset:
    """The object lies wholly below the height that the table is said to have."""
    frames[POSITION].values[:, 2] -= 0.2
    return frames


def cropped(y: int = 0, x: int = 0) -> Change:
    """Pictures without their first rows and columns: the object is cut off in all of them."""

    def change(frames: xr.Dataset) -> xr.Dataset:
        part = frames.isel(y=slice(y, None), x=slice(x, None)).copy(deep=True)
        part["intrinsics"].values[:, 2:] -= [x, y]
        return part

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(cropped(y=25), "cuts it off in 11", id="cut off above"),
        pytest.param(cropped(x=48), "0 of 11 .* the whole object", id="cut off at the side"),
        pytest.param(repeated(1), "1 frames to reconstruct from", id="one view"),
        pytest.param(put("held_out", slice(None), True), "0 frames", id="all held out"),
        pytest.param(put("mask", slice(None), 0), "0 of 11 .* show the object", id="black masks"),
        pytest.param(turned_away, "no point within .* camera poses", id="no overlap"),
        pytest.param(opengl_axes, "no point within .* camera poses", id="OpenGL axes"),
        pytest.param(repeated(12), r"one (side|direction|place)|°", id="one view twelve times"),
        pytest.param(
            put("mask", slice(None), 255), r"masks?.*(whole|entire|every)", id="all white"
        ),
        pytest.param(scaled(1e3), r"(?i)scale|unit|millimet", id="a thousand times too large"),
        pytest.param(scaled(1e-3), r"(?i)scale|unit|millimet", id="a thousandth of the size"),
        pytest.param(inverted, r"masks?|silhouette", id="poses inverted"),
        pytest.param(sunk, r"table", id="below the table"),
        pytest.param(put(POSITION, 3, np.nan), r"frame 3", id="NaN position"),
        pytest.param(put(QUATERNION, 3, np.nan), r"frame 3", id="NaN quaternion"),
        pytest.param(put(QUATERNION, 3, 0.0), r"frame 3", id="zero quaternion"),
        pytest.param(put(POSITION, 4, np.nan), r"frame 4", id="NaN position of a held-out frame"),
        pytest.param(put(POSITION, 3, np.inf), r"frame 3", id="infinite position"),
        pytest.param(put("intrinsics", 3, np.nan), r"frame 3", id="NaN intrinsics"),
        pytest.param(put("intrinsics", (3, 0), 0.0), r"frame 3", id="no focal length"),
        pytest.param(put("intrinsics", (3, 0), -99.0), r"frame 3", id="negative focal length"),
    ],
)
def test_what_cannot_be_reconstructed_is_refused_with_the_reason(
    good: xr.Dataset, change: Change, message: str
) -> None:
    """An InputError names the cause; no NumPy error, no empty list, no mesh of something else."""
    with pytest.raises(InputError, match=message):
        reconstruct(change(good.copy(deep=True)))


@pytest.mark.parametrize("change", [put(POSITION, 3, np.nan), put(QUATERNION, 3, 0.0)])
def test_the_artifact_itself_may_hold_no_such_pose(good: xr.Dataset, change: Change) -> None:
    """The harness checks every value before the stage sees it, and says where the first bad one is.

    The refusals above are for callers of the library, who come without an artifact.
    """
    tree = xr.DataTree.from_dict({"/": change(good.copy(deep=True))})
    with pytest.raises(ArtifactError, match=r"_world_camera.*3"):
        validate(tree, FRAMES, "ingest.zarr", values=True)


def test_a_frame_that_does_not_show_the_object_is_left_out(good: xr.Dataset) -> None:
    """One black mask among eleven is a lost frame, not a reason to refuse the scan."""
    frames = put("mask", 2, 0)(good.copy(deep=True))
    np.testing.assert_allclose(size_of(reconstruct(frames)), SIZE, atol=0.01)


def test_frames_that_cut_the_object_off_are_left_out(good: xr.Dataset) -> None:
    """Three close-ups that do not show its top, which is not taken for empty therefore."""
    frames = good.copy(deep=True)
    for i in (1, 6, 9):
        for name in ("image", "mask"):
            values = frames[name].values
            values[i] = np.concatenate([values[i, 26:], np.zeros_like(values[i, :26])])
        frames["intrinsics"].values[i, 3] -= 26
    with pytest.warns(CaptureWarning, match=r"\[1, 6, 9\] have the object cut off .*8 of 11"):
        result = reconstruct(frames)
    np.testing.assert_allclose(size_of(result), SIZE, atol=0.01)


def test_black_masks_of_held_out_frames_cost_only_their_scores(good: xr.Dataset) -> None:
    """They are not scored; the mesh is as it was."""
    frames = put("mask", 4, 0)(good.copy(deep=True))
    result = reconstruct(frames)
    assert result["heldout"].sizes["view"] == 0
    np.testing.assert_allclose(size_of(result), SIZE, atol=0.01)


def test_refusals_are_quick_and_of_our_own_kind(good: xr.Dataset) -> None:
    """Half of the masks black: whatever the verdict, it is an error of ours or the right box."""
    frames = put("mask", slice(0, 6), 0)(good.copy(deep=True))
    try:
        result = reconstruct(frames)
    except TwinloopError:
        return
    np.testing.assert_allclose(size_of(result), SIZE, atol=0.02)
