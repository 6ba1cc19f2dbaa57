"""A segmenter of the user's own: any ONNX model that turns a picture into one mask.

Interface.  One input, float32 (1, 3, h, w): RGB, 0 to 1, minus ``mean`` over ``std`` (three numbers
each, in the model's metadata or in ``MODEL.yaml`` beside it; 0 and 1 if neither says).  h and w are
fixed by the model, or free: then the picture's size rounded up to a multiple of ``multiple``
(default 32).  One output of that height and width: (1, 1, h, w) or (1, h, w), logits or
probabilities of the object, or (1, 2, h, w), background and object.  ``output: logits`` or
``output: probabilities`` says which; unsaid, values beyond 0 to 1 mean logits.

A model file is not trusted: it is bounded in size, must hold its weights itself, and only ONNX's
standard operators are loaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from twinloop.capture.files import read_text
from twinloop.errors import InputError
from twinloop.extras import require

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

LARGEST_MODEL = 2**30
"""Largest model file, bytes."""
LARGEST_SIDE = 4096
"""Largest input side, px."""


class SegmenterSettings(BaseModel):
    """What a model says about itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: tuple[FiniteFloat, FiniteFloat, FiniteFloat] = Field(
        (0.0, 0.0, 0.0), description="subtracted from RGB in 0..1"
    )
    std: tuple[FiniteFloat, FiniteFloat, FiniteFloat] = Field(
        (1.0, 1.0, 1.0), description="RGB is divided by it"
    )
    multiple: int = Field(32, ge=1, le=512, description="free sides are multiples of this, px")
    output: Literal["auto", "logits", "probabilities"] = "auto"


@dataclass
class Segmenter:
    """A loaded model; the same picture gives the same mask.

    Raises InputError when the file is no model of the documented interface, MachineError where
    onnxruntime is not installed.
    """

    path: Path
    """The ONNX file."""
    largest_side: int = 1024
    """Longer side of the picture given to a model of free size, px."""
    settings: SegmenterSettings = field(init=False)
    """What the model says about itself."""

    def __post_init__(self) -> None:
        _check_file(self.path)
        runtime = require("onnxruntime", "segment", "the segmenter model")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.use_deterministic_compute = True
        options.log_severity_level = 4
        try:
            # From bytes: weights in other files, which could lie anywhere, are not found.
            self._session: Any = runtime.InferenceSession(
                self.path.read_bytes(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the runtime has a dozen classes without a common base
            raise InputError(
                f"{self.path}: cannot be loaded as ONNX model ({_first_line(error)}). Expected a "
                "whole file of standard operators, with its weights inside."
            ) from error
        self._input, self._size = self._check_interface()
        self.settings = self._read_settings()

    def probability(self, image: Image) -> Array:
        """Probability of the object (y, x) for a picture RGB (y, x, 3).

        Raises:
            InputError: The model fails, or its output has another shape, or is not finite.
        """
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise InputError(
                f"segmenter: a picture of shape {image.shape}, {image.dtype}; expected uint8 RGB."
            )
        height, width = image.shape[:2]
        rows, columns = self._input_size(height, width)
        small = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA)
        mean, std = (np.array(v, np.float32) for v in (self.settings.mean, self.settings.std))
        tensor = ((small.astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1)[None]
        try:
            outputs = self._session.run(None, {self._input: np.ascontiguousarray(tensor)})
        except Exception as error:
            raise InputError(
                f"{self.path}: fails on a picture of {columns} x {rows} px ({_first_line(error)})."
            ) from error
        plane = self._plane(np.asarray(outputs[0], np.float64), rows, columns)
        plane = cv2.resize(plane, (width, height), interpolation=cv2.INTER_LINEAR)
        return np.asarray(plane, np.float64)

    def mask(self, image: Image) -> Image:
        """Mask (y, x), 255 where the object is more likely than not, of a picture RGB (y, x, 3)."""
        return np.where(self.probability(image) > 0.5, 255, 0).astype(np.uint8)

    def _check_interface(self) -> tuple[str, tuple[int | None, int | None]]:
        """Name of the input, and its rows and columns, None where free."""
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        shape = list(inputs[0].shape) if len(inputs) == 1 else []
        fits = (
            len(shape) == 4
            and inputs[0].type == "tensor(float)"
            and (shape[0] == 1 or not isinstance(shape[0], int))
            and (shape[1] == 3 or not isinstance(shape[1], int))
        )
        if not fits or not outputs:
            said = [f"{i.name} {i.type} {i.shape}" for i in inputs]
            raise InputError(
                f"{self.path}: has the inputs {said}; expected one, float32 (1, 3, h, w). Models "
                "that need prompts (SAM) do not fit: run them yourself and give the masks."
            )
        rows, columns = (s if isinstance(s, int) else None for s in shape[2:])
        for side in (rows, columns):
            if side is not None and not 8 <= side <= LARGEST_SIDE:
                raise InputError(
                    f"{self.path}: wants pictures of {columns} x {rows} px, 8 to {LARGEST_SIDE} px "
                    "are accepted."
                )
        return str(inputs[0].name), (rows, columns)

    def _input_size(self, height: int, width: int) -> tuple[int, int]:
        scale = min(1.0, min(self.largest_side, LARGEST_SIDE) / max(height, width))
        step = self.settings.multiple
        free = [max(step, -(-round(s * scale) // step) * step) for s in (height, width)]
        rows, columns = (f if s is None else s for f, s in zip(free, self._size, strict=True))
        return rows, columns

    def _plane(self, output: Array, rows: int, columns: int) -> Array:
        """Probability (rows, columns) of an output of any of the accepted shapes."""
        shape = output.shape
        if shape[-2:] != (rows, columns) or shape[:-2] not in ((1, 1), (1,), (1, 2)):
            raise InputError(
                f"{self.path}: gives an output of shape {shape}; expected (1, 1, {rows}, "
                f"{columns}), (1, {rows}, {columns}) or (1, 2, {rows}, {columns})."
            )
        if not np.isfinite(output).all():
            raise InputError(
                f"{self.path}: gives {int((~np.isfinite(output)).sum())} values that are not "
                "finite; are mean and std right?"
            )
        kind = self.settings.output
        logits = kind == "logits" or (kind == "auto" and (output.min() < 0 or output.max() > 1))
        if shape[:-2] == (1, 2):
            background, found = output[0]
            if logits:
                return np.asarray(_sigmoid(found - background))
            return np.asarray(found / np.maximum(found + background, 1e-12))
        plane = output.reshape(rows, columns)
        return np.asarray(_sigmoid(plane) if logits else plane)

    def _read_settings(self) -> SegmenterSettings:
        beside = self.path.with_suffix(".yaml")
        known = SegmenterSettings.model_fields
        try:
            if beside.is_file():
                where = beside
                said: Any = yaml.safe_load(read_text(beside, 2**20))
            else:
                where = self.path
                metadata = self._session.get_modelmeta().custom_metadata_map
                said = {
                    k: v if k == "output" else json.loads(v)
                    for k, v in metadata.items()
                    if k in known
                }
            found = SegmenterSettings.model_validate(said)
        except (yaml.YAMLError, ValidationError, ValueError, RecursionError) as error:
            raise InputError(
                f"{where}: does not describe the model ({error}); expected mean, std (three "
                "numbers each), multiple, output."
            ) from error
        if min(np.abs(found.std)) < 1e-6:
            raise InputError(f"{where}: std {found.std} is zero; RGB is divided by it.")
        return found


def _check_file(path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    if not path.is_file() or size == 0:
        raise InputError(f"{path}: is no file, or has 0 bytes; an ONNX model is expected.")
    if size > LARGEST_MODEL:
        raise InputError(f"{path}: has {size} bytes, at most {LARGEST_MODEL} are loaded.")


def _sigmoid(values: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
