"""ROS 1 and ROS 2 bags that rosbags' own writers made: whole, cut, unindexed, wrong."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twinloop.capture.robot_log import LogMapping, read_capture_log, read_robot_log
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

pytest.importorskip("rosbags", reason="ROS bags need rosbags")
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

START = 1_790_000_000_000_000_000
STEP = 3_333_333
LATE = 7_000_000
"""Arrival after the header stamp, ns."""
JOINTS = ["turn", "slide"]


@pytest.fixture(scope="module")
def stores() -> dict[int, Any]:
    """Type stores of ROS 1 and 2."""
    one = get_typestore(Stores.ROS1_NOETIC)
    one.register(
        get_types_from_msg("geometry_msgs/TransformStamped[] transforms", "tf2_msgs/msg/TFMessage")
    )
    return {1: one, 2: get_typestore(Stores.ROS2_HUMBLE)}


class Messages:
    """Makes messages of one ROS version."""

    def __init__(self, version: int, store: Any) -> None:
        self.version, self.store = version, store

    def of(self, name: str, *fields: Any) -> Any:
        """A message by its fields in order."""
        return self.store.types[name](*fields)

    def header(self, stamp: int, frame: str = "base") -> Any:
        """A header."""
        time = self.of("builtin_interfaces/msg/Time", stamp // 10**9, stamp % 10**9)
        sequence = (0,) if self.version == 1 else ()
        return self.of("std_msgs/msg/Header", *sequence, time, frame)

    def vector(self, x: float, y: float, z: float) -> Any:
        """A Vector3."""
        return self.of("geometry_msgs/msg/Vector3", x, y, z)

    def state(self, stamp: int, position, velocity=(), effort=()) -> Any:
        """A JointState."""
        lists = (np.array(v, dtype=np.float64) for v in (position, velocity, effort))
        return self.of("sensor_msgs/msg/JointState", self.header(stamp), JOINTS, *lists)

    def wrench(self, stamp: int, force, torque) -> Any:
        """A WrenchStamped."""
        pair = self.of("geometry_msgs/msg/Wrench", self.vector(*force), self.vector(*torque))
        return self.of("geometry_msgs/msg/WrenchStamped", self.header(stamp, "wrist"), pair)

    def transforms(self, stamp: int, child: str, position, xyzw) -> Any:
        """A TFMessage of one transform."""
        turn = self.of("geometry_msgs/msg/Quaternion", *xyzw)
        move = self.of("geometry_msgs/msg/Transform", self.vector(*position), turn)
        one = self.of("geometry_msgs/msg/TransformStamped", self.header(stamp), child, move)
        return self.of("tf2_msgs/msg/TFMessage", [one])

    def image(self, stamp: int, pixels: np.ndarray) -> Any:
        """An Image of RGB pixels, sent as bgr8."""
        height, width, _ = pixels.shape
        return self.of(
            "sensor_msgs/msg/Image",
            self.header(stamp, "camera"),
            height,
            width,
            "bgr8",
            0,
            3 * width,
            pixels[..., ::-1].ravel(),
        )


KINDS = {
    "/joint_states": "sensor_msgs/msg/JointState",
    "/joint_commands": "sensor_msgs/msg/JointState",
    "/ft": "geometry_msgs/msg/WrenchStamped",
    "/tf": "tf2_msgs/msg/TFMessage",
    "/tf_static": "tf2_msgs/msg/TFMessage",
    "/camera": "sensor_msgs/msg/Image",
}


def write(writer: Any, messages: Messages, n: int = 200) -> dict[str, np.ndarray]:
    """Write all kinds of messages; return what was put in."""
    rng = np.random.default_rng(0)
    truth = {
        "position": rng.normal(size=(n, 2)),
        "effort": rng.normal(size=(n, 2)),
        "wrench": rng.normal(size=(n, 6)),
        "pixels": rng.integers(0, 255, (3, 6, 8, 3), dtype=np.uint8),
    }
    serialize = "serialize_ros1" if messages.version == 1 else "serialize_cdr"
    with writer:
        connections = {
            topic: writer.add_connection(topic, kind, typestore=messages.store)
            for topic, kind in KINDS.items()
        }

        def put(topic: str, stamp: int, message: Any) -> None:
            data = getattr(messages.store, serialize)(message, KINDS[topic])
            writer.write(connections[topic], stamp + LATE, data)

        half = np.sqrt(0.5)
        put("/tf_static", START, messages.transforms(0, "tool", (0, 0, 0.1), (0, 0, 0, 1)))
        for k in range(n):
            stamp = START + k * STEP
            position, effort = truth["position"][k], truth["effort"][k]
            put("/joint_states", stamp, messages.state(stamp, position, (), effort))
            put("/joint_commands", stamp, messages.state(stamp, position + 1))
            put(
                "/ft", stamp, messages.wrench(stamp, truth["wrench"][k, :3], truth["wrench"][k, 3:])
            )
            put(
                "/tf",
                stamp,
                messages.transforms(stamp, "hand", (k * 0.01, 0, 0), (0, 0, half, half)),
            )
            if k < 3:
                put("/camera", stamp, messages.image(stamp, truth["pixels"][k]))
    return truth


WRITERS = {
    "ros1": lambda p: (1, Writer1(p)),
    "sqlite": lambda p: (2, Writer2(p, version=9, storage_plugin=StoragePlugin.SQLITE3)),
    "mcap": lambda p: (2, Writer2(p, version=9, storage_plugin=StoragePlugin.MCAP)),
}


@pytest.fixture
def bag(tmp_path: Path, stores):
    """A function that writes a bag and returns its path and what is in it."""

    def make(kind: str, *compression):
        path = tmp_path / ("robot.bag" if kind == "ros1" else "robot")
        version, writer = WRITERS[kind](path)
        writer.chunk_threshold = 4096
        if compression:
            writer.set_compression(*compression)
        return path, write(
            writer, Messages(version, stores[version]), 10 if kind != "ros1" else 200
        )

    return make


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_every_stream_of_a_bag(bag, kind: str) -> None:
    """States, commands, wrench, frames and pictures are what was written, at header stamps."""
    path, truth = bag(kind)
    capture = read_capture_log(path)
    n = len(truth["position"])
    time = START * 1e-9 + np.arange(n) * STEP * 1e-9
    states, control, wrench = capture.states, capture.control, capture.wrench
    assert states.joints == tuple(JOINTS)
    for stream in (states, control, wrench, capture.poses["hand"]):
        np.testing.assert_allclose(stream.time, time, atol=5e-7)
    np.testing.assert_array_equal(states.position, truth["position"])
    np.testing.assert_array_equal(states.effort, truth["effort"])
    assert np.isnan(states.velocity).all()
    np.testing.assert_array_equal(control.position, truth["position"] + 1)
    np.testing.assert_array_equal(states.command, control.position)
    np.testing.assert_array_equal(np.hstack([wrench.force, wrench.torque]), truth["wrench"])
    assert wrench.frame == "wrist"
    hand, tool = capture.poses["hand"], capture.poses["tool"]
    assert (hand.parent, hand.child, tool.time) == ("base", "hand", None)
    # A quarter turn about z takes x to y.
    np.testing.assert_allclose(hand.T_parent_child[3, :3, 0], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(hand.T_parent_child[:, 0, 3], np.arange(n) * 0.01)
    np.testing.assert_allclose(tool.T_parent_child[0, :3, 3], [0, 0, 0.1])
    pictures = capture.images["/camera"]
    np.testing.assert_allclose(pictures.times, time[:3], atol=5e-7)
    assert pictures.sizes.tolist() == [[8, 6]] * 3
    for picture in pictures.read([2, 0]):
        np.testing.assert_array_equal(picture.image, truth["pixels"][picture.index])
    assert [p.image.shape for p in pictures.read([1], "grey")] == [(6, 8)]


@pytest.mark.parametrize("fmt", ["BZ2", "LZ4"])
def test_compressed_and_cut_ros1_bag(bag, fmt: str) -> None:
    """Half of a bag whose index is lost gives about half the samples, right ones."""
    path, truth = bag("ros1", Writer1.CompressionFormat[fmt])
    np.testing.assert_array_equal(read_robot_log(path).position, truth["position"])
    data = path.read_bytes()
    path.write_bytes(data[: int(0.6 * len(data))])
    with pytest.warns(CaptureWarning, match=r"ends within a record.*messages up to there are used"):
        log = read_robot_log(path)
    n = len(log.time)
    assert 50 < n < 200
    np.testing.assert_array_equal(log.position, truth["position"][:n])


def test_unindexed_ros1_bag(bag) -> None:
    """A recorder that died wrote index_pos = 0 and no index; everything else is there."""
    path, truth = bag("ros1")
    data = path.read_bytes()
    at = data.index(b"index_pos=") + len(b"index_pos=")
    (index,) = struct.unpack_from("<Q", data, at)
    path.write_bytes((data[:at] + bytes(8) + data[at + 8 :])[:index])
    np.testing.assert_array_equal(read_robot_log(path).position, truth["position"])


def test_another_version_of_a_message_is_refused(bag) -> None:
    """ROS 1 tells versions apart by MD5."""
    path, _ = bag("ros1")
    md5 = b"3066dcd76a6cfaef579bd0f34173e9fd"
    path.write_bytes(path.read_bytes().replace(md5, b"0" * 32))
    with pytest.raises(InputError, match="another version of sensor_msgs/msg/JointState"):
        read_robot_log(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x00" * 500, "not '#ROSBAG"),
        (b"#ROSBAG V2.0\n" + b"\xff\xff\xff\xff" + bytes(99), "claims 4294967295 bytes"),
        (b"#ROSBAG V2.0\n", "no message can be read"),
    ],
)
def test_wrong_ros1_bags(tmp_path: Path, content: bytes, words: str) -> None:
    """Each is named, and says what is wrong; a header of 4 GB takes no memory."""
    path = tmp_path / "robot.bag"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_robot_log(path)


@pytest.mark.parametrize("mode", ["MESSAGE", "FILE"])
def test_compressed_sqlite_bag(bag, mode: str) -> None:
    """Zstd by message and by file."""
    path, truth = bag(
        "sqlite",
        CompressionMode[mode],
        CompressionFormat.ZSTD,
    )
    np.testing.assert_array_equal(read_robot_log(path).position, truth["position"])


def test_cut_sqlite_bag(tmp_path: Path, stores) -> None:
    """Without metadata and half its pages, a bag still gives the first half."""
    folder = tmp_path / "robot"
    writer = WRITERS["sqlite"](folder)[1]
    truth = write(writer, Messages(2, stores[2]), 300)
    (folder / "metadata.yaml").unlink()
    path = folder / "robot.db3"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.warns(CaptureWarning) as caught:
        log = read_robot_log(folder)
    said = " ".join(str(w.message) for w in caught)
    assert "metadata.yaml is missing" in said
    assert "messages up to there are used" in said
    n = len(log.time)
    assert 75 < n < 200
    np.testing.assert_array_equal(log.position, truth["position"][:n])
    path.write_bytes(data[:5000])
    with pytest.raises(InputError, match="no message can be read"):
        read_robot_log(path)


def test_sqlite_bag_of_a_crashed_recorder(bag, tmp_path: Path) -> None:
    """What stands only in the write-ahead log is read too, and nothing is written beside it."""
    path, truth = bag("sqlite")
    database = path / "robot.db3"
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("DELETE FROM messages WHERE id > 30")
    connection.commit()
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in ("robot.db3", "robot.db3-wal"):
        shutil.copy(path / name, crashed / name)
    connection.close()
    before = sorted(crashed.iterdir())
    log = read_robot_log(crashed / "robot.db3")
    assert sorted(crashed.iterdir()) == before
    assert 0 < len(log.time) < len(truth["position"])


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("other.db3", "lists other.db3, which is not in"),
        ("robot.txt", "which is not in|are read"),
        (None, "names no files"),
    ],
)
def test_wrong_metadata(bag, listed: str | None, words: str) -> None:
    """A file that is missing, of another kind, or none at all."""
    path, _ = bag("sqlite")
    text = (path / "metadata.yaml").read_text()
    text = text.replace("robot.db3", listed) if listed else "rosbag2_bagfile_information: 3\n"
    (path / "metadata.yaml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_robot_log(path)


def test_folders_and_databases_that_are_no_bags(tmp_path: Path) -> None:
    """An empty folder, a link out of the folder, another database."""
    folder = tmp_path / "robot"
    folder.mkdir()
    with pytest.raises(InputError, match="no bag"):
        read_robot_log(folder)
    (tmp_path / "outside.db3").write_bytes(b"x")
    (folder / "a.db3").symlink_to(tmp_path / "outside.db3")
    with pytest.raises(InputError, match="leads out of"):
        read_robot_log(folder)
    path = tmp_path / "robot.db3"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE secrets (a)")
    database.close()
    with pytest.raises(InputError, match="is no ROS 2 bag; it holds the tables"):
        read_robot_log(path)


def test_frames_without_poses_are_left_out(tmp_path: Path, stores) -> None:
    """One bad frame of the tree does not cost the others; a far one is none of our business."""
    path = tmp_path / "robot.bag"
    messages = Messages(1, stores[1])
    with Writer1(path) as writer:
        tf = writer.add_connection("/tf", KINDS["/tf"], typestore=messages.store)
        for child, x, w in (("map", 500.0, 1.0), ("lost", 0.0, 0.0)):
            message = messages.transforms(START, child, (x, 0, 0), (0, 0, 0, w))
            writer.write(tf, START, messages.store.serialize_ros1(message, KINDS["/tf"]))
    with pytest.warns(CaptureWarning, match=r"lost: pose 0.*stream is left out"):
        capture = read_capture_log(path)
    assert list(capture.poses) == ["map"]
    assert capture.poses["map"].T_parent_child[0, 0, 3] == 500


def test_named_topics(bag) -> None:
    """Topics by robot.yaml; one that is not there, or of another type, is named."""
    path, truth = bag("mcap")
    mapping = LogMapping.model_validate({"topics": {"states": "/joint_commands"}})
    log = read_robot_log(path, mapping)
    np.testing.assert_array_equal(log.position, truth["position"] + 1)
    for topic, words in (("/nothing", "has no message"), ("/ft", "holds geometry_msgs")):
        mapping = LogMapping.model_validate({"topics": {"states": topic}})
        with pytest.raises(InputError, match=words):
            read_robot_log(path, mapping)
