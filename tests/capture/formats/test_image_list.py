"""Pictures that a format lists: which are turned, what is refused, what arrives."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from twinloop.capture.formats.image_list import ImageList, decode, read_numbers, same_shape
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError


def picture(path: Path, width: int, height: int, orientation: int = 1) -> Path:
    """Write a picture whose left half is red and whose right half is blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = 200
    pixels[:, width // 2 :, 2] = 200
    exif = Image.Exif()
    exif[0x0112] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, exif=exif)
    return path


def test_the_declared_size_decides_about_turning(tmp_path: Path) -> None:
    """Stored pixels stay when the format means them; only a size that needs the turn turns."""
    picture(tmp_path / "a.png", 40, 30, orientation=6)
    stored = ImageList(tmp_path, ["a.png"], declared=[(40, 30)])
    assert stored.sizes.tolist() == [[40, 30]]
    assert next(stored.read()).image[15, 5].tolist() == [200, 0, 0]
    unsaid = ImageList(tmp_path, ["a.png"])
    assert unsaid.sizes.tolist() == [[40, 30]]
    turned = ImageList(tmp_path, ["a.png"], declared=[(30, 40)])
    assert turned.sizes.tolist() == [[30, 40]]
    image = next(turned.read()).image
    # Orientation 6: turned clockwise for display, so the stored left is the upright top.
    assert image[5, 15].tolist() == [200, 0, 0]
    assert image[35, 15].tolist() == [0, 0, 200]
    assert "1 of 1 pictures were turned" in turned.notes[0]


def test_sizes_are_alike_up_to_rounding() -> None:
    """A third of 1080 x 1921 px is 360 x 640 px; portrait is not landscape."""
    assert same_shape((360, 640), (1080, 1921))
    assert same_shape((1080, 1921), (360, 640))
    assert not same_shape((640, 360), (1080, 1920))
    assert not same_shape((640, 480), (1920, 1080))


def test_order_times_and_choice(tmp_path: Path) -> None:
    """The chosen order and times are kept; indices choose; grey is grey."""
    for name in ("x/2.png", "x/10.png", "1.png"):
        picture(tmp_path / name, 8, 6)
    listed = ImageList(tmp_path, ["x/2.png", "x/10.png", "1.png"], times=[0.5, 0.75, 2.0])
    assert listed.names == ("x/2.png", "x/10.png", "1.png")
    read = list(listed.read([2, 0], "grey"))
    assert [p.index for p in read] == [0, 2]
    assert [p.time for p in read] == [0.5, 2.0]
    assert read[0].image.shape == (6, 8)
    assert np.isnan(listed.focal_prior).all()
    assert ImageList(tmp_path, ["1.png"]).times.tolist() == [0.0]
    for times in ([0.0, 0.0, 1.0], [0.0, np.nan, 1.0]):
        with pytest.raises(InputError, match="increase from picture to picture"):
            ImageList(tmp_path, ["x/2.png", "x/10.png", "1.png"], times=times)
    with pytest.raises(InputError, match="lists no pictures"):
        ImageList(tmp_path, [])


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_pictures_that_cannot_be_decoded_are_named(tmp_path: Path) -> None:
    """0 bytes, text, a cut JPEG, a header of 60000 x 60000 px, a missing file, a way out."""
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("no picture")
    for name in ("empty.jpg", "text.jpg"):
        with pytest.raises(InputError, match=rf"{name}.*cannot be decoded"):
            ImageList(tmp_path, [name])
    whole = picture(tmp_path / "whole.jpg", 640, 480).read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.jpg.*cannot be decoded"):
        list(ImageList(tmp_path, ["cut.jpg"]).read())
    exif = b"Exif\0\0II*\0\xff\xff\xff\xff\xff\xff"
    Image.new("RGB", (8, 6)).save(tmp_path / "tags.jpg", exif=exif)
    assert ImageList(tmp_path, ["tags.jpg"], declared=[(8, 6)]).sizes.tolist() == [[8, 6]]
    for side in (12_000, 60_000):
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        chunk = b"IHDR" + header
        lie = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
        (tmp_path / "huge.png").write_bytes(lie + struct.pack(">I", zlib.crc32(chunk)))
        with pytest.raises(InputError, match=r"huge\.png"):
            ImageList(tmp_path, ["huge.png"])
    with pytest.raises(InputError, match="no such picture"):
        ImageList(tmp_path, ["gone.png"])
    with pytest.raises(InputError, match=r"list\.txt: names the file .*inside the capture's"):
        ImageList(tmp_path, ["../whole.jpg"], where=tmp_path / "list.txt")


def test_a_picture_that_changes_is_noticed(tmp_path: Path) -> None:
    """A file that is replaced by one of another size while it is read is an error."""
    picture(tmp_path / "a.png", 40, 30)
    listed = ImageList(tmp_path, ["a.png"])
    picture(tmp_path / "a.png", 30, 40)
    with pytest.raises(InputError, match="leave the files alone"):
        list(listed.read())


def test_numbers_alpha_and_colour_profiles(tmp_path: Path) -> None:
    """16-bit grey is scaled, depth stays numbers, alpha is dropped, a profile is applied."""
    wide = np.array([[0, 65535], [257, 32768]], np.uint16)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert decode(tmp_path / "wide.png", "grey").tolist() == [[0, 255], [1, 128]]
    assert read_numbers(tmp_path / "wide.png").tolist() == wide.tolist()
    rgba = np.full((4, 4, 4), (10, 20, 30, 0), np.uint8)
    Image.fromarray(rgba).save(tmp_path / "alpha.png")
    assert decode(tmp_path / "alpha.png")[0, 0].tolist() == [10, 20, 30]
    with pytest.raises(InputError, match="channels"):
        read_numbers(tmp_path / "alpha.png")
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(InputError, match="depth map"):
        decode(tmp_path / "float.tif")

    grey = Image.fromarray(np.full((4, 4, 3), 128, np.uint8))
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    grey.save(tmp_path / "srgb.png", icc_profile=srgb)
    assert decode(tmp_path / "srgb.png")[0, 0].tolist() == [128, 128, 128]
    grey.save(tmp_path / "broken.png", icc_profile=b"\0" * 200)
    with pytest.warns(CaptureWarning, match="colour profile"):
        assert decode(tmp_path / "broken.png")[0, 0].tolist() == [128, 128, 128]

    # A profile whose red primary is green: what is stored red is seen green.
    swapped = srgb.replace(b"rXYZ", b"____").replace(b"gXYZ", b"rXYZ").replace(b"____", b"gXYZ")
    swapped = swapped.replace("sRGB".encode("utf-16-be"), "test".encode("utf-16-be"))
    red = Image.fromarray(np.full((4, 4, 3), (200, 0, 0), np.uint8))
    red.save(tmp_path / "swapped.png", icc_profile=swapped)
    seen = decode(tmp_path / "swapped.png")[0, 0].astype(int)
    assert np.abs(seen - [0, 200, 0]).max() <= 3
