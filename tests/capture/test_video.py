"""Video files as phones and broken muxers make them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capture.scene import write_video
from twinloop.capture.projection import Camera
from twinloop.capture.video import (
    frame_times,
    probe_video,
    read_video,
    rotate_camera,
)
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

DATA = Path(os.environ.get("TWINLOOP_DATA", Path(__file__).parents[3] / "shared" / "data"))


def pictures(n: int, width: int = 96, height: int = 64) -> list[np.ndarray]:
    """Frames with a bright corner top left and brightness that counts up."""
    frames = []
    for i in range(n):
        image = np.full((height, width, 3), 20 + 10 * i, np.uint8)
        image[: height // 4, : width // 4] = (250, 40, 40)
        frames.append(image)
    return frames


def test_uneven_times_and_start_offset_are_kept(tmp_path: Path) -> None:
    """A clip that starts at 1.5 s with uneven steps gives just these times."""
    times = 1.5 + np.array([0, 0.03, 0.1, 0.12, 0.3, 0.31])
    write_video(tmp_path / "v.mp4", pictures(6), times)
    read = list(read_video(tmp_path / "v.mp4"))
    np.testing.assert_allclose([f.time for f in read], times, atol=2e-4)
    assert [f.index for f in read] == list(range(6))


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_rotation_is_applied_to_pixels(tmp_path: Path, rotation: int) -> None:
    """Whatever way the phone was held, pixels come out upright."""
    images = pictures(2, 64, 96)
    write_video(tmp_path / "v.mp4", images, rotation=rotation)
    info = probe_video(tmp_path / "v.mp4")
    assert (info.width, info.height, info.rotation) == (64, 96, rotation)
    frame = next(read_video(tmp_path / "v.mp4"))
    assert frame.image.shape == (96, 64, 3)
    assert np.abs(frame.image.astype(int) - images[0]).mean() < 6


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0, 90, 180, 270]), st.integers(0, 2**31))
def test_rotated_camera_sees_rotated_pixels(rotation: int, seed: int) -> None:
    """Projecting with the turned lens equals turning the projected pixel."""
    rng = np.random.default_rng(seed)
    camera = Camera(np.array([300.0, 320.0, 150.0, 110.0]), rng.uniform(-0.05, 0.05, 5), 320, 240)
    point = np.array([*rng.uniform(-0.3, 0.3, 2), 1.0])
    u, v = camera.project(point[None])[0]
    turned = Camera(
        *rotate_camera(camera.intrinsics, camera.distortion, camera.width, camera.height, rotation)
    )
    x, y, z = point
    width, height = 320, 240
    for _ in range(rotation // 90):
        x, y = y, -x
        u, v = v, width - 1 - u
        width, height = height, width
    np.testing.assert_allclose(turned.project(np.array([[x, y, z]]))[0], [u, v], atol=1e-9)
    assert (turned.width, turned.height) == (width, height)


def test_only_named_frames_are_yielded(tmp_path: Path) -> None:
    """Indices pick frames; their content and times are those of the whole clip."""
    write_video(tmp_path / "v.mp4", pictures(8))
    every = list(read_video(tmp_path / "v.mp4"))
    some = list(read_video(tmp_path / "v.mp4", indices=[5, 2]))
    assert [f.index for f in some] == [2, 5]
    for frame in some:
        np.testing.assert_array_equal(frame.image, every[frame.index].image)
        assert frame.time == every[frame.index].time
    grey = next(read_video(tmp_path / "v.mp4", pixels="grey"))
    assert grey.image.shape == (64, 96)


def test_disordered_presentation_stamps_fall_back_to_decoding_stamps(tmp_path: Path) -> None:
    """Stamps that go back are replaced, with a warning that counts them."""
    write_video(tmp_path / "v.mp4", pictures(9), shuffle=True)
    with pytest.warns(CaptureWarning, match="presentation stamps do not increase"):
        times = frame_times(tmp_path / "v.mp4")
    assert (np.diff(times) > 0).all()
    assert len(times) == 9


def test_truncated_file_is_an_error(tmp_path: Path) -> None:
    """Half a file is refused with its size, not read as a short clip."""
    write_video(tmp_path / "v.mp4", pictures(20))
    data = (tmp_path / "v.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="truncated"):
        list(read_video(tmp_path / "cut.mp4"))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "0 bytes"), (b"not a video at all" * 50, "cannot be decoded")],
)
def test_odd_files_are_errors(tmp_path: Path, content: bytes, words: str) -> None:
    """Empty and foreign files say what they are."""
    (tmp_path / "v.mp4").write_bytes(content)
    with pytest.raises(InputError, match=words):
        probe_video(tmp_path / "v.mp4")


def test_missing_file_names_itself(tmp_path: Path) -> None:
    """A missing video is named."""
    with pytest.raises(InputError, match=r"gone\.mp4: no such video"):
        frame_times(tmp_path / "gone.mp4")


def test_sound_without_picture_is_an_error(tmp_path: Path) -> None:
    """A file with an audio stream only is refused, naming its streams."""
    import wave

    with wave.open(str(tmp_path / "v.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(16000))
    (tmp_path / "v.wav").rename(tmp_path / "v.mp4")
    with pytest.raises(InputError, match="audio"):
        probe_video(tmp_path / "v.mp4")


def test_foreign_phone_video() -> None:
    """A real video from another project has increasing times and upright frames of one size."""
    path = DATA / "hand" / "human_hand_video.mp4"
    if not path.is_file():
        pytest.skip(f"no {path}: set TWINLOOP_DATA to the folder of shared test data")
    info = probe_video(path)
    times = frame_times(path)
    assert len(times) > 100
    assert (np.diff(times) > 0).all()
    frames = list(read_video(path, indices=[0, 7], times=times))
    assert all(f.image.shape == (info.height, info.width, 3) for f in frames)
