"""``camera.yaml``: a calibrated camera, as a user writes it or a calibration tool exports it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from twinloop.errors import InputError
from twinloop.geometry.camera import matrix as camera_matrix

LARGEST_SIDE = 100_000
"""Most columns or rows of a picture, px."""
Term = Annotated[float, Field(ge=-1e6, le=1e6)]
"""A number of a lens; beyond, sums of its powers overflow."""
MOST_FAULTS = 20
"""Faults of a file that a message lists."""


class CameraFile(BaseModel):
    """Pinhole camera with OpenCV's five distortion coefficients."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    width: int = Field(gt=0, le=LARGEST_SIDE)
    """Columns of the upright image, px."""
    height: int = Field(gt=0, le=LARGEST_SIDE)
    """Rows of the upright image, px."""
    intrinsics: tuple[Term, Term, Term, Term]
    """fx, fy, cx, cy in px; the centre of the first pixel is (0, 0)."""
    distortion: tuple[Term, Term, Term, Term, Term] = (0.0, 0.0, 0.0, 0.0, 0.0)
    """k1, k2, p1, p2, k3 of OpenCV's model, no unit."""

    @model_validator(mode="after")
    def _plausible(self) -> CameraFile:
        fx, fy, cx, cy = self.intrinsics
        if not (fx > 0 and fy > 0):
            raise ValueError(f"focal lengths must be positive, got fx {fx}, fy {fy}")
        if not (0 <= cx <= self.width and 0 <= cy <= self.height):
            raise ValueError(
                f"principal point ({cx}, {cy}) is outside the {self.width} x {self.height} image; "
                "are the intrinsics those of the turned (portrait) image?"
            )
        return self

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Camera matrix (3, 3), px."""
        return camera_matrix(self.intrinsics)


Model = TypeVar("Model", bound=BaseModel)

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LARGEST_FILE = 4 * 2**20
"""Largest YAML file that is read, bytes."""
MOST_VALUES = 200_000
"""Most values of a YAML file, what its aliases repeat counted each time."""


def load_camera(path: Path) -> CameraFile:
    """Read a ``camera.yaml``.

    Raises:
        InputError: The file is missing, no YAML, or breaks the model; the message lists all faults.
    """
    return read_model(path, CameraFile)


def read_model(path: Path, model: type[Model]) -> Model:
    """Read a YAML file as a pydantic model.

    Raises:
        InputError: The file is missing, no YAML, or breaks the model; the message names each field,
            its value and the rule.
    """
    content = read_mapping(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        lines = "\n".join(
            f"  {'.'.join(str(part) for part in fault['loc']) or '(whole file)'}: {fault['msg']}"
            f" (found {str(fault['input'])[:80]!r})"
            for fault in error.errors(include_url=False)[:MOST_FAULTS]
        )
        raise InputError(f"{path}: {error.error_count()} fault(s):\n{lines}") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds one mapping, safely.

    Raises:
        InputError: The file is missing, no regular file, too large, no text, no YAML, expands
            without bound by its aliases, says a key twice, or holds something else than a mapping.
    """
    try:
        if not path.is_file() and path.exists():
            raise InputError(f"{path}: is no regular file; a YAML text is expected.")
        if (size := path.stat().st_size) > LARGEST_FILE:
            raise InputError(f"{path}: has {size} bytes, at most {LARGEST_FILE} are read.")
        content = _loaded(path, path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file. Check the capture folder's layout.") from error
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        # ValueError: no UTF-8, a date such as 2026-13-01, a number of thousands of digits.
        raise InputError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a mapping, found {type(content).__name__}.")
    return {str(key): value for key, value in content.items()}


def _loaded(path: Path, text: str) -> Any:
    """Content of a YAML text, its size and its keys checked before values are made."""
    loader = LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if (count := _values(path, node, {})) > MOST_VALUES:
            raise InputError(
                f"{path}: holds {count:.3g} values with what its aliases (*name) repeat, at most "
                f"{MOST_VALUES} are read; write the values out."
            )
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _values(path: Path, node: yaml.Node, known: dict[int, int]) -> int:
    """Values in a node, aliases expanded; ``known`` holds those of nodes that were counted."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in known:
        if not known[id(node)]:
            raise InputError(f"{path}: an alias (*name) stands within what it names.")
        return known[id(node)]
    known[id(node)] = 0
    parts = node.value
    if isinstance(node, yaml.MappingNode):
        names = [k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode)]
        if len(set(names)) < len(names):
            twice = sorted({name for name, count in Counter(names).items() if count > 1})
            raise InputError(f"{path}: the keys {twice[:5]} stand twice in one mapping.")
        parts = [part for pair in node.value for part in pair]
    known[id(node)] = 1 + sum(_values(path, part, known) for part in parts)
    return known[id(node)]
