"""What a scan folder is taken for, and the lens that scan.yaml names."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from twinloop.capture.scan_check import check_scan
from twinloop.capture.source import look, open_scan
from twinloop.errors import InputError


def photos(folder: Path, *sizes: tuple[int, int]) -> None:
    """Write photos of these columns and rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for i, (width, height) in enumerate(sizes):
        pixels = rng.integers(0, 255, (height, width, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"p{i}.png")


@pytest.mark.parametrize("place", [".", "photos", "images"])
def test_photos_by_name_of_the_format(tmp_path: Path, place: str) -> None:
    """`format: photos` finds them where `auto` does, and passes a video by."""
    photos(tmp_path / place, (40, 30), (40, 30))
    (tmp_path / "clip.mp4").write_bytes(b"not the scan")
    (tmp_path / "scan.yaml").write_text("format: photos\n")
    assert look(tmp_path) == "photos"
    with open_scan(tmp_path) as scan:
        assert scan.pictures.names == ("p0.png", "p1.png")


@pytest.mark.parametrize("said", ["", "source: photos.zip"])
def test_an_archive_of_photos(tmp_path: Path, said: str) -> None:
    """Packed photos are read whether the archive is named or not."""
    photos(tmp_path / "made" / "images", (40, 30), (40, 30))
    scan = tmp_path / "scan"
    scan.mkdir()
    shutil.make_archive(str(scan / "photos"), "zip", tmp_path / "made")
    (scan / "scan.yaml").write_text(f"{said}\n" if said else "{}\n")
    with open_scan(scan) as found:
        assert found.format == "photos"
        assert len(list(found.pictures.read())) == 2


def test_format_video_takes_no_photos(tmp_path: Path) -> None:
    """What scan.yaml says is not there is an error, not another format."""
    photos(tmp_path, (40, 30))
    (tmp_path / "scan.yaml").write_text("format: video\n")
    with pytest.raises(InputError, match="neither a video"):
        look(tmp_path)


def test_the_lens_is_of_the_commonest_size(tmp_path: Path) -> None:
    """A first photo of another size does not turn the lens away from all others."""
    photos(tmp_path, (40, 30), (30, 40), (60, 80), (60, 80))
    lens = {"width": 120, "height": 160, "intrinsics": [150.0, 150.0, 59.5, 79.5]}
    (tmp_path / "lens.yaml").write_text(yaml.safe_dump(lens))
    (tmp_path / "scan.yaml").write_text("camera: lens.yaml\n")
    with open_scan(tmp_path) as scan:
        assert scan.lens is not None
        assert (scan.lens.width, scan.lens.height) == (60, 80)
        assert scan.lens.intrinsics == pytest.approx([75.0, 75.0, 29.5, 39.5])


LENGTH = "scale: {distances: [{metres: 0.1, first: [[0, 5, 5], [1, 5, 5]], second: %s}]}"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (LENGTH % "[[0, 9, 9], [7, 9, 9]]", r"0\.1 m is clicked in picture 7; there are 2"),
        (LENGTH % "[[0, 9, 9], [1, 9, 35]]", r"\(9, 35\) px in picture 1, outside .* Swap u and v"),
        ("scale: {robot_poses: flange.csv}", r"flange\.csv does not exist"),
        ("scale: {depth: true}", "the photos capture has no depth pictures"),
        (LENGTH % "[[0, 9, 9], [1, 8, 9]]" + "\nsegmenter: m.onnx", r"'m\.onnx' does not exist"),
        (LENGTH % "[[0, 9, 9], [1, 8, 9]]" + "\nprompts: {inside: [[5, 1, 1]]}", "name picture 5"),
        (LENGTH % "[[0, 9, 9], [1, 8, 9]]" + "\nmasks: masks", "masks"),
        ("format: auto", "nothing says how large anything is"),
    ],
)
def test_what_cannot_be_fulfilled_is_told_at_once(tmp_path: Path, said: str, told: str) -> None:
    """Before pictures are rated and matched, which takes minutes."""
    photos(tmp_path, (40, 30), (40, 30))
    (tmp_path / "scan.yaml").write_text(said + "\n")
    with open_scan(tmp_path) as scan, pytest.raises(InputError, match=told):
        check_scan(scan)
