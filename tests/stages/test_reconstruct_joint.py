"""One set instead of two: the surfels are what is shown as well."""

from pathlib import Path

import numpy as np

from stages.reconstruct import run
from tests.stages.test_reconstruct_resume import TINY, box
from twinloop.splat.encoding import flat_gaussians
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.surfels import Surfels


def test_joint_sets_are_the_surfels_as_flat_gaussians(tmp_path: Path) -> None:
    """Same places, turns and opacities in the object's frame; the third scale is thin."""
    groups = run.run(box(tmp_path), TINY.model_copy(update={"sets": "joint"}))
    shown = Gaussians.from_dataset(groups["gaussians"])
    surfels = Surfels.from_dataset(groups["surfels"])
    expected = flat_gaussians(surfels)
    np.testing.assert_array_equal(shown.means, expected.means)
    np.testing.assert_array_equal(shown.opacities, expected.opacities)
    np.testing.assert_array_equal(shown.scales[:, :2], surfels.scales)
    assert (shown.scales[:, 2] < 0.1 * shown.scales[:, :2].min(axis=1)).all()
    assert groups["heldout"]["psnr"].size > 0
