"""ROS messages of any container, gathered by topic and turned into streams.

Times are header stamps: the time of measurement on the robot's clock.  Arrival and log times are
later by an unknown, changing delay and are used only where a publisher fills in no stamp.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.logs.image_topic import ImageTopic, Picked
from twinloop.capture.logs.joint_table import LATEST, JointTable, believed, ordering, seconds
from twinloop.capture.logs.mapping import LogMapping
from twinloop.capture.logs.pose_stream import checked_poses, from_quaternions
from twinloop.capture.logs.streams import Capture, ControlLog, PoseStream, RobotLog, WrenchLog
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]

STATES = "/joint_states"
COMMANDS = "/joint_commands"
JOINTS = "sensor_msgs/msg/JointState"
TRANSFORMS = ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage")
WRENCHES = "geometry_msgs/msg/WrenchStamped"
POSES = "geometry_msgs/msg/PoseStamped"
IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
TYPES = (JOINTS, *TRANSFORMS, WRENCHES, POSES, *IMAGES)
"""Message types that are read."""
MOST_MESSAGES = 2_000_000
"""Most messages that are gathered of one log: 10 minutes of three topics at 1 kHz."""


@dataclass(frozen=True, slots=True)
class Record:
    """One message of a container, not yet decoded."""

    topic: str
    """Topic."""
    type: str
    """Message type as ROS 2 writes it: ``sensor_msgs/msg/JointState``."""
    arrival: int
    """When the recorder got it, ns."""
    decode: Callable[[], Any]
    """Decodes it; attributes as in ROS, ``header.stamp`` with ``sec`` and ``nanosec``."""


Wanted = Callable[[str, str], bool]
"""Whether messages of a topic and type are wanted; asked for every topic of the container."""
Reader = Callable[[Wanted, bool], Iterator[Record]]
"""Yields the wanted messages in file order, and warns of damage if the second argument is true."""


def normal_type(name: str) -> str:
    """Message type as ROS 2 writes it, of ``sensor_msgs/JointState`` too."""
    parts = name.split("/")
    return f"{parts[0]}/msg/{parts[1]}" if len(parts) == 2 else name


def stamp_of(message: Any, where: str) -> int:
    """Header stamp of a message, ns.

    Raises:
        InputError: It is before 1970 or after all clocks, or has a second's worth of nanoseconds or
            more.
    """
    stamp = message.header.stamp
    second, nanosecond = int(stamp.sec), int(stamp.nanosec)
    if not 0 <= second * 10**9 <= LATEST or not 0 <= nanosecond < 1_000_000_000:
        raise InputError(f"{where}: the header stamp is {second} s + {nanosecond} ns; damaged?")
    return second * 1_000_000_000 + nanosecond


class _Values:
    """Stamps and rows of numbers of one topic."""

    def __init__(self) -> None:
        self.stamps: list[int] = []
        self.arrivals: list[int] = []
        self.rows = array("d")
        self.width = 0
        self.frame = ""
        self.parent = ""

    def add(self, stamp: int, arrival: int, row: tuple[float, ...]) -> None:
        self.stamps.append(stamp)
        self.arrivals.append(arrival)
        self.rows.extend(row)
        self.width = len(row)

    def table(self) -> Array:
        """Rows (n, k) in the order of arrival."""
        return np.array(self.rows, dtype=np.float64).reshape(-1, max(self.width, 1))

    def arrays(self, path: Path, what: str) -> tuple[Array, Array]:
        """Time (n,) s and rows (n, k), ordered by stamp."""
        stamps = believed(path, what, self.stamps, self.arrivals)
        order = ordering(path, what, stamps)
        return seconds(stamps[order]), self.table()[order]


class Gathered:
    """Messages of the known types, by topic."""

    def __init__(self, path: Path, mapping: LogMapping) -> None:
        self.path, self.mapping = path, mapping
        self.types: dict[str, str] = {}
        self.count = 0
        self.joints: dict[str, JointTable] = {}
        self.transforms: dict[str, _Values] = {}
        self.fixed: dict[str, _Values] = {}
        self.wrenches: dict[str, _Values] = {}
        self.poses: dict[str, _Values] = {}
        self.images: dict[str, list[Picked]] = {}

    def add(self, record: Record) -> None:
        """Add a message.

        Raises:
            InputError: It cannot be decoded, or contradicts the earlier ones; names the topic.
        """
        self.types[record.topic] = record.type
        self.count += 1
        if self.count > MOST_MESSAGES:
            raise InputError(
                f"{self.path}: holds over {MOST_MESSAGES} messages of joints, forces and frames, "
                "more than is read of one log. Cut it to the time of the capture, or leave out "
                "topics that are not needed."
            )
        if record.type not in TYPES:
            return
        where = f"{self.path}: {record.topic}: message at {record.arrival * 1e-9:.3f} s"
        message = decoded(record, where)
        try:
            self._add(record, message, where)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            # Messages are defined in the file itself, so that they may lack any field.
            raise InputError(
                f"{where} is no {record.type} as ROS defines it ({error}); the file is damaged, or "
                "the message type was changed."
            ) from error

    def _add(self, record: Record, message: Any, where: str) -> None:
        if record.type in TRANSFORMS:
            self._add_transforms(record, message, where)
            return
        stamp = stamp_of(message, where)
        if record.type == JOINTS:
            table = self.joints.setdefault(record.topic, JointTable(self.path, record.topic))
            table.add(message, stamp, record.arrival)
        elif record.type == WRENCHES:
            values = self.wrenches.setdefault(record.topic, _Values())
            values.frame = message.header.frame_id
            force, torque = message.wrench.force, message.wrench.torque
            values.add(stamp, record.arrival, (*_xyz(force), *_xyz(torque)))
        elif record.type == POSES:
            values = self.poses.setdefault(record.topic, _Values())
            values.parent = message.header.frame_id
            row = (*_xyz(message.pose.position), *_wxyz(message.pose.orientation))
            values.add(stamp, record.arrival, row)
        else:
            picked = Picked.of(message, stamp, record.arrival, where)
            self.images.setdefault(record.topic, []).append(picked)

    def _add_transforms(self, record: Record, message: Any, where: str) -> None:
        fixed = record.topic.endswith("tf_static")
        for transform in message.transforms:
            parent = transform.header.frame_id.removeprefix("/")
            child = transform.child_frame_id.removeprefix("/")
            values = (self.fixed if fixed else self.transforms).setdefault(child, _Values())
            if values.rows and values.parent != parent:
                raise InputError(
                    f"{where}: frame {child!r} has the parent {parent!r}, earlier "
                    f"{values.parent!r}; a tree of frames is expected."
                )
            values.parent = parent
            values.add(
                stamp_of(transform, where),
                record.arrival,
                (*_xyz(transform.transform.translation), *_wxyz(transform.transform.rotation)),
            )

    def topic(self, kind: str, found: Iterable[str], default: str | None = None) -> str | None:
        """Topic of a kind: as ``robot.yaml`` says, else the default one, else the only one.

        Raises:
            InputError: The named topic is not there, or several are possible.
        """
        candidates = sorted(found)
        named: str | None = getattr(self.mapping.topics, kind)
        if named is not None:
            if named not in candidates:
                had = f"holds {self.types[named]}" if named in self.types else "has no message"
                raise InputError(
                    f"{self.path}: robot.yaml names the topic {named} for {kind}, which {had}; "
                    f"topics that fit: {candidates}, all: {sorted(self.types)}."
                )
            return named
        if default in candidates:
            return default
        if len(candidates) > 1:
            raise InputError(
                f"{self.path}: {candidates} all could be the {kind}; say which in robot.yaml: "
                f"`topics: {{{kind}: {candidates[0]}}}`."
            )
        return candidates[0] if candidates else None

    def states(self) -> tuple[RobotLog | None, ControlLog | None]:
        """Measured log and control log."""
        named = self.mapping.topics
        usual = COMMANDS if COMMANDS in self.joints and named.states != COMMANDS else None
        commands = named.commands or usual
        if commands is not None:
            self.topic("commands", self.joints, COMMANDS)
        others = [topic for topic in self.joints if topic != commands]
        states = self.topic("states", others, STATES)
        if states is None:
            return None, None
        joints = self.joints[states].joints
        time, (position, velocity, effort) = self.joints[states].arrays(joints)
        control = None
        if commands is not None:
            issued, (target, speed, force) = self.joints[commands].arrays(joints)
            delay = self.mapping.command_delay
            control = ControlLog(joints, issued, target, speed, force, delay=delay)
        command = control.held(time) if control else np.full_like(position, np.nan)
        return RobotLog(joints, time, position, velocity, effort, command), control

    def wrench(self) -> WrenchLog | None:
        """The force-torque sensor's readings."""
        topic = self.topic("wrench", self.wrenches)
        if topic is None:
            return None
        time, rows = self.wrenches[topic].arrays(self.path, topic)
        if not np.isfinite(rows).all():
            raise InputError(f"{self.path}: {topic}: a force or torque is NaN or infinite.")
        return WrenchLog(time, rows[:, :3], rows[:, 3:], self.wrenches[topic].frame)

    def pose_streams(self) -> dict[str, PoseStream]:
        """Streams by child frame or, of stamped poses, by topic.

        A stream that holds no poses is left out with a warning: a tree has many frames that nobody
        asks for.  ROS says metres, so that distances are not doubted.
        """
        streams = {}
        # The latest message of a static transform holds for all times.
        found: list[tuple[str, str, _Values, Array | None, Array]] = [
            (child, child, v, None, v.table()[-1:]) for child, v in sorted(self.fixed.items())
        ]
        for child, v in sorted(self.transforms.items()):
            found.append((child, child, v, *v.arrays(self.path, child)))
        for topic, v in sorted(self.poses.items()):
            found.append((topic, "", v, *v.arrays(self.path, topic)))
        for name, child, values, time, rows in found:
            try:
                T = checked_poses(from_quaternions(rows), self.path, name, np.inf)
            except InputError as error:
                warnings.warn(f"{error} The stream is left out.", CaptureWarning, stacklevel=2)
                continue
            streams[name] = PoseStream(time, T, values.parent, child)
        return streams


def decoded(record: Record, where: str) -> Any:
    """The message.

    Raises:
        InputError: It is damaged.
    """
    try:
        return record.decode()
    except InputError:
        raise
    except Exception as error:  # Decoders meet damaged bytes with errors of any kind.
        raise InputError(
            f"{where} cannot be decoded as {record.type} ({type(error).__name__}: {error}); the "
            "file is damaged, or the message type was changed."
        ) from error


def _xyz(vector: Any) -> tuple[float, float, float]:
    return float(vector.x), float(vector.y), float(vector.z)


def _wxyz(quaternion: Any) -> tuple[float, float, float, float]:
    q = quaternion
    return float(q.w), float(q.x), float(q.y), float(q.z)


def capture_of(
    path: Path,
    mapping: LogMapping,
    records: Reader,
    only_joints: bool = False,
) -> Capture:
    """Gather the messages of a file or bag.

    Args:
        path: The file or bag.
        mapping: What ``robot.yaml`` says.
        records: Reads the messages.
        only_joints: Leave out all but joint states.

    Raises:
        InputError: As :class:`Gathered`.
    """
    gathered = Gathered(path, mapping)

    def wanted(topic: str, kind: str) -> bool:
        gathered.types.setdefault(topic, kind)
        return kind == JOINTS if only_joints else kind in TYPES

    for record in records(wanted, True):
        gathered.add(record)
    for kind, topic in mapping.topics.model_dump().items():
        if topic in gathered.types and gathered.types[topic] not in TYPES:
            raise InputError(
                f"{path}: {topic}, named for {kind} in robot.yaml, holds {gathered.types[topic]}; "
                f"these types are read: {', '.join(TYPES)}."
            )
    states, control = gathered.states()
    if only_joints:
        if states is None:
            raise InputError(
                f"{path}: holds no message on {mapping.topics.states or STATES} (topics: "
                f"{sorted(gathered.types)}). Record that topic, or name yours in robot.yaml: "
                "`topics: {states: ...}`."
            )
        return Capture(states, control)
    images = {}
    chosen = mapping.topics.image
    if chosen is not None:
        gathered.topic("image", gathered.images)
    for topic, picked in sorted(gathered.images.items()):
        if chosen in (None, topic):
            again = _again(records, topic)
            images[topic] = ImageTopic.of(path, topic, picked, again)
    return Capture(states, control, gathered.wrench(), gathered.pose_streams(), images)


def _again(records: Reader, topic: str) -> Callable[[], Iterator[Callable[[], Any]]]:
    """Goes through the messages of a topic once more, without the warnings of the first pass."""

    def messages() -> Iterator[Callable[[], Any]]:
        for record in records(lambda name, kind: name == topic and kind in IMAGES, False):
            yield record.decode

    return messages
