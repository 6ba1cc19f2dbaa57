"""Foreign files meet a child process first: what it dies of becomes an error naming the file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.capture.clips import write_counted
from twinloop.capture import guard
from twinloop.capture.guard import check_decodes
from twinloop.errors import InputError, MachineError

FAKE = "tests.capture.decoders:decode"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hang", "still busy after 1.5 s"),
        ("spin", "still busy after 1.5 s"),
        ("crash", "crashed .SIGSEGV"),
        ("broken", "deep inside"),
        ("quit", "exit 7"),
        pytest.param(
            "greedy",
            "more than 0.5 GiB",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="no bound on memory"),
        ),
    ],
)
def test_misbehaving_decoders(tmp_path: Path, name: str, words: str) -> None:
    """The file at fault is named with what happened; the one before it was fine."""
    paths = [tmp_path / "good.mp4", tmp_path / f"{name}.mp4"]
    seconds = 1.5 if "busy" in words else 60
    with pytest.raises(InputError, match=rf"{name}\.mp4: .*{words}"):
        check_decodes(paths, seconds=seconds, memory=2**29, decoder=FAKE)
    assert (tmp_path / "seen.txt").read_text() == "good.mp4 True\n"


def test_pixels_of_a_sample_headers_of_all(tmp_path: Path) -> None:
    """Of 40 photos, 8 are decoded, the first and the last among them."""
    check_decodes([tmp_path / f"{i}.jpg" for i in range(40)], decoder=FAKE)
    seen = [line.split() for line in (tmp_path / "seen.txt").read_text().splitlines()]
    assert len(seen) == 40
    decoded = [name for name, pixels in seen if pixels == "True"]
    assert len(decoded) == guard.SAMPLE
    assert decoded[0] == "0.jpg"
    assert decoded[-1] == "39.jpg"


def test_good_files_pass_and_bad_videos_say_why(tmp_path: Path) -> None:
    """One child for a video and photos; a damaged photo is its reader's business."""
    write_counted(tmp_path / "v.mp4", 5)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "p.png")
    (tmp_path / "q.png").write_bytes((tmp_path / "p.png").read_bytes()[:40])
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))
    odd.write_bytes(b"no picture")
    check_decodes([tmp_path / "v.mp4", tmp_path / "p.png", tmp_path / "q.png", odd])
    (tmp_path / "w.mp4").write_bytes(b"no video" * 99)
    with pytest.raises(InputError, match=r"w\.mp4 \(792 bytes\): cannot be decoded"):
        check_decodes([tmp_path / "v.mp4", tmp_path / "w.mp4"])
    check_decodes([])


def test_a_child_that_cannot_start_is_no_fault_of_the_file(tmp_path: Path) -> None:
    """A decoder that does not exist is the machine's fault."""
    with pytest.raises(MachineError, match="before the first file"):
        check_decodes([tmp_path / "v.mp4"], decoder="tests.capture.no_such:decode")
