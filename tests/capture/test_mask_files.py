"""Masks of other tools: layouts, objects, names, sizes, and each way they are broken."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twinloop.capture.given_masks import hull_of
from twinloop.capture.mask import MaskSettings
from twinloop.capture.mask_files import read_masks
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

SIZE = (40, 60)
"""Columns, rows."""
NAMES = ("IMG_1.jpg", "IMG_2.jpg", "IMG_3.jpg")
SIZES = np.tile(SIZE, (3, 1))


def blob(shift: int = 0, value: int = 1, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A rectangle of ``value`` in zeros, (rows, columns)."""
    mask = np.zeros((size[1], size[0]), np.uint8)
    mask[20:40, 10 + shift : 25 + shift] = value
    return mask


def palette(path: Path, labels: np.ndarray) -> None:
    """Save as SAM 2, XMem and Cutie do: mode P with DAVIS' colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(labels)
    picture.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0] + [90] * 756)
    assert picture.mode == "P"
    picture.save(path)


def test_sam2_one_picture_per_frame(tmp_path: Path) -> None:
    """Pixel value is the object; several need a choice, which the error lists with counts."""
    for i in range(3):
        palette(tmp_path / f"{i:05d}.png", np.maximum(blob(i), blob(value=2) * (blob(i) == 0)))
    with pytest.raises(InputError, match=r"several objects: 1 \(900 pixels in 3 masks\), 2 \("):
        read_masks(tmp_path, NAMES, SIZES)
    read = read_masks(tmp_path, NAMES, SIZES, object_id=1)
    for i in range(3):
        np.testing.assert_array_equal(read(i), blob(i, 255))
    with pytest.raises(InputError, match="object 7 is in no mask; there are 1"):
        read_masks(tmp_path, NAMES, SIZES, object_id=7)


def test_sam2_folder_per_object_inside_a_folder_per_video(tmp_path: Path) -> None:
    """``video/002/00000.png``; the other object may lack a frame."""
    for i in range(3):
        palette(tmp_path / "clip" / "002" / f"{i:05d}.png", blob(i))
        if i:
            palette(tmp_path / "clip" / "001" / f"{i:05d}.png", blob(3))
    read = read_masks(tmp_path, ["frame 0", "frame 1", "frame 2"], SIZES, object_id=2)
    np.testing.assert_array_equal(read(2), blob(2, 255))


def test_folder_per_frame(tmp_path: Path) -> None:
    """``IMG_2/1.png``: objects in the folder of a picture."""
    for i, name in enumerate(NAMES):
        palette(tmp_path / Path(name).stem / "1.png", blob(i))
        palette(tmp_path / Path(name).stem / "2.png", blob(5))
    read = read_masks(tmp_path, NAMES, SIZES, object_id=1)
    np.testing.assert_array_equal(read(1), blob(1, 255))


@pytest.mark.parametrize("pattern", ["{}.png", "{}_mask.png", "{}.jpg.png"])
def test_plain_masks_by_name(tmp_path: Path, pattern: str) -> None:
    """0 and 255; one that is missing is reported and read as None."""
    for i in (0, 2):
        stem = Path(NAMES[i]).stem
        Image.fromarray(blob(i, 255)).save(tmp_path / pattern.format(stem))
    with pytest.warns(CaptureWarning, match=r"1 of 3 pictures have no mask \(IMG_2.jpg\)"):
        read = read_masks(tmp_path, NAMES, SIZES)
    assert read(1) is None
    np.testing.assert_array_equal(read(2), blob(2, 255))


def test_void_and_soft_masks(tmp_path: Path) -> None:
    """DAVIS' 255 is nothing; a soft grey mask is cut at half."""
    labels = blob()
    labels[0] = 255
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    palette(tmp_path / "a" / "0.png", labels)
    np.testing.assert_array_equal(read_masks(tmp_path / "a", ["x"], SIZES)(0), blob(0, 255))
    ramp = np.tile(np.linspace(0, 255, 60).astype(np.uint8)[:, None], (1, 40))
    Image.fromarray(ramp).save(tmp_path / "b" / "0.png")
    assert (read_masks(tmp_path / "b", ["x"], SIZES)(0) > 0).mean() == pytest.approx(0.5, abs=0.02)


def test_numbers_from_one_and_ambiguous_numbers(tmp_path: Path) -> None:
    """1 to n is said to be from 1; numbers that contradict the names are refused, both shown."""
    for i in range(3):
        palette(tmp_path / f"{i + 1:04d}.png", blob(i))
    with pytest.warns(CaptureWarning, match="numbered from 1"):
        read = read_masks(tmp_path, ["a", "b", "c"], SIZES)
    np.testing.assert_array_equal(read(2), blob(2, 255))
    for i in range(3):
        (tmp_path / f"{i + 1:04d}.png").rename(tmp_path / f"{i:05d}.png")
    with pytest.raises(InputError, match=r"by name '00001.png', by number '00000.png'"):
        read_masks(tmp_path, ["00001.jpg", "00002.jpg", "00003.jpg"], SIZES)
    with pytest.raises(InputError, match="numbered 0 to 2, pictures 0 to 1"):
        read_masks(tmp_path, ["a", "b"], SIZES[:2])


def test_names_that_fit_nothing_or_twice(tmp_path: Path) -> None:
    """Neither name nor number, a stranger among names, two for one picture."""
    palette(tmp_path / "left.png", blob())
    with pytest.raises(InputError, match=r"like 'left.png', pictures like 'IMG_1.jpg'"):
        read_masks(tmp_path, NAMES, SIZES)
    palette(tmp_path / "IMG_1.png", blob())
    with pytest.raises(InputError, match=r"'left.png' is not"):
        read_masks(tmp_path, NAMES, SIZES)
    (tmp_path / "left.png").rename(tmp_path / "IMG_1_mask.png")
    with pytest.raises(InputError, match=r"both fit the picture 'IMG_1.jpg'"):
        read_masks(tmp_path, NAMES, SIZES)


def test_sizes(tmp_path: Path) -> None:
    """Half size is scaled, another shape refused, a turned one explained."""
    Image.fromarray(blob(0, 255)[::2, ::2]).save(tmp_path / "0.png")
    mask = read_masks(tmp_path, ["x"], SIZES)(0)
    assert mask.shape == (60, 40)
    assert (mask != blob(0, 255)).mean() < 0.02
    Image.fromarray(blob(0, 255)[:, :30]).save(tmp_path / "0.png")
    with pytest.raises(InputError, match="has 30 x 60 px, but the picture x has 40 x 60"):
        read_masks(tmp_path, ["x"], SIZES)
    Image.fromarray(blob(0, 255).T.copy()).save(tmp_path / "0.png")
    with pytest.raises(InputError, match="turned by 90 degrees"):
        read_masks(tmp_path, ["x"], SIZES)


def test_empty_and_inverted_masks(tmp_path: Path) -> None:
    """Empty ones give picture numbers and counts; inverted ones are warned about."""
    for i in range(3):
        palette(tmp_path / f"{i}.png", blob() * (i != 1))
    with pytest.raises(InputError, match=r"1 of 3 masks are empty \(pictures \[1\].* 300 at"):
        read_masks(tmp_path, NAMES, SIZES)
    for i in range(3):
        palette(tmp_path / f"{i}.png", blob() * 0)
    with pytest.raises(InputError, match="all masks are empty"):
        read_masks(tmp_path, NAMES, SIZES)
    for i in range(3):
        Image.fromarray(255 - blob(0, 255)).save(tmp_path / f"{i}.png")
    with pytest.warns(CaptureWarning, match="100% of the pictures' border: are the masks inv"):
        read_masks(tmp_path, NAMES, SIZES)


def test_damaged_files(tmp_path: Path) -> None:
    """0 bytes, cut off, no picture, a header that lies, colours, a link out, nothing at all."""
    path = tmp_path / "masks" / "0.png"
    palette(path, blob())
    whole = path.read_bytes()
    colours = np.zeros((60, 40, 3), np.uint8)
    colours[20:, :, 0] = 128
    lying = bytearray(whole)
    lying[16:24] = (2**31 - 1).to_bytes(4, "big") * 2
    for content, message in (
        (b"", "0 bytes"),
        (whole[: len(whole) - 30], "damaged or cut off"),
        (b"no picture", "cannot be read as a picture"),
        (bytes(lying), "cannot be read as a picture"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_masks(path.parent, ["x"], SIZES)
    Image.fromarray(colours).save(path)
    with pytest.raises(InputError, match="is a colour picture"):
        read_masks(path.parent, ["x"], SIZES)
    path.unlink()
    with pytest.raises(InputError, match="holds no masks"):
        read_masks(path.parent, ["x"], SIZES)
    palette(tmp_path / "other.png", blob())
    path.symlink_to(tmp_path / "other.png")
    with pytest.raises(InputError, match="leads out"):
        read_masks(path.parent, ["x"], SIZES)


@pytest.mark.parametrize("layout", ["{i:05d}/²", "²/{i:05d}", "1/{i:05d}"])
def test_superscripts_are_no_numbers(tmp_path: Path, layout: str) -> None:
    """They count as digits by Unicode, which numbers of objects and pictures are not."""
    for i in range(3):
        palette(tmp_path / f"{layout.format(i=i)}.png", blob(i))
        palette(tmp_path / f"{layout.format(i=i).replace('²', '1')}.png", blob(i))
    if layout.startswith("1"):
        assert read_masks(tmp_path, NAMES, SIZES)(0) is not None
        return
    with pytest.raises(InputError, match=re.escape(str(tmp_path))):
        read_masks(tmp_path, NAMES, SIZES)


def test_other_formats_under_the_name_of_a_mask_are_refused(tmp_path: Path) -> None:
    """A decoder that starts a program is never asked."""
    Image.fromarray(blob(value=255)).save(tmp_path / "IMG_1.png", format="EPS")
    with pytest.raises(InputError, match="cannot be read as a picture"):
        read_masks(tmp_path, NAMES, SIZES)


def test_probabilities_are_refused(tmp_path: Path) -> None:
    """Cut down to whole numbers they would leave nothing of 0.7."""
    for name in NAMES:
        probability = blob().astype(np.float32) * 0.7 + 0.3
        Image.fromarray(probability).save((tmp_path / name).with_suffix(".tif"))
    with pytest.raises(InputError, match="threshold of your own"):
        read_masks(tmp_path, NAMES, SIZES)


def test_inverted_masks_of_any_source_are_refused() -> None:
    """Whether from files, an alpha channel, an export or a segmenter."""
    masks = np.repeat(255 - blob(value=255)[None], 4, axis=0)
    poses = np.tile(np.eye(4), (4, 1, 1))
    with pytest.raises(InputError, match=r"100% of the pictures' rim .* inverted"):
        hull_of(masks, np.tile([50.0, 50, 20, 30], (4, 1)), poses, MaskSettings())
