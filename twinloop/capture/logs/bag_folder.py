"""ROS 2 bags: a folder of MCAP or SQLite files, or one ``.db3`` file; whole, cut or not indexed."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twinloop.capture.camera_yaml import read_mapping
from twinloop.capture.files import inside, list_files, room_for, unpacking_error
from twinloop.capture.logs.mcap_log import mcap_records
from twinloop.capture.logs.messages import TYPES, Record, Wanted, normal_type
from twinloop.capture.logs.ros_types import decoder_of
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

LARGEST = 256 * 2**20
"""Largest message, bytes."""
METADATA = "metadata.yaml"


def folder_records(folder: Path, wanted: Wanted, warn: bool) -> Iterator[Record]:
    """Yield the wanted messages of all files of a bag's folder; see ``messages.Reader``.

    ``metadata.yaml`` is written last; without it the files are taken in the order of their names.

    Raises:
        InputError: No files, a listed one is missing or leads out, or as the files' own readers.
    """
    files, packed = _listed(folder, warn)
    for path in files:
        if path.suffix == ".zstd":
            with tempfile.TemporaryDirectory() as scratch:
                yield from _file_records(_unpacked(path, Path(scratch)), wanted, warn, "")
        else:
            yield from _file_records(path, wanted, warn, packed)


def _file_records(path: Path, wanted: Wanted, warn: bool, packed: str) -> Iterator[Record]:
    if path.suffix == ".mcap":
        return mcap_records(path, wanted, warn)
    return db3_records(path, wanted, warn, packed)


def _listed(folder: Path, warn: bool) -> tuple[list[Path], str]:
    """Files of the bag in order, and how messages are packed ("" or "zstd")."""
    metadata = inside(folder, METADATA)
    if not metadata.is_file():
        files = list_files(folder, {".mcap", ".db3"})
        if not files:
            raise InputError(f"{folder}: holds no {METADATA} and no .mcap or .db3 files: no bag.")
        if warn:
            warnings.warn(
                f"{folder}: {METADATA} is missing (the recording was not ended properly); "
                f"{len(files)} files are read in the order of their names.",
                CaptureWarning,
                stacklevel=2,
            )
        return files, ""
    said = read_mapping(metadata).get("rosbag2_bagfile_information")
    names = said.get("relative_file_paths") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(names, list) or not names:
        raise InputError(
            f"{metadata}: names no files (rosbag2_bagfile_information: relative_file_paths); "
            "`ros2 bag reindex` makes it anew, or delete it."
        )
    # Version 4 and later name files from the folder, earlier ones from where it was recorded.
    files = [inside(folder, Path(str(name)).name, metadata) for name in names]
    mode, packing = (str(said.get(f"compression_{k}") or "").lower() for k in ("mode", "format"))
    if mode in ("file", "message") and packing != "zstd":
        raise InputError(f"{metadata}: compressed as {packing!r}; only zstd is read.")
    for path in files:
        if not path.is_file():
            raise InputError(f"{metadata}: lists {path.name}, which is not in {folder}.")
        if path.suffix not in (".mcap", ".db3", ".zstd"):
            raise InputError(f"{metadata}: lists {path.name}; .mcap and .db3 are read.")
    return files, "zstd" if mode == "message" else ""


def _unpacked(path: Path, scratch: Path) -> Path:
    """The file without its zstd compression, in ``scratch``."""
    import zstandard

    target = scratch / path.stem
    left = room = room_for(path, scratch)
    try:
        with (
            path.open("rb") as source,
            zstandard.ZstdDecompressor().stream_reader(source) as reader,
            target.open("wb") as sink,
        ):
            while block := reader.read(2**20):
                left -= len(block)
                if left < 0:
                    raise InputError(
                        f"{path}: unpacks to more than {room} bytes, which is what is accepted of "
                        f"{path.stat().st_size} bytes, or what the disk of {scratch} has room for."
                    )
                sink.write(block)
    except zstandard.ZstdError as error:
        raise InputError(f"{path}: cannot be unpacked as zstd: {error}.") from error
    except OSError as error:
        raise unpacking_error(error, path, scratch) from error
    return target


def db3_records(path: Path, wanted: Wanted, warn: bool, packed: str = "") -> Iterator[Record]:
    """Yield the wanted messages of an SQLite bag, as far as it goes; see ``messages.Reader``.

    Raises:
        InputError: No SQLite bag, or not a single message can be read.
        MachineError: ``rosbags`` is not installed.
    """
    count, first, last, reason = 0, 0, 0, ""
    try:
        with _opened(path) as database:
            topics = _topics(path, database, wanted)
            chosen = [number for number, (_, _, decode) in topics.items() if decode is not None]
            if not chosen:
                return
            # In the order of writing, not of the index, which a cut file lacks; all rows, since a
            # damaged one would be passed over by a condition.
            marks = ",".join("?" * len(chosen))
            content = f"CASE WHEN topic_id IN ({marks}) THEN data ELSE x'' END"
            query = f"SELECT topic_id, timestamp, {content} FROM messages NOT INDEXED ORDER BY id"  # noqa: S608 - marks
            for topic, arrival, data in database.execute(query, chosen):
                if not (isinstance(arrival, int) and isinstance(data, bytes)):
                    reason = f"message {count} is not whole"
                    break
                first = first if count else arrival
                count, last = count + 1, arrival
                name, kind, decode = topics.get(topic, ("", "", None))
                if decode is not None:
                    yield _record(name, kind, last, decode, data, packed)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        reason = f"{type(error).__name__}: {error}"
    if count == 0:
        raise InputError(
            f"{path} ({path.stat().st_size} bytes): no message can be read"
            f"{f' ({reason})' if reason else ''}. It is empty, no ROS 2 bag, or damaged from the "
            "start; `sqlite3 FILE .recover` may save some."
        )
    if reason and warn:
        warnings.warn(
            f"{path}: the bag is damaged ({reason}); the {count} messages up to there are used, "
            f"{(last - first) * 1e-9:.2f} s.",
            CaptureWarning,
            stacklevel=2,
        )


def _record(
    name: str, kind: str, arrival: int, decode: Callable[[bytes], Any], data: bytes, packed: str
) -> Record:
    def decoded() -> Any:
        if not packed:
            return decode(data)
        import zstandard

        return decode(zstandard.ZstdDecompressor().stream_reader(data).read(LARGEST))

    return Record(name, kind, arrival, decoded)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, for reading; with what a crashed recorder left in the log beside it."""
    journal = path.with_name(f"{path.name}-wal")
    if not (journal.is_file() and journal.stat().st_size):
        # Immutable: no lock, and nothing is written beside the capture.
        with closing(_connected(path, "immutable=1")) as database:
            yield database
        return
    inside(path.parent, journal.name)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "bag.db3")
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(journal, copy.with_name("bag.db3-wal"))
        except OSError as error:
            raise unpacking_error(error, path, Path(scratch)) from error
        with closing(_connected(copy, "mode=rw")) as database:
            yield database


def _connected(path: Path, how: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(bytes(path.absolute()))}?{how}", uri=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
    database.execute("PRAGMA trusted_schema=OFF")
    # A file that is shorter than its header says is refused as a whole otherwise.
    database.execute("PRAGMA writable_schema=ON")
    return database


def _topics(
    path: Path, database: sqlite3.Connection, wanted: Wanted
) -> dict[int, tuple[str, str, Callable[[bytes], Any] | None]]:
    tables = {
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    if not {"messages", "topics"} <= tables:
        raise InputError(f"{path}: is no ROS 2 bag; it holds the tables {sorted(tables)[:8]}.")
    topics = {}
    query = "SELECT id, name, type, serialization_format FROM topics ORDER BY id"
    for number, name, said, encoding in database.execute(query):
        kind = normal_type(str(said))
        chosen = wanted(str(name), kind) and kind in TYPES
        if chosen and encoding != "cdr":
            raise InputError(f"{path}: {name} is encoded as {encoding!r}; expected 'cdr'.")
        topics[number] = (str(name), kind, decoder_of(kind, ros1=False) if chosen else None)
    return topics
