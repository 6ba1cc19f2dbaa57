"""Robot logs that claim too much, or whose messages hold something else than they should."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.writer import CompressionType, Writer

from twinloop.capture.logs import messages
from twinloop.capture.robot_log import read_capture_log
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

HEADER = {"stamp": {"sec": 12, "nanosec": 5}, "frame_id": "base"}
STATE = {"header": HEADER, "name": ["a"], "position": [0.25]}
IMAGE = {"header": HEADER, "height": 1, "width": 1, "encoding": "rgb8", "step": 3, "data": "AAAA"}


def log(
    path: Path,
    said: list[Any],
    kind: str = "sensor_msgs/JointState",
    topic: str = "/joint_states",
    arrival: int = 1,
    pack: CompressionType = CompressionType.NONE,
) -> Path:
    """Write messages as JSON; bytes as they are."""
    with path.open("wb") as stream:
        writer = Writer(stream, compression=pack, chunk_size=2**26)
        writer.start()
        schema = writer.register_schema(kind, "jsonschema", b"{}")
        channel = writer.register_channel(topic, "json", schema)
        for message in said:
            data = message if isinstance(message, bytes) else json.dumps(message).encode()
            writer.add_message(channel, arrival, data, arrival)
        writer.finish()
    return path


@pytest.mark.parametrize(
    "message",
    [
        b"[" * 10_000,
        b'{"a":' * 10_000,
        b"3",
        {**STATE, "position": [[0.1]]},
        {**STATE, "position": ["x"]},
        {**STATE, "position": [None]},
        {**STATE, "name": [1]},
        {**STATE, "name": ["a", "a"], "position": [1, 2]},
        {**STATE, "header": {"stamp": {"sec": 10**30, "nanosec": 0}}},
        {**STATE, "header": {"stamp": {"sec": float("inf"), "nanosec": 0}}},
        {**STATE, "header": {"stamp": {"sec": float("nan"), "nanosec": 0}}},
        {**STATE, "header": {"stamp": {"sec": 10**12, "nanosec": 0}}},
        {**STATE, "header": 3},
    ],
    ids=lambda message: str(message)[-40:],
)
def test_messages_that_hold_something_else_are_refused(tmp_path: Path, message: Any) -> None:
    """JSON may hold anything anywhere; the second message is named with its topic."""
    path = log(tmp_path / "a.mcap", [STATE, message])
    with pytest.raises(InputError, match=r"a\.mcap: /joint_states"):
        read_capture_log(path)


def test_arrival_times_beyond_all_clocks_are_refused(tmp_path: Path) -> None:
    """They are 64 bits without a sign, and used where header stamps are zero."""
    message = {**STATE, "header": {"stamp": {"sec": 0, "nanosec": 0}}}
    path = log(tmp_path / "a.mcap", [message], arrival=2**64 - 1)
    with pytest.raises(InputError, match="arrival times go from"):
        read_capture_log(path)


@pytest.mark.parametrize(
    "fields", [{"data": 4_000_000_000}, {"step": None}, {"width": -1, "height": -1}, {"data": {}}]
)
def test_pictures_that_hold_something_else_are_refused(tmp_path: Path, fields: Any) -> None:
    """A number in place of the bytes is no length to allocate."""
    path = log(tmp_path / "a.mcap", [{**IMAGE, **fields}], "sensor_msgs/Image", "/camera")
    with pytest.raises(InputError, match=r"a\.mcap: /camera"):
        list(read_capture_log(path).images["/camera"].read())


def test_one_topic_of_two_types(tmp_path: Path) -> None:
    """Pictures are found again though their topic has other messages as well."""
    path = tmp_path / "a.mcap"
    with path.open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        for kind, said in (("sensor_msgs/JointState", STATE), ("sensor_msgs/Image", IMAGE)):
            schema = writer.register_schema(kind, "jsonschema", b"{}")
            channel = writer.register_channel("/both", "json", schema)
            writer.add_message(channel, 1, json.dumps(said).encode(), 1)
        writer.finish()
    (picture,) = read_capture_log(path).images["/both"].read()
    np.testing.assert_array_equal(picture.image, np.zeros((1, 1, 3), np.uint8))


@pytest.mark.parametrize("pack", [CompressionType.ZSTD, CompressionType.LZ4])
def test_a_chunk_that_unpacks_to_far_more_is_not_followed(
    tmp_path: Path, pack: CompressionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that are all alike pack so well that a small file would fill the memory."""
    from twinloop.capture.logs import ros_types

    monkeypatch.setattr(ros_types, "ALWAYS_UNPACKED", 2**20)
    filler = {**STATE, "filler": "x" * 2**20}
    path = log(tmp_path / "a.mcap", [filler] * 4, pack=pack)
    with pytest.raises(InputError, match="100 times as much"):
        read_capture_log(path)


def test_chunks_within_chunks_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody writes them, and each could hold a thousand times more."""
    import zstandard

    from twinloop.capture.logs import mcap_log

    monkeypatch.setattr(mcap_log, "LARGEST", 2**20)

    def chunk(inner: bytes) -> bytes:
        packed = zstandard.compress(inner)
        body = struct.pack("<QQQII", 0, 0, len(inner), 0, 4) + b"zstd"
        body += struct.pack("<Q", len(packed)) + packed
        return struct.pack("<BQ", 6, len(body)) + body

    path = tmp_path / "a.mcap"
    path.write_bytes(b"\x89MCAP0\r\n" + chunk(chunk(bytes(2**26))))
    tracemalloc.start()
    with pytest.raises(InputError, match="no message can be read"):
        read_capture_log(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**25


def test_more_messages_than_a_log_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before they fill the memory."""
    monkeypatch.setattr(messages, "MOST_MESSAGES", 5)
    path = log(tmp_path / "a.mcap", [STATE] * 6)
    with pytest.raises(InputError, match="over 5 messages"):
        read_capture_log(path)


def test_a_table_with_its_times_across_is_refused_at_once(tmp_path: Path) -> None:
    """Names are compared in pairs: a hundred thousand columns would take minutes."""
    path = tmp_path / "a.csv"
    names = ["time", *(f"position_{k}" for k in range(100_000))]
    path.write_text(",".join(names) + "\n" + ",".join(["0"] * len(names)) + "\n")
    with pytest.raises(InputError, match="at most 1000 are read"):
        read_capture_log(path)


def test_a_table_of_one_line(tmp_path: Path) -> None:
    """Is read; a header alone is refused."""
    path = tmp_path / "a.csv"
    path.write_text("time,position_a\n0.5,1\n")
    assert read_capture_log(path).states.time.tolist() == [0.5]
    path.write_text("time,position_a\n")
    with pytest.raises(InputError, match="no sample"):
        read_capture_log(path)


@pytest.mark.filterwarnings("ignore::twinloop.capture.warning.CaptureWarning")
def test_the_readable_part_before_a_bomb_is_used(tmp_path: Path) -> None:
    """A damaged chunk ends the log as a cut does."""
    path = log(tmp_path / "a.mcap", [STATE])
    data = path.read_bytes()
    at = data.rfind(b"\x0f")  # the data section's end
    path.write_bytes(data[:at] + struct.pack("<BQ", 6, 2**63) + data[at:])
    with pytest.warns(CaptureWarning, match="damaged"):
        assert len(read_capture_log(path).states.time) == 1
