"""Read a robot's log, from MCAP (ROS 2 ``JointState``, no ROS needed) or from CSV.

Times are header stamps: the time of measurement on the robot's clock.  Arrival and log times are
later by an unknown, changing delay and are not used.
"""

from __future__ import annotations

import contextlib
import csv
import io
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from mcap.exceptions import EndOfFile, McapError
from mcap.opcode import Opcode
from mcap.records import Channel, McapRecord, Message, Schema
from mcap.stream_reader import StreamReader
from mcap_ros2.decoder import DecoderFactory
from numpy.typing import NDArray

from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]

STATES = "/joint_states"
COMMANDS = "/joint_commands"
KINDS = ("position", "velocity", "effort", "command")
MAGIC = b"\x89MCAP0\r\n"
LARGEST = 256 * 2**20
"""Largest MCAP record or unpacked chunk, bytes: a damaged length must not fill the memory."""


@dataclass(frozen=True)
class RobotLog:
    """What a robot reported; NaN where it said nothing.

    Units are m or rad, m/s or rad/s, N or N m, by the joint's kind.
    """

    joints: tuple[str, ...]
    """Joint names."""
    time: Array
    """Time of each sample on the robot's clock, (sample,) s, strictly increasing."""
    position: Array
    """(sample, joint)."""
    velocity: Array
    """(sample, joint)."""
    effort: Array
    """(sample, joint)."""
    command: Array
    """Commanded position in force at the sample, (sample, joint)."""


def read_robot_log(path: Path) -> RobotLog:
    """Read a ``.mcap`` or ``.csv`` robot log.

    A file that was cut (power loss) is read as far as it goes, with a :class:`CaptureWarning` that
    says how much.

    Raises:
        InputError: The file is missing or empty, of another kind, holds no joint states, or its
            stamps or joint names are inconsistent.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such robot log. Check the capture folder's layout.")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the robot log has 0 bytes. Copy it again from the robot.")
    if path.suffix == ".mcap":
        return _read_mcap(path)
    if path.suffix == ".csv":
        return _read_csv(path)
    raise InputError(f"{path}: a robot log ends in .mcap or .csv, not {path.suffix!r}.")


def _read_mcap(path: Path) -> RobotLog:
    states, commands = _JointTable(path, STATES), _JointTable(path, COMMANDS)
    factory = DecoderFactory()
    decoders: dict[int, Any] = {}
    topics: set[str] = set()
    for schema, channel, message in _messages(path):
        topics.add(channel.topic)
        if channel.topic not in (STATES, COMMANDS):
            continue
        if channel.id not in decoders:
            decoder = factory.decoder_for(channel.message_encoding, schema)
            if decoder is None or schema is None or not schema.name.endswith("JointState"):
                raise InputError(
                    f"{path}: {channel.topic} holds {schema.name if schema else 'no schema'} as "
                    f"{channel.message_encoding!r}; expected sensor_msgs/msg/JointState as 'cdr'."
                )
            decoders[channel.id] = decoder
        table = states if channel.topic == STATES else commands
        table.add(decoders[channel.id](message.data))
    if not states.stamps:
        raise InputError(
            f"{path}: holds no message on {STATES} (topics: {sorted(topics)}). Record that topic, "
            "or rename yours."
        )
    joints = states.joints
    time, (position, velocity, effort) = states.arrays(joints)
    command = np.full_like(position, np.nan)
    if commands.stamps:
        command_time, (target, _, _) = commands.arrays(joints)
        # A command holds until the next one.
        last = np.searchsorted(command_time, time, side="right") - 1
        command[last >= 0] = target[last[last >= 0]]
    return RobotLog(joints, time * 1e-9, position, velocity, effort, command)


def _messages(path: Path) -> Iterator[tuple[Schema | None, Channel, Message]]:
    """Yield schema, channel and message of every message, up to where the file is cut."""
    schemas: dict[int, Schema] = {}
    channels: dict[int, Channel] = {}
    count = 0
    with path.open("rb") as stream:
        try:
            for record in _records(stream):
                if isinstance(record, Schema):
                    schemas[record.id] = record
                elif isinstance(record, Channel):
                    channels[record.id] = record
                elif isinstance(record, Message):
                    channel = channels[record.channel_id]
                    count += 1
                    yield schemas.get(channel.schema_id), channel, record
            return
        except _Cut as error:
            reason = str(error)
        except (McapError, KeyError, ValueError, struct.error) as error:
            reason = f"{type(error).__name__} {error}"
    if count == 0:
        raise InputError(
            f"{path} ({path.stat().st_size} bytes): no message can be read ({reason}). It is no "
            "MCAP file, or damaged from the start; use the CSV log if there is one."
        )
    warnings.warn(
        f"{path}: the file is damaged ({reason}); the {count} messages up to there are used.",
        CaptureWarning,
        stacklevel=2,
    )


class _Cut(Exception):  # noqa: N818 - it is how reading ends, not an error of the program
    """The file ends before its footer, or goes on with something that is no MCAP."""


def _records(stream: BinaryIO) -> Iterator[McapRecord]:
    """Yield schemas, channels and messages; what is whole of a cut chunk is yielded too.

    The library's own reader gives up a cut chunk, which for a log of a minute is everything.

    Raises:
        _Cut: There is no footer.
    """
    if stream.read(8) != MAGIC:
        raise _Cut("the first 8 bytes are not those of MCAP")
    while True:
        head = stream.read(9)
        if len(head) < 9:
            raise _Cut("it ends without a footer")
        opcode, length = struct.unpack("<BQ", head)
        if length > LARGEST:
            raise _Cut(f"a record claims {length} bytes")
        body = stream.read(length)
        if opcode == Opcode.CHUNK:
            yield from _inner(_unpacked(body))
        elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.MESSAGE) and len(body) == length:
            yield from _inner(head + body)
        if len(body) < length:
            raise _Cut("it ends within a record")
        if opcode == Opcode.FOOTER:
            return


def _inner(data: bytes) -> Iterator[McapRecord]:
    """Yield the whole records of ``data``."""
    with contextlib.suppress(EndOfFile, struct.error):
        yield from StreamReader(io.BytesIO(data), skip_magic=True).records


def _unpacked(chunk: bytes) -> bytes:
    """Records of a chunk, which may be cut; at most :data:`LARGEST` bytes."""
    if len(chunk) < 32:
        return b""
    (name_length,) = struct.unpack_from("<I", chunk, 28)
    start = 32 + name_length + 8
    compression, data = chunk[32 : 32 + name_length], chunk[start:]
    if compression == b"zstd":
        import zstandard

        try:
            return bytes(zstandard.ZstdDecompressor().stream_reader(data).read(LARGEST))
        except zstandard.ZstdError as error:
            raise _Cut(f"a chunk cannot be unpacked: {error}") from error
    if compression == b"lz4":
        from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]

        try:
            return bytes(LZ4FrameDecompressor().decompress(data, max_length=LARGEST))
        except RuntimeError as error:
            raise _Cut(f"a chunk cannot be unpacked: {error}") from error
    if compression:
        raise _Cut(f"a chunk is packed by {compression!r}, not by zstd or lz4")
    return data


class _JointTable:
    """Collects the messages of one topic."""

    def __init__(self, path: Path, topic: str) -> None:
        self.path, self.topic = path, topic
        self.joints: tuple[str, ...] = ()
        self.stamps: list[int] = []
        self.rows: tuple[list[Any], list[Any], list[Any]] = ([], [], [])

    def add(self, message: Any) -> None:
        names = tuple(message.name)
        if not self.joints:
            self.joints = names
            if len(set(names)) != len(names) or not names:
                raise InputError(f"{self.path}: {self.topic}: joint names are not unique: {names}.")
        elif names != self.joints:
            raise InputError(
                f"{self.path}: {self.topic}: message {len(self.stamps)} names joints {names}, "
                f"earlier ones {self.joints}. Record one robot per topic."
            )
        nothing = (np.nan,) * len(names)
        for rows, kind in zip(self.rows, ("position", "velocity", "effort"), strict=True):
            values = tuple(getattr(message, kind))
            if values and len(values) != len(names):
                raise InputError(
                    f"{self.path}: {self.topic}: message {len(self.stamps)} has {len(values)} "
                    f"values of {kind}, expected {len(names)} or none."
                )
            rows.append(values or nothing)
        stamp = message.header.stamp
        self.stamps.append(int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec))

    def arrays(self, joints: tuple[str, ...]) -> tuple[Array, list[Array]]:
        """Stamps (n,) ns and the three arrays (n, joint) in the order of ``joints``."""
        missing = sorted(set(joints) - set(self.joints))
        if missing:
            raise InputError(f"{self.path}: {self.topic}: joints {missing} are missing.")
        order = [self.joints.index(joint) for joint in joints]
        stamps = np.array(self.stamps, dtype=np.int64)
        values = [np.array(rows, dtype=np.float64)[:, order] for rows in self.rows]
        stamps, values = _ordered(self.path, self.topic, stamps, values)
        return stamps.astype(np.float64), values


def _read_csv(path: Path) -> RobotLog:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV text: {error}") from error
    header = [name.strip() for name in rows[0]] if rows else []
    prefixes = [f"{kind}_" for kind in KINDS]
    joints = tuple(n.removeprefix("position_") for n in header if n.startswith("position_"))
    unknown = [n for n in header if n != "time" and not n.startswith(tuple(prefixes))]
    if "time" not in header or not joints or unknown:
        raise InputError(
            f"{path}: columns must be time, position_<joint> and, if known, velocity_, effort_ and "
            f"command_<joint>; found {header[:6]}{' ...' if len(header) > 6 else ''}"
            f"{f', not understood: {unknown[:5]}' if unknown else ''}."
        )
    body = [row for row in rows[1:] if row]
    if body and len(body[-1]) != len(header):
        warnings.warn(
            f"{path}: the last line is cut; {len(body) - 1} samples up to there are used.",
            CaptureWarning,
            stacklevel=2,
        )
        body = body[:-1]
    for number, row in enumerate(body):
        if len(row) != len(header):
            raise InputError(
                f"{path}: line {number + 2} has {len(row)} fields, the header has {len(header)}."
            )
    if not body:
        raise InputError(f"{path}: holds a header but no sample.")
    try:
        table = np.array([[float(field or "nan") for field in row] for row in body])
    except ValueError as error:
        raise InputError(f"{path}: a field is no number: {error}.") from error
    column = {name: i for i, name in enumerate(header)}
    arrays = []
    for kind in KINDS:
        values = np.full((len(table), len(joints)), np.nan)
        for j, joint in enumerate(joints):
            if (name := f"{kind}_{joint}") in column:
                values[:, j] = table[:, column[name]]
        arrays.append(values)
    stamps = table[:, column["time"]]
    if not np.isfinite(stamps).all():
        raise InputError(
            f"{path}: line {int(np.flatnonzero(~np.isfinite(stamps))[0]) + 2}: time is missing."
        )
    # Whole nanoseconds, as in an MCAP file, so that both logs give the same times.
    nanoseconds = np.rint(stamps * 1e9).astype(np.int64)
    nanoseconds, arrays = _ordered(path, "time", nanoseconds, arrays)
    return RobotLog(joints, nanoseconds.astype(np.float64) * 1e-9, *arrays)


def _ordered(
    path: Path, what: str, stamps: NDArray[np.int64], values: list[Array]
) -> tuple[NDArray[np.int64], list[Array]]:
    """Sort by stamp; drop repeated stamps, refuse a clock that jumps back a lot."""
    back = np.diff(stamps)
    if len(back) and back.min() < -1_000_000_000:
        worst = int(back.argmin())
        raise InputError(
            f"{path}: {what}: the clock jumps back by {-back[worst] * 1e-9:.1f} s after sample "
            f"{worst}. Are these two recordings in one file?"
        )
    order = np.argsort(stamps, kind="stable")
    keep = order[np.append(True, np.diff(stamps[order]) > 0)]
    if len(keep) < len(stamps):
        warnings.warn(
            f"{path}: {what}: {len(stamps) - len(keep)} of {len(stamps)} samples repeat a stamp "
            "and are dropped.",
            CaptureWarning,
            stacklevel=2,
        )
    return stamps[keep], [v[keep] for v in values]
