"""MCAP files, whole or cut: messages of ROS 2 (CDR), ROS 1 and JSON, without ROS."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from mcap.exceptions import EndOfFile, McapError
from mcap.opcode import Opcode
from mcap.records import Channel, McapRecord, Message, Schema
from mcap.stream_reader import StreamReader
from mcap_ros2.decoder import DecoderFactory

from twinloop.capture.logs.messages import Record, Wanted, normal_type
from twinloop.capture.logs.ros_types import bomb, decoder_of
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

MAGIC = b"\x89MCAP0\r\n"
LARGEST = 256 * 2**20
"""Largest MCAP record or unpacked chunk, bytes: a damaged length must not fill the memory."""

Decode = Callable[[bytes], Any]


def mcap_records(path: Path, wanted: Wanted, warn: bool) -> Iterator[Record]:
    """Yield the wanted messages; see ``messages.Reader``.

    Raises:
        InputError: Not a single message can be read, or a wanted topic's encoding is unknown.
    """
    decoders: dict[int, Decode | None] = {}
    kinds: dict[int, str] = {}
    factory = DecoderFactory()
    for schema, channel, message in _messages(path, warn):
        if channel.id not in kinds:
            kinds[channel.id] = normal_type(schema.name) if schema else "(no schema)"
            chosen = wanted(channel.topic, kinds[channel.id])
            decoders[channel.id] = _decoder(path, factory, schema, channel) if chosen else None
        decode = decoders[channel.id]
        if decode is not None:
            yield Record(
                channel.topic,
                kinds[channel.id],
                message.log_time,
                lambda decode=decode, data=message.data: decode(data),  # type: ignore[misc]
            )


def _decoder(
    path: Path, factory: DecoderFactory, schema: Schema | None, channel: Channel
) -> Decode | None:
    encoding = channel.message_encoding
    if schema is not None:
        kind = normal_type(schema.name)
        if encoding == "json":
            return _from_json
        if encoding == "cdr" and schema.encoding == "ros2msg":
            try:
                return factory.decoder_for(encoding, schema)  # type: ignore[no-any-return]
            except Exception as error:  # Its parser meets damaged text with errors of any kind.
                raise InputError(
                    f"{path}: {channel.topic}: the definition of {kind} in the file cannot be "
                    f"parsed ({type(error).__name__}: {error}); the file is damaged."
                ) from error
        if encoding == "cdr" and schema.encoding in ("ros2idl", "omgidl"):
            return decoder_of(kind, ros1=False)
        if encoding == "ros1":
            return decoder_of(kind, ros1=True)
    raise InputError(
        f"{path}: {channel.topic} holds {schema.name if schema else 'no schema'} as {encoding!r} "
        f"(definition as {schema.encoding if schema else None!r}); expected 'cdr' (ROS 2), 'ros1' "
        "or 'json'."
    )


def _from_json(data: bytes) -> Any:
    """A message in JSON, as the Foxglove bridge writes it; bytes are base64."""
    message = json.loads(data, object_hook=lambda fields: SimpleNamespace(**fields))
    for part in (message, *getattr(message, "transforms", ())):
        stamp = getattr(getattr(part, "header", None), "stamp", None)
        if stamp is not None and not hasattr(stamp, "nanosec"):
            stamp.nanosec = stamp.nsec
    for kind in ("position", "velocity", "effort"):
        if hasattr(message, "name") and not hasattr(message, kind):
            setattr(message, kind, ())
    if isinstance(getattr(message, "data", None), str):
        message.data = base64.b64decode(message.data)
    return message


def _messages(path: Path, warn: bool) -> Iterator[tuple[Schema | None, Channel, Message]]:
    """Yield schema, channel and message of every message, up to where the file is cut."""
    schemas: dict[int, Schema] = {}
    channels: dict[int, Channel] = {}
    count, first, last = 0, 0, 0
    with path.open("rb") as stream:
        try:
            for record in _records(stream):
                if isinstance(record, Schema):
                    schemas[record.id] = record
                elif isinstance(record, Channel):
                    channels[record.id] = record
                elif isinstance(record, Message):
                    channel = channels[record.channel_id]
                    first = first if count else record.log_time
                    count, last = count + 1, record.log_time
                    yield schemas.get(channel.schema_id), channel, record
            return
        except _Cut as error:
            reason = str(error)
        except (McapError, KeyError, ValueError, OverflowError, struct.error) as error:
            reason = f"{type(error).__name__} {error}"
    if count == 0:
        raise InputError(
            f"{path} ({path.stat().st_size} bytes): no message can be read ({reason}). It is no "
            "MCAP file, or damaged from the start; use the CSV log if there is one."
        )
    if warn:
        warnings.warn(
            f"{path}: the file is damaged ({reason}); the {count} messages up to there are used, "
            f"{(last - first) * 1e-9:.2f} s.",
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
    packed = unpacked = 0
    while True:
        head = stream.read(9)
        if len(head) < 9:
            raise _Cut("it ends without a footer")
        opcode, length = struct.unpack("<BQ", head)
        if length > LARGEST:
            raise _Cut(f"a record claims {length} bytes")
        body = stream.read(length)
        if opcode == Opcode.CHUNK:
            records = _unpacked(body)
            packed, unpacked = packed + length, unpacked + len(records)
            if fault := bomb(packed, unpacked):
                raise _Cut(fault)
            yield from _inner(records)
        elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.MESSAGE) and len(body) == length:
            yield from _inner(head + body)
        if len(body) < length:
            raise _Cut("it ends within a record")
        if opcode == Opcode.FOOTER:
            return


def _inner(data: bytes) -> Iterator[McapRecord]:
    """Yield the whole records of ``data``.

    A chunk within a chunk, which nobody writes, is not unpacked: it could go on without end.
    """
    with contextlib.suppress(EndOfFile, struct.error):
        yield from StreamReader(io.BytesIO(data), skip_magic=True, emit_chunks=True).records


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
