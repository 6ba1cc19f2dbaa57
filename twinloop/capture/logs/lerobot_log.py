"""Joint signals of a LeRobot episode, by the data set's names or by the map in ``robot.yaml``."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.formats.lerobot import EpisodeTable, episode_table
from twinloop.capture.logs.joint_table import from_columns, nanoseconds
from twinloop.capture.logs.mapping import KINDS, LogMapping
from twinloop.capture.logs.streams import Capture
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]

DEFAULTS = {
    "position": "observation.state",
    "velocity": "observation.velocity",
    "effort": "observation.effort",
    "command": "action",
}
"""Columns by signal, as LeRobot's own robots record them."""
SUFFIX = ".pos"
"""What LeRobot's robots append to a joint's name."""


def read_lerobot_log(folder: Path, mapping: LogMapping) -> Capture:
    """Read the joint signals of the episode that ``robot.yaml`` names (default: 0).

    Raises:
        InputError: As :func:`episode_table`; or a mapped column is missing, or no joint is named.
        MachineError: ``pyarrow`` is not installed.
    """
    table = episode_table(folder, mapping.episode or 0)
    for note in table.notes:
        warnings.warn(f"{table.path}: {note}", CaptureWarning, stacklevel=2)
    if mapping.columns:
        joints, signals, named = *_mapped(table, mapping), True
    else:
        joints, signals, named = _default(table, mapping)
    stamps = nanoseconds(table.path, "timestamp", table.time, "s")
    states, control = from_columns(table.path, joints, stamps, signals, mapping)
    return Capture(states, control, named=named)


def _mapped(table: EpisodeTable, mapping: LogMapping) -> tuple[tuple[str, ...], dict[str, Array]]:
    """Joints and signals by ``columns``: ``observation.state.elbow``, ``observation.state[2]``."""
    places: dict[str, Array] = {}
    for column, values in table.columns.items():
        for i, name in enumerate(table.names[column]):
            for label in (f"{column}.{name}", f"{column}[{i}]"):
                places[label] = values[:, i]
        if values.shape[1] == 1:
            places[column] = values[:, 0]
    wanted = {name: place for name, place in mapping.columns.items() if name != "time"}
    joints = tuple(n.removeprefix("position_") for n in wanted if n.startswith("position_"))
    signals: dict[str, Array] = {}
    for name, place in wanted.items():
        kind = next(
            (k for k in KINDS for joint in joints if name == f"{k}_{joint}"),
            None,
        )
        if kind is None or place not in places:
            raise InputError(
                f"{table.path}: robot.yaml maps {name} to {place}; expected position_<joint> (and "
                f"other kinds of the same joints) mapped to some of {sorted(places)[:12]}."
            )
        signal = signals.setdefault(kind, np.full((len(table.time), len(joints)), np.nan))
        signal[:, joints.index(name.removeprefix(f"{kind}_"))] = places[place]
    if not joints:
        raise InputError(f"{table.path}: `columns` of robot.yaml maps no position_<joint>.")
    return joints, signals


def _default(
    table: EpisodeTable, mapping: LogMapping
) -> tuple[tuple[str, ...], dict[str, Array], bool]:
    """Joints, signals, and whether the data set itself names the joints."""
    state = DEFAULTS["position"]
    if state not in table.columns:
        raise InputError(
            f"{table.path}: has no column {state}, but {sorted(table.columns)}; say which are the "
            "joints in robot.yaml (`columns: {position_elbow: ...}`)."
        )
    names = table.names[state]
    width = len(names)
    named = not names[0].startswith(f"{state}[")
    joints = tuple(name.removesuffix(SUFFIX) for name in names) if named else mapping.joint_order
    if len(joints) != width:
        raise InputError(
            f"{table.path}: {state} has {width} columns without names, robot.yaml names "
            f"{len(joints)} joints in joint_order; name all {width} in the order of the columns."
        )
    signals = {}
    for kind, column in DEFAULTS.items():
        if column not in table.columns:
            continue
        if table.columns[column].shape[1] == width and (
            not named or table.names[column] == names or table.names[column][0].endswith("[0]")
        ):
            signals[kind] = table.columns[column]
        else:
            warnings.warn(
                f"{table.path}: {column} has the columns {list(table.names[column])}, {state} has "
                f"{list(names)}; no {kind} is read. Map them in robot.yaml if they belong together "
                "(`columns: {...}`).",
                CaptureWarning,
                stacklevel=2,
            )
    return joints, signals, named
