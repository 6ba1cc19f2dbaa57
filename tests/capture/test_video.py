"""Video files as phones and broken muxers make them."""

from __future__ import annotations

import gc
import os
import struct
import warnings
from pathlib import Path

import av
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capture.clips import number, write_counted, write_planes
from tests.capture.scene import write_video
from tests.realdata import folder
from twinloop.capture.projection import Camera
from twinloop.capture.video import (
    Video,
    frame_times,
    probe_video,
    read_video,
    rotate_camera,
)
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError


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
    video = Video(folder("hand") / "human_hand_video.mp4")
    assert len(video.times) > 100
    assert (np.diff(video.times) > 0).all()
    assert len(video.times) == len(video.names)
    through = {f.index: f.image for f in video.read(range(16))}
    for frame in video.read([0, 7, 15]):
        assert frame.image.shape == (video.info.height, video.info.width, 3)
        np.testing.assert_array_equal(frame.image, through[frame.index])
    last = len(video.times) - 1
    assert [f.index for f in video.read([last])] == [last]


KINDS = {
    "b-frames.mp4": {},
    "no b-frames.mp4": {"options": {"bf": "0"}},
    "open gop.mp4": {"options": {"x264-params": "open-gop=1"}},
    "hevc.mp4": {
        "codec": "libx265",
        "options": {"x265-params": "keyint=20:open-gop=1:bframes=3:log-level=none"},
    },
    "trimmed.mp4": {"cut": 21},
    "trimmed at once.mp4": {"cut": 21, "gop": 60},
    "uneven.mp4": {"times": np.cumsum(np.tile([0.01, 0.07, 0.03], 20)) + 1.5},
    "fragments.mp4": {"mux": {"movflags": "frag_keyframe+empty_moov"}},
    "stream.ts": {},
    "matroska.mkv": {},
    "vp9.webm": {
        "codec": "libvpx-vp9",
        "options": {"auto-alt-ref": "1", "lag-in-frames": "10", "cpu-used": "8"},
    },
    "mpeg4.avi": {"codec": "mpeg4", "options": {"qmin": "1", "qmax": "2"}},
}


@pytest.mark.parametrize("name", KINDS)
def test_seeking_gives_the_frames_of_the_whole(tmp_path: Path, name: str) -> None:
    """Whatever the container, single frames equal those of a full pass, and count up."""
    write_counted(tmp_path / name, **KINDS[name])
    video = Video(tmp_path / name)
    whole = list(video.read())
    cut = KINDS[name].get("cut", 0)
    assert [number(f.image) for f in whole] == list(range(cut, 60))
    assert [f.time for f in whole] == video.times.tolist()
    last = len(whole) - 1
    for wanted in ([0], [last], [17], [20], [19, 21], [3, 30, 31], [last - 1, last]):
        read = list(video.read(wanted))
        assert [f.index for f in read] == wanted
        for frame in read:
            np.testing.assert_array_equal(frame.image, whole[frame.index].image)


def test_a_trimmed_clip_has_the_frames_that_are_shown(tmp_path: Path) -> None:
    """60 frames of which an edit list hides 21: 39, the first at time 0, and a note."""
    write_counted(tmp_path / "v.mp4", cut=21, gop=60)
    with av.open(str(tmp_path / "v.mp4")) as container:
        assert container.streams.video[0].frames == 60
    video = Video(tmp_path / "v.mp4")
    np.testing.assert_allclose(video.times, np.arange(39) / 30, atol=1e-9)
    assert "21 packets outside the edit list" in video.notes[0]


def test_uneven_steps_make_no_frames(tmp_path: Path) -> None:
    """A clip of variable rate keeps its 60 frames and their stamps; none is repeated."""
    times = np.cumsum(np.tile([1 / 600, 0.07, 0.25], 20)) + 1.5
    write_counted(tmp_path / "v.mp4", times=times)
    video = Video(tmp_path / "v.mp4")
    np.testing.assert_allclose(video.times, times, atol=1 / 1200)
    assert any("Starts at 1.5" in note for note in video.notes)


def test_frames_that_are_not_wanted_are_not_decoded(tmp_path: Path) -> None:
    """Behind damage in the middle, a frame of the end reads as if nothing had happened."""
    path = tmp_path / "v.mp4"
    write_counted(path, gop=10, options={"bf": "0"})
    before = next(Video(path).read([59])).image
    with av.open(str(path)) as container:
        spoilt = [p for p in container.demux(video=0) if p.size][31]
        start, size = spoilt.pos, spoilt.size
    data = bytearray(path.read_bytes())
    data[start + 4 : start + size] = bytes([0x9C]) * (size - 4)
    path.write_bytes(data)
    video = Video(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(next(video.read([59])).image, before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((InputError, CaptureWarning), match=r"v\.mp4"):
            list(video.read())


def test_portrait_video_is_upright_in_size_and_pixels(tmp_path: Path) -> None:
    """A phone held upright stores 64 x 96 as 96 x 64 with a tag: sizes follow the pixels."""
    images = pictures(2, 64, 96)
    write_video(tmp_path / "v.mp4", images, rotation=270)
    video = Video(tmp_path / "v.mp4")
    assert video.sizes.tolist() == [[64, 96]] * 2
    frame = next(video.read())
    assert frame.image.shape == (96, 64, 3)
    assert frame.image[:20, :12, 0].mean() > 200 > frame.image[-20:, :, 0].mean()
    assert any("270 deg" in note for note in video.notes)


def test_mirrored_video_is_refused(tmp_path: Path) -> None:
    """A display matrix with a flip would turn left-handed worlds into twins."""
    path = tmp_path / "v.mp4"
    write_counted(path, 3)
    data = bytearray(path.read_bytes())
    at = data.rindex(struct.pack(">9i", 65536, 0, 0, 0, 65536, 0, 0, 0, 1 << 30))
    data[at : at + 4] = struct.pack(">i", -65536)
    path.write_bytes(data)
    with pytest.raises(InputError, match="mirrors the picture"):
        Video(path)


COLOURS = np.array(
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0], [0.5, 0.5, 0.5], [0.8, 0.4, 0.2]]
)
WEIGHTS = {1: (0.2126, 0.0722), 6: (0.299, 0.114), 9: (0.2627, 0.0593)}


def stored(colours: np.ndarray, matrix: int, full: bool, bits: int) -> list[np.ndarray]:
    """Planes Y, U, V of 32 px wide bars, by the equations of BT.709, BT.601 and BT.2020."""
    red, blue = WEIGHTS[matrix]
    y = colours @ [red, 1 - red - blue, blue]
    u, v = (colours[:, 2] - y) / (2 * (1 - blue)), (colours[:, 0] - y) / (2 * (1 - red))
    unit = 2 ** (bits - 8)
    top = 2**bits - 1
    if full:
        codes = [y * top, u * top + 128 * unit, v * top + 128 * unit]
    else:
        codes = [(219 * y + 16) * unit, (224 * u + 128) * unit, (224 * v + 128) * unit]
    kind = np.uint8 if bits == 8 else np.uint16
    wide = [np.repeat(np.clip(np.round(c), 0, top).astype(kind), 32)[None] for c in codes]
    return [w.repeat(64, axis=0) for w in wide]


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("matrix", WEIGHTS)
def test_colours_of_each_matrix_and_range(
    tmp_path: Path, matrix: int, full: bool, bits: int
) -> None:
    """Known colours come back within two levels, of 10 bits within three (FFmpeg rounds down)."""
    y, u, v = stored(COLOURS, matrix, full, bits)
    pixels = "yuv420p" if bits == 8 else "yuv420p10le"
    write_planes(
        tmp_path / "v.mp4",
        [y, u[::2, ::2], v[::2, ::2]],
        pixels=pixels,
        matrix=matrix,
        full=full,
    )
    image = next(Video(tmp_path / "v.mp4").read()).image
    allowed = 2 if bits == 8 else 3
    assert np.abs(image[32, 16::32].astype(float) - 255 * COLOURS).max() <= allowed
    grey = next(Video(tmp_path / "v.mp4").read(pixels="grey")).image
    # Grey is that of the sRGB picture, as OpenCV and Pillow make it.
    assert np.abs(grey[32, 16::32] - 255 * COLOURS @ [0.299, 0.587, 0.114]).max() <= allowed


@pytest.mark.parametrize(("transfer", "signal", "white"), [(18, 0.75, 229.0), (16, 0.58, 228.7)])
def test_hdr_white_becomes_nearly_white(
    tmp_path: Path, transfer: int, signal: float, white: float
) -> None:
    """HDR reference white (HLG 75 %, PQ 58 %: 203 cd/m2) is 90 % of sRGB's signal; grey agrees."""
    colours = np.array([[0, 0, 0], [signal] * 3, [1, 1, 1], [0.5, 0.4, 0.3]])
    y, u, v = stored(colours, 9, False, 10)
    write_planes(
        tmp_path / "v.mkv",
        [y, u[::2, ::2], v[::2, ::2]],
        pixels="yuv420p10le",
        matrix=9,
        full=False,
        transfer=transfer,
        primaries=9,
        codec="libx265",
    )
    video = Video(tmp_path / "v.mkv")
    image = next(video.read()).image[32, 16::32]
    np.testing.assert_allclose(image[:3], [[0] * 3, [white] * 3, [255] * 3], atol=1.5)
    assert image[3, 0] > image[3, 1] > image[3, 2]
    grey = next(video.read(pixels="grey")).image[32, 16::32]
    np.testing.assert_allclose(grey[:3], [0, white, 255], atol=1.5)
    assert abs(float(grey[3]) - image[3] @ [0.299, 0.587, 0.114]) < 10
    assert any("to sRGB" in note for note in video.notes)


def test_frames_are_let_go(tmp_path: Path) -> None:
    """Without the garbage collector's help, memory stays flat: 45 frames of 1.4 MB."""
    write_counted(tmp_path / "v.mp4", size=(1280, 720), options={"preset": "ultrafast"})
    video = Video(tmp_path / "v.mp4")
    process = psutil.Process()
    gc.collect()
    gc.disable()
    try:
        frames = video.read(pixels="grey")
        for _ in range(15):
            next(frames)
        before = process.memory_info().rss
        assert sum(1 for _ in frames) == 45
        assert process.memory_info().rss - before < 25e6
    finally:
        gc.enable()


def test_alpha_is_dropped_not_blended(tmp_path: Path) -> None:
    """A picture with a transparent half keeps its colours."""
    image = np.full((16, 32, 4), (200, 100, 50, 255), np.uint8)
    image[:, 16:, 3] = 0
    with av.open(str(tmp_path / "v.mov"), "w") as container:
        stream = container.add_stream("png", rate=30)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "rgba"
        packets = stream.encode(av.VideoFrame.from_ndarray(image, format="rgba"))
        container.mux([*packets, *stream.encode()])
    read = next(Video(tmp_path / "v.mov").read()).image
    assert (read == [200, 100, 50]).all()


def test_interlaced_video_is_named(tmp_path: Path) -> None:
    """Fields stay in one frame, and the notes say so."""
    write_counted(tmp_path / "v.mp4", 3, options={"x264-params": "tff=1"})
    assert any("Interlaced" in note for note in Video(tmp_path / "v.mp4").notes)


def test_the_phone_says_the_focal_length(tmp_path: Path) -> None:
    """26 mm on 36 mm film: 26 / 36 of the longer side."""
    key = "com.apple.quicktime.camera.focal_length.35mm_equivalent"
    write_counted(
        tmp_path / "v.mov", 3, mux={"movflags": "use_metadata_tags"}, tags={key: "26.00mm"}
    )
    np.testing.assert_allclose(Video(tmp_path / "v.mov").focal_prior, 26 / 36 * 64)
    write_counted(tmp_path / "w.mov", 3)
    assert np.isnan(Video(tmp_path / "w.mov").focal_prior).all()


def test_unknown_frames_are_refused(tmp_path: Path) -> None:
    """A number outside the video says how many there are; no number gives no frame."""
    write_counted(tmp_path / "v.mp4", 5)
    with pytest.raises(InputError, match="frames 0 to 4, not 5"):
        next(Video(tmp_path / "v.mp4").read([2, 5]))
    assert list(Video(tmp_path / "v.mp4").read([])) == []
    with pytest.raises(InputError, match="5 frames, 4 times"):
        next(read_video(tmp_path / "v.mp4", times=np.arange(4.0)))


@pytest.mark.parametrize(
    ("name", "mux"),
    [
        ("v.mp4", {"movflags": "faststart"}),
        ("v.mp4", {"movflags": "frag_keyframe+empty_moov"}),
        ("v.mkv", {}),
    ],
)
def test_cut_files_are_errors_where_the_header_is_whole(
    tmp_path: Path, name: str, mux: dict[str, str]
) -> None:
    """A copy that broke off at 60 % opens, but is no shorter video."""
    path = tmp_path / name
    write_counted(path, 70, mux=mux, options={"crf": "0"})
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])
    with pytest.raises(InputError, match=r"truncated"):
        frame_times(path)


def test_a_box_that_claims_four_gigabytes(tmp_path: Path) -> None:
    """Pictures that are said to fill 4 GB are an error, and take no memory or time."""
    path = tmp_path / "v.mp4"
    write_counted(path, 5)
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat")
    data[at - 4 : at] = b"\xff\xff\xff\xf0"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"v\.mp4"):
        Video(path)


def test_headers_that_claim_giant_pictures(tmp_path: Path) -> None:
    """10000 x 10000 px is refused by its header where the codec believes it."""
    path = tmp_path / "v.mov"
    write_counted(path, 3, codec="rawvideo", pixels="rgb24")
    data = bytearray(path.read_bytes())
    at = data.index(b"raw ", data.index(b"stsd")) + 4 + 24
    assert struct.unpack(">HH", data[at : at + 4]) == (64, 48)
    data[at : at + 4] = struct.pack(">HH", 10000, 10000)
    path.write_bytes(data)
    with pytest.raises(InputError, match="10000 x 10000"):
        Video(path)


def test_playlists_lead_nowhere(tmp_path: Path) -> None:
    """A playlist under the name of a video opens no other file."""
    write_counted(tmp_path / "secret.ts", 30)
    text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsecret.ts\n#EXT-X-ENDLIST\n"
    for name in ("v.mp4", "v.m3u8"):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match="cannot be decoded"):
            Video(tmp_path / name)


def test_odd_names(tmp_path: Path) -> None:
    """A name that is no UTF-8 is refused, a colon is no protocol, loops and folders no videos."""
    write_counted(tmp_path / "v.mp4", 3)
    bad = Path(os.fsdecode(os.fsencode(tmp_path) + b"/v\xff.mp4"))
    bad.write_bytes((tmp_path / "v.mp4").read_bytes())
    with pytest.raises(InputError, match="no UTF-8"):
        Video(bad)
    colon = tmp_path / "concat:a.mp4"
    colon.write_bytes((tmp_path / "v.mp4").read_bytes())
    assert len(Video(colon).times) == 3
    loop = tmp_path / "loop.mp4"
    loop.symlink_to(loop)
    (tmp_path / "folder.mp4").mkdir()
    for path in (loop, tmp_path / "folder.mp4"):
        with pytest.raises(InputError, match="no such video"):
            Video(path)
