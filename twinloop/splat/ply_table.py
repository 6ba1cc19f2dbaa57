"""The vertices of a PLY file as blocks of rows: any order and type of properties, any byte order.

Nothing that a header says is believed before the file's size bears it out, and no more than a block
is in memory at a time.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError

TYPES = {
    **{"char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1"},
    **{"short": "i2", "int16": "i2", "ushort": "u2", "uint16": "u2"},
    **{"int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4"},
    **{"float": "f4", "float32": "f4", "double": "f8", "float64": "f8"},
}
ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": ""}
LONGEST_HEADER = 1 << 16
MOST_ROWS = 1 << 31
LONGEST_NUMBER = 512
"""Bytes, blanks included, that a number in a line may take on average."""
BLOCK = 1 << 16
"""Rows read at a time."""


@dataclass
class _Element:
    name: str
    count: int
    properties: list[tuple[str, str]] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PlyTable:
    """The element `vertex` of a PLY file.

    names and kinds of its properties (NumPy's codes, without byte order), the number of rows, and
    where they lie: `start` bytes into the file (for ascii: `skip` lines after `start`).
    elements: names of all elements of the file, with their counts.
    """

    path: Path
    order: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    count: int
    start: int
    skip: int
    elements: dict[str, int]

    def blocks(self) -> Iterator[dict[str, NDArray[np.generic]]]:
        """Up to `BLOCK` rows at a time, as columns by property name.

        Raises:
            InputError: Rows are missing, or in ascii are no numbers.
        """
        with self.path.open("rb") as file:
            file.seek(self.start)
            if self.order:
                yield from self._binary_blocks(file)
            else:
                yield from self._text_blocks(file)

    def _binary_blocks(self, file: io.BufferedReader) -> Iterator[dict[str, NDArray[np.generic]]]:
        layout = np.dtype(
            [(n, self.order + k) for n, k in zip(self.names, self.kinds, strict=True)]
        )
        for first in range(0, self.count, BLOCK):
            rows = min(BLOCK, self.count - first)
            data = file.read(rows * layout.itemsize)
            if len(data) < rows * layout.itemsize:
                raise InputError(f"{self.path}: ended while it was read, in row {first}")
            table = np.frombuffer(data, layout)
            yield {name: table[name] for name in self.names}

    def _text_blocks(self, file: io.BufferedReader) -> Iterator[dict[str, NDArray[np.generic]]]:
        for _ in islice(file, self.skip):
            pass
        for first in range(0, self.count, BLOCK):
            rows = min(BLOCK, self.count - first)
            longest = LONGEST_NUMBER * len(self.names)
            lines = [file.readline(longest + 1) for _ in range(rows)]
            if any(len(line) > longest for line in lines):
                raise InputError(
                    f"{self.path}: from row {first} on a line is longer than {longest} bytes, "
                    f"expected rows of {len(self.names)} numbers; the file is cut or damaged"
                )
            try:
                text = [line.decode("ascii") for line in lines]
                table = np.loadtxt(text, np.float64, comments=None, ndmin=2)
            except ValueError as error:
                raise InputError(
                    f"{self.path}: rows {first} to {first + rows - 1} are not all numbers ({error})"
                ) from error
            if table.shape != (rows, len(self.names)):
                raise InputError(
                    f"{self.path}: from row {first} on expected {rows} rows of {len(self.names)} "
                    f"numbers, found {table.shape[0]} of {table.shape[1]}; the file is cut or "
                    "damaged"
                )
            yield {name: table[:, i] for i, name in enumerate(self.names)}


def open_table(path: Path) -> PlyTable:
    """Read a PLY's header and check it against the file's size.

    Raises:
        InputError: No such file, no PLY, an unknown format or type, a list among the vertices' own
            properties or before them, or fewer bytes than the header promises.
    """
    head = beginning(path, LONGEST_HEADER)
    size = path.stat().st_size
    lines, start = _header_lines(path, head)
    form = [words[1] for words in lines if words[0] == "format" and len(words) > 1]
    if len(form) != 1 or form[0] not in ORDERS:
        raise InputError(f"{path}: format {form} is not known, expected one of {sorted(ORDERS)}")
    order = ORDERS[form[0]]
    elements = _elements(path, lines)
    index = next((i for i, e in enumerate(elements) if e.name == "vertex"), None)
    if index is None:
        raise InputError(f"{path}: is no PLY file with an 'element vertex' line")
    vertex = elements[index]
    for element in elements[: index + 1]:
        if element.lists:
            raise InputError(
                f"{path}: element {element.name!r} has the list {element.lists[0]!r} before or "
                "among the vertices, so their places are not known; export it again without"
            )
    names = tuple(name for _, name in vertex.properties)
    if len(set(names)) < len(names):
        raise InputError(f"{path}: a property is declared twice: {sorted(names)}")
    skip = 0
    if order:
        start += sum(e.count * _row_bytes(e) for e in elements[:index])
        promised = vertex.count * _row_bytes(vertex)
    else:
        skip = sum(e.count for e in elements[:index])
        promised = vertex.count * 2 * len(names) - 1 + 2 * skip  # a digit and a space each
    if vertex.count and size - start < promised:
        raise InputError(
            f"{path}: the header promises {vertex.count} Gaussians of {len(names)} properties, "
            f"{promised} bytes at least, the file holds {max(size - start, 0)} bytes after the "
            "header; it is cut or damaged"
        )
    kinds = tuple(kind for kind, _ in vertex.properties)
    counts = {e.name: e.count for e in elements}
    return PlyTable(path, order, names, kinds, vertex.count, start, skip, counts)


def beginning(path: Path, most: int) -> bytes:
    """The first bytes of a file, `most` at most.

    Raises:
        InputError: No such file, or one that may not be read, or a name that no file can have.
    """
    try:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def _row_bytes(element: _Element) -> int:
    return sum(int(kind[1]) for kind, _ in element.properties)


def _header_lines(path: Path, head: bytes) -> tuple[list[list[str]], int]:
    end = head.find(b"end_header")
    if not head.startswith((b"ply\n", b"ply\r")) or end < 0:
        raise InputError(f"{path}: is no PLY file: it has no header from 'ply' to 'end_header'")
    newline = head.find(b"\n", end)
    if newline < 0 or head[end:newline].strip() != b"end_header":
        raise InputError(f"{path}: no data follows 'end_header'")
    text = head[:end].decode("ascii", errors="replace")
    words = [line.split() for line in text.splitlines()]
    return [w for w in words if w and w[0] not in ("comment", "obj_info")], newline + 1


def _elements(path: Path, lines: list[list[str]]) -> list[_Element]:
    elements: list[_Element] = []
    for words in lines:
        line = " ".join(words)
        if words[0] == "element":
            if len(words) != 3 or not words[2].isdecimal() or int(words[2][:12]) > MOST_ROWS:
                raise InputError(f"{path}: header line {line!r}: expected 'element NAME COUNT'")
            elements.append(_Element(words[1], int(words[2])))
        elif words[0] == "property":
            if not elements:
                raise InputError(f"{path}: header line {line!r} belongs to no element")
            if len(words) == 5 and words[1] == "list":
                elements[-1].lists.append(words[4])
            elif len(words) == 3 and words[1] in TYPES:
                elements[-1].properties.append((TYPES[words[1]], words[2]))
            else:
                raise InputError(
                    f"{path}: header line {line!r}: expected 'property TYPE NAME' with a type of "
                    f"{sorted(TYPES)}"
                )
    return elements
