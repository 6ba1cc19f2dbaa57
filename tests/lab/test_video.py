"""What the lab writes as mp4 is read back: times, rotation, picture, same bytes."""

import av
import numpy as np
import pytest

from twinloop.errors import InputError
from twinloop.film import write_video


def _frames(count, height=48, width=64):
    """Upright pictures with a bright top-left corner and a ramp."""
    ramp = np.linspace(30, 160, width).astype(np.uint8)
    for i in range(count):
        image = np.broadcast_to(ramp[None, :, None], (height, width, 3)).copy()
        image[:12, :12] = 255
        image[-8:, -8:] = 5 * i
        yield image


@pytest.mark.parametrize("rotation", [0, 90, 180, -90])
def test_times_and_rotation_round_trip(tmp_path, rotation):
    """Uneven times with a start offset are kept, and the metadata turn gives upright frames."""
    times = [1.5, 1.53, 1.571, 1.6, 1.7, 1.7123]
    path = tmp_path / "v.mp4"
    assert write_video(path, _frames(6), times, rate=30, rotation=rotation) == 6
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
        base = float(container.streams.video[0].time_base)
        assert "creation_time" not in container.metadata
    read = [float(f.pts) * base for f in frames]
    np.testing.assert_allclose(read, times, atol=0.6 / 90000)
    for frame, image in zip(frames, _frames(6), strict=True):
        upright = np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90)
        assert upright.shape == image.shape
        assert np.abs(upright.astype(int) - image).mean() < 3


def test_same_frames_give_the_same_bytes(tmp_path):
    """No clock and no thread race gets into the file."""
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, _frames(8), np.arange(8) / 30, rate=30, rotation=-90)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_moving_pictures_of_odd_blocks_give_the_same_bytes(tmp_path):
    """Sizes that are no multiple of 16 and motion: here x264's own choices varied between runs."""
    rng = np.random.default_rng(0)
    world = rng.integers(20, 230, (90, 100, 3)).astype(np.float32)
    world = world.repeat(8, axis=0).repeat(8, axis=1)
    noise = rng.normal(0, 3, (4, 386, 360, 3))
    frames = [
        np.clip(world[5 * i : 5 * i + 386, 7 * i : 7 * i + 360] + noise[i % 4], 0, 255)
        for i in range(50)
    ]
    frames = [frame.astype(np.uint8) for frame in frames]
    made = set()
    for run in range(8):
        path = tmp_path / f"{run}.mp4"
        write_video(path, frames, np.arange(50) / 30, rate=30)
        made.add(path.read_bytes())
    assert len(made) == 1


def test_wrong_frames_are_refused(tmp_path):
    """Times that do not increase, odd sizes, changing sizes, odd turns: each is named."""
    path = tmp_path / "v.mp4"
    with pytest.raises(InputError, match="does not increase"):
        write_video(path, _frames(2), [0.1, 0.1], rate=30)
    with pytest.raises(InputError, match="even"):
        write_video(path, _frames(1, height=47), [0.0], rate=30)
    with pytest.raises(InputError, match="multiple of 90"):
        write_video(path, _frames(1), [0.0], rate=30, rotation=45)
    mixed = [next(_frames(1)), next(_frames(1, height=50))]
    with pytest.raises(InputError, match="frame 1"):
        write_video(path, mixed, [0.0, 0.1], rate=30)
