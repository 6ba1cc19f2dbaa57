"""Folders of photos as phones, editors and broken copies leave them."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from tests.realdata import folder
from twinloop.capture.photos import Photos
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

BARS = np.array([[250, 20, 20], [20, 250, 20], [20, 20, 250], [240, 240, 240]], np.uint8)


def bars(width: int = 64, height: int = 48) -> np.ndarray:
    """Red, green, blue and white quarters, from the top left, row by row."""
    rows = BARS.reshape(2, 2, 3).repeat(height // 2, axis=0).repeat(width // 2, axis=1)
    return np.ascontiguousarray(rows)


def noise(seed: int = 0, width: int = 160, height: int = 120) -> np.ndarray:
    """A picture of which truncation loses much."""
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3)).astype(np.uint8)


def one(path: Path) -> np.ndarray:
    """The only photo of a folder."""
    (picture,) = Photos(path).read()
    return picture.image


def save(path: Path, image: np.ndarray | Image.Image, **options: object) -> None:
    """Save a picture, sharp."""
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    if path.suffix in (".jpg", ".jpeg", ".webp"):
        options = {"quality": 95, **options}
    picture.save(path, **options)


def exif(orientation: int = 1, taken: str = "", fraction: str = "", film: int = 0) -> Image.Exif:
    """Tags as a camera writes them."""
    tags = Image.Exif()
    tags[0x0112] = orientation
    part = tags.get_ifd(0x8769)
    if taken:
        part[36867] = taken
    if fraction:
        part[37521] = fraction
    if film:
        part[41989] = film
    return tags


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG", ".png", ".webp", ".tif", ".bmp", ".heic"])
def test_every_kind_is_read(tmp_path: Path, suffix: str) -> None:
    """The same four colours from each format, within what its compression changes."""
    if suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    save(tmp_path / f"p{suffix}", bars(), **({"quality": 95} if suffix == ".JPEG" else {}))
    photos = Photos(tmp_path)
    (picture,) = photos.read()
    assert photos.sizes.tolist() == [[64, 48]]
    assert np.abs(picture.image[12::24, 16::32].astype(int) - BARS.reshape(2, 2, 3)).max() < 12
    (grey,) = photos.read(pixels="grey")
    assert grey.image.shape == (48, 64)
    assert abs(int(grey.image[12, 16]) - (0.299 * 250 + 0.701 * 20)) < 6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_made_upright(tmp_path: Path, orientation: int) -> None:
    """Stored any of 8 ways, the photo comes out the same, and so does its size."""
    # Stored = what makes it upright, undone; Pillow's own function says what upright is.
    upright = Image.fromarray(bars())
    ways = {
        1: upright,
        2: ImageOps.mirror(upright),
        3: upright.rotate(180),
        4: ImageOps.flip(upright),
        5: ImageOps.mirror(upright.rotate(-90, expand=True)),
        6: upright.rotate(90, expand=True),
        7: ImageOps.flip(upright.rotate(-90, expand=True)),
        8: upright.rotate(-90, expand=True),
    }
    save(tmp_path / "p.png", ways[orientation], exif=exif(orientation))
    photos = Photos(tmp_path)
    assert photos.sizes.tolist() == [[64, 48]]
    np.testing.assert_array_equal(one(tmp_path), bars())
    assert any("turned" in note for note in photos.notes) == (orientation != 1)


def test_heic_is_turned_once(tmp_path: Path) -> None:
    """HEIC says its turn twice, in boxes and in EXIF; the photo is upright all the same."""
    pytest.importorskip("pillow_heif").register_heif_opener()
    save(tmp_path / "p.heic", np.ascontiguousarray(np.rot90(bars())), exif=exif(6).tobytes())
    assert b"irot" in (tmp_path / "p.heic").read_bytes()
    image = one(tmp_path)
    assert image.shape == (48, 64, 3)
    assert np.abs(image[12::24, 16::32].astype(int) - BARS.reshape(2, 2, 3)).max() < 12


def test_heic_under_the_name_of_a_jpeg(tmp_path: Path) -> None:
    """Content counts, not the name."""
    pytest.importorskip("pillow_heif").register_heif_opener()
    save(tmp_path / "p.heic", bars())
    (tmp_path / "p.heic").rename(tmp_path / "p.jpg")
    assert one(tmp_path).shape == (48, 64, 3)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1", "I;16", "YCbCr", "LAB"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    """Grey, palette, ink, bits and 16 bits: 8-bit colours that a viewer shows."""
    picture = Image.fromarray(bars())
    if mode == "I;16":
        ramp = np.linspace(0, 65535, 64).round().astype(np.uint16)[None].repeat(48, axis=0)
        save(tmp_path / "p.png", Image.fromarray(ramp))
        expected = np.round(ramp / 257)[..., None].repeat(3, axis=2)
    else:
        suffix = ".tif" if mode in ("CMYK", "YCbCr", "LAB") else ".png"
        if mode == "LAB":
            target = ImageCms.createProfile("LAB")
            srgb = ImageCms.createProfile("sRGB")
            stored = ImageCms.profileToProfile(picture, srgb, target, outputMode="LAB")
        else:
            stored = picture.quantize(4) if mode == "P" else picture.convert(mode)
        save(tmp_path / f"p{suffix}", stored)
        grey = {"L": "L", "LA": "L", "1": "1"}.get(mode)
        expected = np.asarray(picture.convert(grey).convert("RGB") if grey else picture)
    allowed = {"I;16": 1, "YCbCr": 3, "LAB": 12}.get(mode, 1)
    assert np.abs(one(tmp_path).astype(int) - expected).max() <= allowed


def test_32_bits_have_no_white(tmp_path: Path) -> None:
    """Floating-point pixels are refused, not guessed."""
    save(tmp_path / "p.tif", Image.fromarray(np.ones((8, 8), np.float32)))
    with pytest.raises(InputError, match=r"p\.tif: pixels of 32 bits"):
        one(tmp_path)


def test_alpha_is_a_mask(tmp_path: Path) -> None:
    """Transparent pixels keep their colours; alpha is apart, upright like the photo."""
    image = np.dstack([bars(), np.full((48, 64), 255, np.uint8)])
    image[:10, :, 3] = 0
    save(tmp_path / "a.png", np.ascontiguousarray(np.rot90(image)), exif=exif(6))
    save(tmp_path / "b.png", bars())
    palette = Image.fromarray(bars()).quantize(4)
    save(tmp_path / "c.png", palette, transparency=int(np.asarray(palette)[0, 0]))
    photos = Photos(tmp_path)
    a, _, c = photos.read()
    np.testing.assert_array_equal(a.image, bars())
    np.testing.assert_array_equal(photos.alpha(0), image[..., 3])
    assert photos.alpha(1) is None
    mask = photos.alpha(2)
    assert mask is not None
    assert mask[5, 5] == 0
    assert mask[40, 60] == 255
    np.testing.assert_array_equal(c.image, bars())


def p3_profile() -> bytes:
    """A small ICC profile of Display P3: its primaries, and sRGB's curve as gamma 2.2."""

    def s15(value: float) -> bytes:
        return struct.pack(">i", round(value * 65536))

    def text(value: str) -> bytes:
        raw = value.encode("ascii") + b"\0"
        return b"desc" + bytes(4) + struct.pack(">I", len(raw)) + raw + bytes(78)

    curve = b"curv" + bytes(4) + struct.pack(">IH", 1, round(2.2 * 256)) + bytes(2)
    # Columns adapted to D50, as Apple's profile has them.
    columns = {
        b"rXYZ": (0.51512, 0.24120, -0.00105),
        b"gXYZ": (0.29198, 0.69225, 0.04189),
        b"bXYZ": (0.15710, 0.06657, 0.78407),
        b"wtpt": (0.96420, 1.0, 0.82491),
    }
    tags = {k: b"XYZ " + bytes(4) + b"".join(map(s15, v)) for k, v in columns.items()}
    tags |= {b"rTRC": curve, b"gTRC": curve, b"bTRC": curve}
    tags |= {b"desc": text("Display P3"), b"cprt": b"text" + bytes(4) + b"none\0"}
    table, body = struct.pack(">I", len(tags)), b""
    start = 128 + 4 + 12 * len(tags)
    for name, data in tags.items():
        padded = data + bytes(-len(data) % 4)
        table += name + struct.pack(">II", start + len(body), len(data))
        body += padded
    head = struct.pack(
        ">I4sI4s4s4s", start + len(body), bytes(4), 0x02400000, b"mntr", b"RGB ", b"XYZ "
    )
    head += bytes(12) + b"acsp" + bytes(28) + s15(0.96420) + s15(1) + s15(0.82491)
    return head.ljust(128, b"\0") + table + body


def test_display_p3_is_converted(tmp_path: Path) -> None:
    """P3's (0.8, 0.3, 0.3) is redder in sRGB, by the matrices of both; the notes name it."""
    stored = np.full((8, 8, 3), (204, 77, 77), np.uint8)
    save(tmp_path / "p.png", stored, icc_profile=p3_profile())
    to_srgb = np.array([[1.2249, -0.2247, 0], [-0.0420, 1.0419, 0], [-0.0197, -0.0786, 1.0979]])
    linear = to_srgb @ (stored[0, 0] / 255.0) ** 2.2
    expected = 255 * (1.055 * linear ** (1 / 2.4) - 0.055)
    assert np.abs(one(tmp_path)[4, 4] - expected).max() <= 2
    assert any("'Display P3'" in note for note in Photos(tmp_path).notes)


def test_profiles_that_do_not_count(tmp_path: Path) -> None:
    """The profile of sRGB itself and a damaged profile leave the pixels as they are."""
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    save(tmp_path / "a.png", bars(), icc_profile=srgb)
    save(tmp_path / "b.png", bars(), icc_profile=b"no profile at all")
    for picture in Photos(tmp_path).read():
        np.testing.assert_array_equal(picture.image, bars())


def test_times_of_all_photos_order_them(tmp_path: Path) -> None:
    """Names say otherwise, but every photo says when it was taken, to a fraction of a second."""
    for name, second, fraction in (("a", 7, "5"), ("b", 5, ""), ("c", 7, "25")):
        tags = exif(taken=f"2026:05:01 10:00:0{second}", fraction=fraction)
        save(tmp_path / f"{name}.jpg", bars(), exif=tags)
    photos = Photos(tmp_path)
    assert photos.names == ("b.jpg", "c.jpg", "a.jpg")
    np.testing.assert_allclose(photos.times - photos.times[0], [0, 2.25, 2.5], atol=1e-6)
    assert [p.index for p in photos.read([2, 0])] == [0, 2]


@pytest.mark.parametrize("second", ["", "2026:05:01 10:00:05", "soon", "0000:00:00 00:00:00"])
def test_without_times_names_count(tmp_path: Path, second: str) -> None:
    """No time, one twice, or nonsense: natural order of names, whole numbers, and a note."""
    save(tmp_path / "img10.jpg", bars(), exif=exif(taken="2026:05:01 10:00:05"))
    save(tmp_path / "img2.jpg", bars(), exif=exif(taken=second))
    photos = Photos(tmp_path)
    assert photos.names == ("img2.jpg", "img10.jpg")
    assert photos.times.tolist() == [0, 1]
    assert any("in order of their names" in note for note in photos.notes)


def test_focal_length_and_mixed_sizes(tmp_path: Path) -> None:
    """26 mm of 36 mm film on the longer side of each photo as it is; unknown is NaN."""
    save(tmp_path / "a.jpg", bars(), exif=exif(6, film=26))
    save(tmp_path / "b.jpg", bars(128, 96), exif=exif(film=26))
    save(tmp_path / "c.jpg", bars())
    photos = Photos(tmp_path)
    assert photos.sizes.tolist() == [[48, 64], [128, 96], [64, 48]]
    np.testing.assert_allclose(photos.focal_prior[:2], [26 / 36 * 64, 26 / 36 * 128])
    assert np.isnan(photos.focal_prior[2])
    assert "Photos differ in size." in photos.notes


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif", ".bmp", ".heic"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.6, 0.97])
def test_cut_photos_are_left_out(tmp_path: Path, suffix: str, share: float) -> None:
    """A photo that ends early is left out by its header alone; when it is the only one, refused."""
    if suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    save(tmp_path / f"p1{suffix}", noise())
    data = (tmp_path / f"p1{suffix}").read_bytes()
    (tmp_path / f"p2{suffix}").write_bytes(data[: int(share * len(data))])
    with pytest.warns(CaptureWarning, match=rf"1 of 2 photos are left out: .*p2\{suffix}"):
        photos = Photos(tmp_path)
    assert photos.names == (f"p1{suffix}",)
    assert any(f"p2{suffix}" in note for note in photos.notes)
    (tmp_path / f"p1{suffix}").unlink()
    with pytest.raises(InputError, match=rf"none of 1 photos can be read.*p2\{suffix}"):
        Photos(tmp_path)


def test_what_the_header_hides_comes_out_when_read(tmp_path: Path) -> None:
    """A PNG whose pixel data is spoilt opens, and names itself when it is decoded."""
    save(tmp_path / "p.png", noise())
    data = bytearray((tmp_path / "p.png").read_bytes())
    data[5000:5200] = bytes(200)
    (tmp_path / "p.png").write_bytes(data)
    photos = Photos(tmp_path)
    with pytest.raises(InputError, match=r"p\.png: cannot be decoded"):
        list(photos.read())


def test_bombs_are_refused(tmp_path: Path) -> None:
    """A header that claims 100000 x 100000 px, and one just above the bound."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    for side in (100_000, 9_000):
        head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        pixels = zlib.compress(bytes(1000))
        png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels)
        (tmp_path / "p.png").write_bytes(png + chunk(b"IEND", b""))
        with pytest.raises(InputError, match=r"p\.png.*(pixels|megapixels)"):
            Photos(tmp_path)


def test_folders_that_hold_no_photos(tmp_path: Path) -> None:
    """Empty, missing, a name that is no UTF-8, a loop of links, a link that leads out."""
    with pytest.raises(InputError, match="holds no photo"):
        Photos(tmp_path)
    with pytest.raises(InputError, match="cannot be listed"):
        Photos(tmp_path / "gone")
    inner = tmp_path / "inner"
    inner.mkdir()
    loop = inner / "loop.jpg"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match=r"loop\.jpg|holds no photo"):
        Photos(inner)
    loop.unlink()
    save(tmp_path / "outside.png", bars())
    (inner / "link.png").symlink_to(tmp_path / "outside.png")
    with pytest.raises(InputError, match="leads out"):
        Photos(inner)
    (inner / "link.png").unlink()
    Path(os.fsdecode(os.fsencode(inner) + b"/\xff.png")).write_bytes(b"x")
    with pytest.raises(InputError, match="no UTF-8"):
        Photos(inner)


def test_other_formats_start_no_program(tmp_path: Path) -> None:
    """PostScript under the name of a photo is no photo."""
    buffer = io.BytesIO()
    Image.fromarray(bars()).save(buffer, "EPS")
    (tmp_path / "p.jpg").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="cannot be decoded as photo"):
        Photos(tmp_path)


def test_unknown_photos_are_refused(tmp_path: Path) -> None:
    """Numbers outside the folder."""
    save(tmp_path / "p.png", bars())
    with pytest.raises(InputError, match="photos 0 to 0, not 1"):
        list(Photos(tmp_path).read([1]))


def test_real_phone_photos() -> None:
    """50 portrait frames of a phone, in the order of their names."""
    photos = Photos(folder("fox") / "images")
    assert len(photos.names) == 50
    assert (photos.sizes == [1080, 1920]).all()
    (last,) = photos.read([49])
    assert last.image.shape == (1920, 1080, 3)
