"""The overlay video: decodes, shows object and warning, is small and always the same."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from twinloop.capture.mask_video import shade, write_overlay
from twinloop.errors import InputError


def frames(count: int, side: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Noisy textured pictures (count, side, 3/4 side, 3) and masks of a moving disc."""
    rng = np.random.default_rng(0)
    width = side * 3 // 4
    base = rng.integers(0, 255, (side // 8, width // 8, 3)).repeat(8, 0).repeat(8, 1)
    base = np.pad(base, ((0, side - len(base)), (0, width - base.shape[1]), (0, 0)), mode="edge")
    y, x = np.indices((side, width))
    images = [np.roll(base, 3 * i, axis=1) + rng.normal(0, 3, base.shape) for i in range(count)]
    masks = [(x - width / 2 - i) ** 2 + (y - side / 2) ** 2 < (side / 5) ** 2 for i in range(count)]
    return np.stack(images).clip(0, 255).astype(np.uint8), np.stack(masks).astype(np.uint8) * 255


def test_fifty_frames_are_below_3_mb_and_repeat(tmp_path: Path) -> None:
    """H.264 in yuv420p, 50 pictures back, below 3 MB, the same bytes twice, no partial file."""
    images, masks = frames(50)
    write_overlay(tmp_path / "a.mp4", images, masks, np.ones(50))
    assert (tmp_path / "a.mp4").stat().st_size < 3e6
    for name in ("b.mp4", "c.mp4"):
        write_overlay(tmp_path / name, images[:12], masks[:12], np.ones(12))
    assert (tmp_path / "b.mp4").read_bytes() == (tmp_path / "c.mp4").read_bytes()
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert sum(1 for _ in container.decode(video=0)) == 50
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mp4", "b.mp4", "c.mp4"]


def test_object_is_shaded_and_low_quality_is_framed(tmp_path: Path) -> None:
    """Orange over the object, darker beside it, a red border only below the threshold."""
    grey = np.full((201, 301, 3), 100, np.uint8)
    mask = np.zeros((201, 301), np.uint8)
    mask[60:120, 100:200] = 255
    good, bad = shade(grey, mask, 0.9), shade(grey, mask, 0.2)
    assert good.shape == (200, 300, 3)
    assert good[90, 150, 0] > 150
    assert good[90, 150, 2] < 60
    assert good[30, 30].max() < 70
    assert (bad[0, :, 0] > 200).all()
    assert not (good[0, :, 0] > 200).any()
    assert (shade(grey, mask, float("nan"))[0, :, 0] > 200).all()
    write_overlay(tmp_path / "o.mp4", [grey], [mask], np.array([0.2]))
    with av.open(str(tmp_path / "o.mp4")) as container:
        shown = next(container.decode(video=0)).to_ndarray(format="rgb24")
    assert shown[1, 150, 0] > 150
    assert shown[1, 150, 1] < 90


def test_misfits_are_errors_and_leave_no_file(tmp_path: Path) -> None:
    """No pictures, another size, another number."""
    images, masks = frames(3, 80)
    out = tmp_path / "o.mp4"
    with pytest.raises(InputError, match="at least one picture"):
        write_overlay(out, [], [], np.zeros(0))
    with pytest.raises(InputError, match=r"picture 1 is \(40, 60, 3\)"):
        write_overlay(out, [images[0], images[1][:40]], [masks[0], masks[1][:40]], np.ones(2))
    with pytest.raises(InputError, match="2 qualities do not fit"):
        write_overlay(out, images, masks, np.ones(2))
    assert not list(tmp_path.iterdir())
