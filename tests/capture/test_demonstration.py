"""Reading demonstrations: what is good comes back, what is bad is named."""

import io
import os
import zipfile

import numpy as np
import pytest

from tests.stages.box_twin import hand_keypoints, write_demo
from twinloop.capture import demonstration
from twinloop.capture.demonstration import read_demonstration
from twinloop.errors import InputError


def test_round_trip(tmp_path):
    """Keypoints, times and motion are read as written."""
    write_demo(tmp_path)
    demo = read_demonstration(tmp_path)
    time, keypoints, motion = hand_keypoints()
    assert demo.time == pytest.approx(time)
    assert demo.keypoints == pytest.approx(keypoints)
    assert demo.motion == pytest.approx(motion)
    assert demo.handedness == "right"


def _drop_array(folder):
    np.savez(folder / "hand.npz", time=np.arange(3.0))


def _pickled(folder):
    np.savez(folder / "hand.npz", time=np.arange(3.0), keypoints=np.array([{}, {}, {}], object))


def _both_hands(folder):
    time, keypoints, _ = hand_keypoints()
    np.savez(folder / "hand.npz", time=time, keypoints=keypoints, handedness="both")


def _forged(folder):
    """A header that claims far more numbers than the file holds."""
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
    with zipfile.ZipFile(folder / "hand.npz", "w") as archive:
        for name in ("time", "keypoints"):
            stream = io.BytesIO()
            np.lib.format.write_array_header_1_0(stream, header)
            archive.writestr(f"{name}.npy", stream.getvalue() + b"\0" * 64)


def _bomb(folder):
    """An array of zeros that packs to nothing."""
    time, _, _ = hand_keypoints()
    np.savez_compressed(folder / "hand.npz", time=time, keypoints=np.zeros(2**27, np.uint8))


def _instead(name, kind):
    def change(folder):
        (folder / name).unlink()
        if kind == "pipe":
            os.mkfifo(folder / name)
        elif kind == "folder":
            (folder / name).mkdir()
        else:
            (folder / name).symlink_to("/dev/zero")

    return change


def _complex(folder):
    time, keypoints, _ = hand_keypoints()
    np.savez(folder / "hand.npz", time=time, keypoints=keypoints + 1j)


def _other_clock(folder):
    time, keypoints, _ = hand_keypoints()
    np.savez(folder / "hand.npz", time=time + 1000.0, keypoints=keypoints)


def _text(old, new):
    def change(folder):
        path = folder / "object_motion.csv"
        path.write_text(path.read_text().replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "hand.npz").unlink(), "hand.npz does not exist"),
        (lambda f: (f / "hand.npz").write_bytes(b"PK\x03\x04junk"), "cannot be read"),
        (_drop_array, "keypoints"),
        (_pickled, "without pickle"),
        (_both_hands, "handedness"),
        (_forged, "damaged or forged"),
        (_complex, "expected real numbers"),
        (_other_clock, "one clip and clock"),
        (lambda f: (f / "object_motion.csv").unlink(), "object_motion.csv does not exist"),
        (_bomb, "at most"),
        *(
            (_instead(name, kind), "no regular file")
            for name in ("hand.npz", "object_motion.csv")
            for kind in ("pipe", "folder", "device")
        ),
        (_text(",1,0,0,0", ",1,0,0,0\x00"), "numbers"),
        (_text("time,x", "\ufefftime,x"), None),
        (_text("qz\n", "qz\n-9,400,0,50,1,0,0,0\n"), "In millimetres"),
        (_text("qw", "w"), "qw"),
        (_text(",1,0,0,0", ",2,0,0,0"), "norm"),
        (_text(",1,0,0,0", ",one,0,0,0"), "numbers"),
    ],
)
def test_damaged_captures_are_named(tmp_path, monkeypatch, damage, words):
    """Each damage gives an InputError that says which file and what was expected."""
    write_demo(tmp_path)
    damage(tmp_path)
    monkeypatch.setattr(demonstration, "LARGEST_ARRAY", 2**26)
    if words is None:  # none at all: a byte order mark
        read_demonstration(tmp_path)
        return
    with pytest.raises(InputError, match=words):
        read_demonstration(tmp_path)
