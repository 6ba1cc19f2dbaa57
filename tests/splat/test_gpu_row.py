"""The benchmark that compares gsplat on a card with the CPU compares what it says."""

import pytest
import torch

from benchmarks import splat_gpu
from tests import realdata


def test_the_cpu_agrees_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """No difference in colours, depth, alpha and normals, nor in gradients, none of them 0."""
    realdata.folder("bunny")
    monkeypatch.setattr(splat_gpu, "COUNT", 2000)
    monkeypatch.setattr(splat_gpu, "SIZE", 64)
    for draw, layers in ((splat_gpu._draw_3d, 5), (splat_gpu._draw_2d, 8)):
        image, gradients, _ = splat_gpu._measure(draw, "cpu", repeats=1)
        assert image.shape == (1, 64, 64, layers)
        assert (image.abs().amax(dim=(0, 1, 2)) > 0.1).all()
        assert len(gradients) == 5
        assert all(float(g.norm()) > 0 for g in gradients)
    figures = splat_gpu.compare(("cpu", "cpu"))
    assert [f.value for f in figures if f.target is not None] == [0.0] * 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_without_a_card_nothing_is_claimed() -> None:
    """Every row says that it was not run."""
    assert {f.value for f in splat_gpu.compare()} == {"untested on GPU"}
