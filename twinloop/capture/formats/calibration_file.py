"""Calibration files as plain mappings: YAML, JSON and XML, read without trusting them.

OpenCV's own reader is not used: it is built for files of one's own, and allocates what a header
says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

from twinloop.capture.files import list_files, read_json, read_text
from twinloop.capture.formats.image_list import Size
from twinloop.errors import InputError

LARGEST_FILE = 2**20
"""Largest calibration file, bytes: some hold all the image points as well."""
SUFFIXES = (".yaml", ".yml", ".json", ".xml")
"""Names under which calibrations are looked for."""
DEEPEST = 32
"""Most levels of nesting."""
_SNIFFED = 2**16
_OPENING = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


class _Loader(yaml.SafeLoader):
    """Safe YAML in which OpenCV's matrices are mappings."""


def _matrix_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    return loader.construct_mapping(node, deep=True)


for _kind in ("matrix", "nd-matrix"):
    _Loader.add_constructor(f"tag:yaml.org,2002:opencv-{_kind}", _matrix_mapping)


def read_calibration(path: Path) -> dict[str, Any]:
    """Read a YAML, JSON or OpenCV XML file that holds one mapping.

    Matrices of OpenCV become mappings with ``rows``, ``cols`` and ``data``.

    Raises:
        InputError: The file is missing, empty, too large, of no such syntax, holds YAML aliases or
            an XML document type (which expand without bound), or something else than a mapping.
    """
    suffix = path.suffix.lower()
    if suffix == ".xml":
        return _xml(path)
    content = read_json(path, LARGEST_FILE) if suffix == ".json" else _yaml(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: a mapping is expected, found {type(content).__name__}.")
    return {str(key): value for key, value in content.items()}


def _yaml(path: Path) -> Any:
    text = read_text(path, LARGEST_FILE)
    if text.startswith("%YAML"):  # OpenCV writes "%YAML:1.0", which is no YAML
        text = text.partition("\n")[2]
    try:
        _refuse_bombs(path, text)
        return yaml.load(text, _Loader)  # noqa: S506 (a subclass of the safe loader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {error}") from error


def _refuse_bombs(path: Path, text: str) -> None:
    """Refuse aliases, which expand, and deep nesting, which takes the reader quadratic time."""
    depth = 0
    for token in yaml.scan(text, yaml.SafeLoader):
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if isinstance(token, yaml.AliasToken):
            raise InputError(f"{path}: holds YAML aliases (*name); write the values out.")
        if depth > DEEPEST:
            raise InputError(f"{path}: nested deeper than {DEEPEST} levels; no calibration is.")


def _xml(path: Path) -> dict[str, Any]:
    text = read_text(path, LARGEST_FILE)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(f"{path}: holds a document type, which is not read; remove it.")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 (no entities, see above)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{path}: cannot be read as XML: {error}") from error
    if root.tag != "opencv_storage":
        raise InputError(
            f"{path}: the root element is <{root.tag}>; <opencv_storage>, as OpenCV's FileStorage "
            "writes it, is expected."
        )
    return {child.tag: _element(child) for child in root}


def _element(element: ElementTree.Element) -> Any:
    text = (element.text or "").strip().strip('"')
    if element.get("type_id", "").startswith("opencv-"):
        parts = {child.tag: (child.text or "").strip() for child in element}
        return {**parts, "data": parts.get("data", "").split()}
    numbers = text.split()
    return numbers if len(numbers) > 1 else text


def numbers_of(where: str, value: Any, counts: Sequence[int]) -> list[float]:
    """Numbers of a matrix, row by row.

    Args:
        where: File and key, for messages.
        value: A mapping with ``data`` (OpenCV, ROS), or numbers, or rows of numbers.
        counts: How many numbers are accepted.

    Raises:
        InputError: Something else, another count, or not as many as ``rows`` and ``cols`` say.
    """
    block = value if isinstance(value, dict) else {"data": value}
    data = block.get("data")
    rows = data if isinstance(data, list) else [data]
    flat: list[Any] = [item for row in rows for item in (row if isinstance(row, list) else [row])]
    try:
        found = [float(item) for item in flat]
        shape = int(block.get("rows", 1)), int(block.get("cols", len(found)))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: numbers are expected ({error}).") from error
    if "rows" in block and shape[0] * shape[1] != len(found):
        raise InputError(
            f"{where}: {shape[0]} rows of {shape[1]} are announced, {len(found)} numbers follow. "
            "Was the file cut?"
        )
    if len(found) not in counts:
        raise InputError(
            f"{where}: {len(found)} numbers; {' or '.join(str(c) for c in counts)} are expected."
        )
    return found


def whole(where: str, value: Any) -> int:
    """A whole number, for example of columns.

    Raises:
        InputError: It is none.
    """
    try:
        number = float(value)
        if number.is_integer():
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{where} is {str(value)[:40]!r}; a whole number is expected.")


def agreed_size(path: Path, said: Size | None, given: Size | None) -> Size:
    """The size of the calibrated pictures, by the file or by the caller.

    Raises:
        InputError: Neither says it, or they differ.
    """
    if said is None and given is None:
        raise InputError(
            f"{path}: does not say the size of the pictures; add image_width and image_height, or "
            "give it."
        )
    if said is not None and given is not None and said != given:
        raise InputError(
            f"{path}: was calibrated at {said[0]} x {said[1]} px, the pictures have {given[0]} x "
            f"{given[1]} px. Other sizes of one camera are often cropped: calibrate in the mode of "
            "the capture."
        )
    return said or given or (0, 0)


def find(path: Path, belongs: Callable[[str], bool]) -> list[Path]:
    """Files whose beginning ``belongs`` accepts: ``path`` itself, or those in the folder."""
    if path.is_dir():
        candidates = list_files(path, SUFFIXES)
    else:
        candidates = [path] if path.is_file() and path.suffix.lower() in SUFFIXES else []
    return [candidate for candidate in candidates if belongs(_beginning(candidate))]


def only(path: Path, belongs: Callable[[str], bool], what: str) -> Path:
    """``path`` when it is a file, else the one file of the folder that ``belongs`` accepts.

    Raises:
        InputError: The folder has none, or several.
    """
    if not path.is_dir():
        return path
    found = find(path, belongs)
    if len(found) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise InputError(f"{path}: one {what} is expected, found {names}; name the file.")
    return found[0]


def _beginning(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(_SNIFFED).decode("utf-8", errors="replace")
