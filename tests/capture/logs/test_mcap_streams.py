"""Streams of MCAP files: wrenches, frames, pictures, JSON and ROS 1, stamps that are missing."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.writer import Writer as PlainWriter
from mcap_ros2.writer import Writer
from PIL import Image

from twinloop.capture.robot_log import LogMapping, read_capture_log, read_robot_log
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

HEADER = """
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
JOINTS = (
    "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\n"
    "float64[] effort" + HEADER
)
WRENCH = (
    "std_msgs/Header header\ngeometry_msgs/Wrench wrench" + HEADER + "=" * 80 + "\n"
    "MSG: geometry_msgs/Wrench\ngeometry_msgs/Vector3 force\ngeometry_msgs/Vector3 torque\n"
    + "=" * 80
    + "\nMSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n"
)
PICTURE = (
    "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\n"
    "uint32 step\nuint8[] data" + HEADER
)
PACKED = "std_msgs/Header header\nstring format\nuint8[] data" + HEADER
START = 1_790_000_000_000_000_000


def header(stamp: int, frame: str = "base") -> dict[str, Any]:
    """A message header."""
    return {"stamp": {"sec": stamp // 10**9, "nanosec": stamp % 10**9}, "frame_id": frame}


def joints(stamp: int, *position: float) -> dict[str, Any]:
    """A JointState."""
    names = ["a", "b"][: len(position)]
    return {"header": header(stamp), "name": names, "position": list(position)} | {
        "velocity": [],
        "effort": [],
    }


def write(path: Path, kind: str, text: str, messages: list[tuple[str, dict, int]]) -> Path:
    """Write messages (topic, message, log time) of one type."""
    with path.open("wb") as stream:
        writer = Writer(stream)
        schema = writer.register_msgdef(kind, text)
        for k, (topic, message, time) in enumerate(messages):
            writer.write_message(topic, schema, message, time, time, k)
        writer.finish()
    return path


def test_wrench_and_its_frame(tmp_path: Path) -> None:
    """Forces and torques at header stamps, put in order."""
    vector = [dict(zip("xyz", (k, 2.0, 3.0), strict=True)) for k in (0.0, 1.0, 2.0)]
    messages = [
        ("/ft", {"header": header(START + k * 10**6, "wrist"), "wrench": wrench}, START)
        for k in (0, 2, 1)
        for wrench in [{"force": vector[k], "torque": vector[0]}]
    ]
    path = write(tmp_path / "robot.mcap", "geometry_msgs/msg/WrenchStamped", WRENCH, messages)
    capture = read_capture_log(path)
    assert capture.states is None
    assert capture.wrench.frame == "wrist"
    np.testing.assert_array_equal(capture.wrench.force[:, 0], [0, 1, 2])
    np.testing.assert_allclose(np.diff(capture.wrench.time), 1e-3, atol=3e-7)
    messages[1][1]["wrench"]["force"] = {"x": np.nan, "y": 0.0, "z": 0.0}
    write(path, "geometry_msgs/msg/WrenchStamped", WRENCH, messages)
    with pytest.raises(InputError, match="force or torque is NaN"):
        read_capture_log(path)


def pictures(path: Path, content: dict[str, Any], packed: bool = False) -> Path:
    """Write two picture messages, the later one first."""
    kind = "sensor_msgs/msg/CompressedImage" if packed else "sensor_msgs/msg/Image"
    messages = [
        ("/camera", {"header": header(START + k * 10**7, "camera"), **content}, START)
        for k in (1, 0)
    ]
    return write(path, kind, PACKED if packed else PICTURE, messages)


@pytest.mark.parametrize("fmt", ["jpeg", "png"])
def test_compressed_pictures(tmp_path: Path, fmt: str) -> None:
    """JPEG and PNG, red stays red; times are header stamps in order."""
    red = np.full((8, 16, 3), (200, 30, 30), np.uint8)
    data = io.BytesIO()
    Image.fromarray(red).save(data, fmt)
    path = pictures(tmp_path / "a.mcap", {"format": fmt, "data": data.getvalue()}, packed=True)
    stream = read_capture_log(path).images["/camera"]
    assert stream.sizes.tolist() == [[16, 8]] * 2
    np.testing.assert_allclose(np.diff(stream.times), 0.01, atol=3e-7)
    seen = list(stream.read())
    assert [p.index for p in seen] == [0, 1]
    np.testing.assert_allclose(seen[0].image[4, 8], [200, 30, 30], atol=4)
    assert np.isnan(stream.focal_prior).all()
    assert stream.names == ("/camera 0", "/camera 1")


@pytest.mark.parametrize(
    ("encoding", "step", "data", "expected"),
    [
        ("rgb8", 6, [1, 2, 3, 4, 5, 6], [1, 2, 3]),
        ("bgr8", 6, [1, 2, 3, 4, 5, 6], [3, 2, 1]),
        ("rgba8", 8, [1, 2, 3, 255, 4, 5, 6, 255], [1, 2, 3]),
        ("bgra8", 9, [1, 2, 3, 255, 4, 5, 6, 255, 0], [3, 2, 1]),
        ("mono8", 2, [7, 8], [7, 7, 7]),
        ("mono16", 4, [0, 9, 0, 8], [9, 9, 9]),
    ],
)
def test_raw_pictures(tmp_path: Path, encoding: str, step: int, data, expected) -> None:
    """Order of channels, padded rows, two bytes a pixel."""
    content = {"height": 1, "width": 2, "encoding": encoding, "is_bigendian": 0, "step": step}
    path = pictures(tmp_path / "a.mcap", {**content, "data": bytes(data)})
    first = next(iter(read_capture_log(path).images["/camera"].read()))
    assert first.image[0, 0].tolist() == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": bytes(5)}, "needs 6 bytes, the message has 5; truncated"),
        ({"encoding": "16UC1"}, "encoded as '16UC1'"),
        ({"height": 4_000_000_000, "width": 4_000_000_000}, "at most 100000000 px"),
        ({"height": 0}, "a picture of 2 x 0 px"),
    ],
)
def test_wrong_raw_pictures(tmp_path: Path, change: dict, words: str) -> None:
    """A size that lies takes no memory; each fault is named with the topic."""
    content = {"height": 1, "width": 2, "encoding": "rgb8", "is_bigendian": 0, "step": 6}
    path = pictures(tmp_path / "a.mcap", {**content, "data": bytes(6), **change})
    with pytest.raises(InputError, match=words) as caught:
        list(read_capture_log(path).images["/camera"].read())
    assert "/camera" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"format": "jpeg", "data": b"none"}, "cannot be opened as JPEG or PNG"),
        ({"format": "16UC1; compressedDepth png", "data": b""}, "holds a depth picture"),
    ],
)
def test_wrong_compressed_pictures(tmp_path: Path, content: dict, words: str) -> None:
    """No picture at all, or a depth picture."""
    with pytest.raises(InputError, match=words):
        read_capture_log(pictures(tmp_path / "a.mcap", content, packed=True))


def test_missing_header_stamps(tmp_path: Path) -> None:
    """No stamp at all: arrival times, with a warning; stamps here and there: refused."""
    kind = "sensor_msgs/msg/JointState"
    messages = [("/joint_states", joints(0, k), START + k * 10**9) for k in range(3)]
    path = write(tmp_path / "a.mcap", kind, JOINTS, messages)
    with pytest.warns(CaptureWarning, match="all 3 header stamps are zero; arrival times"):
        log = read_robot_log(path)
    np.testing.assert_allclose(log.time - START * 1e-9, [0, 1, 2], atol=5e-7)
    messages[0] = ("/joint_states", joints(START, 0.0), START)
    write(path, kind, JOINTS, messages)
    with pytest.raises(InputError, match="2 of 3 header stamps are zero"):
        read_robot_log(path)
    messages[1][1]["header"] = {"stamp": {"sec": 5, "nanosec": 2**31}, "frame_id": ""}
    write(path, kind, JOINTS, messages[:2])
    with pytest.raises(InputError, match="5 s \\+ 2147483648 ns"):
        read_robot_log(path)


def test_topics_by_type(tmp_path: Path) -> None:
    """The only topic of a type is taken; of two, robot.yaml has to name one."""
    kind = "sensor_msgs/msg/JointState"
    one = [("/arm/state", joints(START + k, float(k)), 0) for k in range(3)]
    two = [("/hand/state", joints(START + k, 9.0), 0) for k in range(3)]
    path = write(tmp_path / "a.mcap", kind, JOINTS, one)
    assert len(read_robot_log(path).time) == 3
    write(path, kind, JOINTS, one + two)
    with pytest.raises(InputError, match=r"\['/arm/state', '/hand/state'\] all could be"):
        read_robot_log(path)
    mapping = LogMapping.model_validate(
        {"topics": {"states": "/arm/state", "commands": "/hand/state"}, "command_delay": 0.004}
    )
    control = read_capture_log(path, mapping).control
    assert control.delay == 0.004
    np.testing.assert_array_equal(control.position[:, 0], 9.0)
    assert control.stiffness is None


def plain(path: Path, name: str, encoding: str, schema: tuple[str, bytes], data: bytes) -> Path:
    """Write one message with the format's own plain writer."""
    with path.open("wb") as stream:
        writer = PlainWriter(stream)
        writer.start()
        schema_id = writer.register_schema(name, schema[0], schema[1])
        channel = writer.register_channel("/joint_states", encoding, schema_id)
        writer.add_message(channel, START, data, START)
        writer.finish()
    return path


def test_json_messages(tmp_path: Path) -> None:
    """Stamps as sec and nsec, lists that are left out, pictures in base64."""
    message = {
        "header": {"stamp": {"sec": 12, "nsec": 5 * 10**8}, "frame_id": "base"},
        "name": ["a"],
        "position": [0.25],
    }
    path = tmp_path / "a.mcap"
    plain(
        path, "sensor_msgs/JointState", "json", ("jsonschema", b"{}"), json.dumps(message).encode()
    )
    log = read_robot_log(path)
    assert (log.time[0], log.position[0, 0]) == (12.5, 0.25)
    assert np.isnan(log.effort).all()
    picture = {
        "header": message["header"],
        "height": 1,
        "width": 1,
        "encoding": "rgb8",
        "is_bigendian": 0,
        "step": 3,
        "data": base64.b64encode(bytes([1, 2, 3])).decode(),
    }
    data = json.dumps(picture).encode()
    plain(path, "sensor_msgs/msg/Image", "json", ("jsonschema", b"{}"), data)
    (seen,) = read_capture_log(path).images["/joint_states"].read()
    assert seen.image.tolist() == [[[1, 2, 3]]]


def test_ros1_messages_and_idl_definitions(tmp_path: Path) -> None:
    """Encodings other than ROS 2's usual one, through rosbags."""
    typesys = pytest.importorskip("rosbags.typesys", reason="ROS 1 messages need rosbags")
    path = tmp_path / "a.mcap"
    for store, encoding, schema, sequence, serialize in (
        (typesys.Stores.ROS1_NOETIC, "ros1", "ros1msg", (0,), "serialize_ros1"),
        (typesys.Stores.ROS2_HUMBLE, "cdr", "ros2idl", (), "serialize_cdr"),
    ):
        types = typesys.get_typestore(store)
        stamp = types.types["builtin_interfaces/msg/Time"](7, 0)
        head = types.types["std_msgs/msg/Header"](*sequence, stamp, "base")
        empty = np.zeros(0)
        kind = "sensor_msgs/msg/JointState"
        message = types.types[kind](head, ["a"], np.array([0.5]), empty, empty)
        data = bytes(getattr(types, serialize)(message, kind))
        log = read_robot_log(plain(path, "sensor_msgs/JointState", encoding, (schema, b""), data))
        assert (log.time[0], log.position[0, 0]) == (7.0, 0.5)


@pytest.mark.parametrize(
    ("encoding", "schema", "data", "words"),
    [
        ("protobuf", ("protobuf", b""), b"", "as 'protobuf'"),
        ("cdr", ("ros2msg", b"\xff\xfe"), b"", "cannot be parsed"),
        ("cdr", ("ros2msg", JOINTS.encode()), b"\x00\x01\x00\x00\xff", "cannot be decoded"),
        ("json", ("jsonschema", b""), b"{", "cannot be decoded"),
        ("json", ("jsonschema", b""), b'{"name": ["a"]}', "no sensor_msgs/msg/JointState as ROS"),
    ],
)
def test_undecodable_messages(tmp_path: Path, encoding: str, schema, data: bytes, words) -> None:
    """Unknown encodings, damaged definitions and damaged messages name topic and type."""
    path = plain(tmp_path / "a.mcap", "sensor_msgs/msg/JointState", encoding, schema, data)
    with pytest.raises(InputError, match=words) as caught:
        read_robot_log(path)
    assert "/joint_states" in str(caught.value)


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    """Said plainly, in characters that every terminal shows."""
    path = tmp_path / "robot\udcff.mcap"
    path.write_bytes(b"x")
    with pytest.raises(InputError, match="the name is no UTF-8") as caught:
        read_robot_log(path)
    str(caught.value).encode("ascii")


def test_a_loop_of_links(tmp_path: Path) -> None:
    """A link to itself is no log, and does not hang."""
    (tmp_path / "robot.mcap").symlink_to(tmp_path / "robot.mcap")
    with pytest.raises(InputError, match="no such robot log"):
        read_robot_log(tmp_path / "robot.mcap")
