"""ROS 1 bags, by going through their records: one that was cut or never indexed is read too.

The library's reader needs the index at the end of the file, which a recorder writes last; messages
are decoded by the library.  Format: "Bag file format 2.0" of the ROS wiki.
"""

from __future__ import annotations

import bz2
import io
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from twinloop.capture.logs.messages import TYPES, Record, Wanted, normal_type
from twinloop.capture.logs.ros_types import bomb, checksum, decoder_of
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

MAGIC = b"#ROSBAG V2.0\n"
LARGEST = 256 * 2**20
"""Largest record or unpacked chunk, bytes: a damaged length must not fill the memory."""
MESSAGE, CHUNK, CONNECTION = 2, 5, 7
"""Kinds of records that are used; the others are index."""

Fields = dict[bytes, bytes]


class _Cut(Exception):  # noqa: N818 - it is how reading ends, not an error of the program
    """The bag ends within a record, or goes on with something that is none."""


def bag_records(path: Path, wanted: Wanted, warn: bool) -> Iterator[Record]:
    """Yield the wanted messages; see ``messages.Reader``.

    Raises:
        InputError: Not a single message can be read, or a wanted type is another version of it.
        MachineError: ``rosbags`` is not installed.
    """
    connections: dict[int, tuple[str, str, Callable[[bytes], Any] | None]] = {}
    count, first, last, reason = 0, 0, 0, ""
    with path.open("rb") as stream:
        try:
            for fields, data in _records(stream):
                number = _integer(fields, b"conn")
                if _integer(fields, b"op") == CONNECTION:
                    if number not in connections:
                        connections[number] = _connection(path, fields, data, wanted)
                    continue
                if number not in connections:
                    raise _Cut(f"a message is of connection {number}, which is not declared")
                second, nanosecond = struct.unpack("<II", fields.get(b"time", b""))
                last = second * 1_000_000_000 + nanosecond
                first = first if count else last
                count += 1
                topic, kind, decode = connections[number]
                if decode is not None:
                    yield Record(
                        topic,
                        kind,
                        last,
                        lambda decode=decode, data=data: decode(data),  # type: ignore[misc]
                    )
        except (_Cut, struct.error, UnicodeDecodeError) as error:
            reason = str(error)
    if count == 0:
        raise InputError(
            f"{path} ({path.stat().st_size} bytes): no message can be read"
            f"{f' ({reason})' if reason else ''}. It is empty, no ROS 1 bag, or damaged from the "
            "start; is there an .orig.active or second part of the recording?"
        )
    if reason and warn:
        warnings.warn(
            f"{path}: the bag is damaged ({reason}); the {count} messages up to there are used, "
            f"{(last - first) * 1e-9:.2f} s.",
            CaptureWarning,
            stacklevel=2,
        )


def _connection(
    path: Path, fields: Fields, data: bytes, wanted: Wanted
) -> tuple[str, str, Callable[[bytes], Any] | None]:
    topic = fields.get(b"topic", b"").decode()
    description = _fields(data)
    kind = normal_type(description.get(b"type", b"").decode())
    if not wanted(topic, kind) or kind not in TYPES:
        return topic, kind, None
    said = description.get(b"md5sum", b"").decode()
    if said not in ("*", expected := checksum(kind)):
        raise InputError(
            f"{path}: {topic} holds another version of {kind} (MD5 {said}, expected {expected})."
        )
    return topic, kind, decoder_of(kind, ros1=True)


def _records(stream: BinaryIO) -> Iterator[tuple[Fields, bytes]]:
    """Yield connections and messages, those of a cut chunk too.

    Raises:
        _Cut: The file ends within a record.
    """
    if stream.read(len(MAGIC)) != MAGIC:
        raise _Cut("the first bytes are not '#ROSBAG V2.0'")
    sizes = [0, 0]
    while (record := _record(stream)) is not None:
        fields, data, whole = record
        kind = _integer(fields, b"op")
        if kind == CHUNK:
            unpacked = _unpacked(fields.get(b"compression", b""), data)
            sizes = [sizes[0] + len(data), sizes[1] + len(unpacked)]
            if fault := bomb(*sizes):
                raise _Cut(fault)
            inner = io.BytesIO(unpacked)
            while (part := _record(inner)) is not None and part[2]:
                yield part[0], part[1]
        elif kind in (CONNECTION, MESSAGE) and whole:
            yield fields, data
        if not whole:
            raise _Cut("it ends within a record")


def _record(stream: BinaryIO) -> tuple[Fields, bytes, bool] | None:
    """Header and data of the next record, and whether they are whole; None at the end."""
    head, whole = _sized(stream)
    if not head and whole:
        return None
    if not whole:
        return {}, b"", False
    data, whole = _sized(stream)
    return _fields(head), data, whole


def _sized(stream: BinaryIO) -> tuple[bytes, bool]:
    """Bytes after a 32-bit length, and whether they are all there."""
    length_bytes = stream.read(4)
    if not length_bytes:
        return b"", True
    if len(length_bytes) < 4:
        return b"", False
    (length,) = struct.unpack("<I", length_bytes)
    if length > LARGEST:
        raise _Cut(f"a record claims {length} bytes")
    data = stream.read(length)
    return data, len(data) == length


def _fields(head: bytes) -> Fields:
    """Fields of a record's header: a 32-bit length before each ``name=value``."""
    fields, at = {}, 0
    while at + 4 <= len(head):
        (length,) = struct.unpack_from("<I", head, at)
        name, _, value = head[at + 4 : at + 4 + length].partition(b"=")
        fields[name] = value
        at += 4 + length
    return fields


def _integer(fields: Fields, name: bytes) -> int:
    """A field as little-endian number; -1 where it is missing."""
    return int.from_bytes(fields[name], "little") if name in fields else -1


def _unpacked(compression: bytes, data: bytes) -> bytes:
    """Records of a chunk, which may be cut; at most :data:`LARGEST` bytes."""
    if compression == b"bz2":
        try:
            return bz2.BZ2Decompressor().decompress(data, max_length=LARGEST)
        except OSError as error:
            raise _Cut(f"a chunk cannot be unpacked: {error}") from error
    if compression == b"lz4":
        from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]

        try:
            return bytes(LZ4FrameDecompressor().decompress(data, max_length=LARGEST))
        except RuntimeError as error:
            raise _Cut(f"a chunk cannot be unpacked: {error}") from error
    if compression not in (b"none", b""):
        raise _Cut(f"a chunk is packed by {compression!r}, not by bz2 or lz4")
    return data
