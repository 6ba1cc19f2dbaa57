"""HDF5 files of robomimic, DROID and ALOHA, or with a map of data sets in ``robot.yaml``."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.logs.joint_table import Stamps, from_columns, nanoseconds, whole
from twinloop.capture.logs.mapping import KINDS, LogMapping
from twinloop.capture.logs.streams import Capture
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.extras import require

Array = NDArray[np.float64]

LARGEST = 2**25
"""Most values of a data set: a shape in the file may claim anything."""


@dataclass(frozen=True)
class Layout:
    """Where a data collection keeps its signals."""

    name: str
    """What to call it."""
    fields: dict[str, str]
    """Data sets by signal; those of one file may lack some."""
    time_unit: str = "s"
    """Unit of its time."""


LAYOUTS = (
    Layout(
        "DROID",
        {
            "position": "observation/robot_state/joint_positions",
            "velocity": "observation/robot_state/joint_velocities",
            "effort": "observation/robot_state/motor_torques_measured",
            "command": "action/joint_position",
            "command_velocity": "action/joint_velocity",
            "time": "observation/timestamp/robot_state/robot_timestamp_seconds",
            "time_nanoseconds": "observation/timestamp/robot_state/robot_timestamp_nanos",
        },
    ),
    Layout(
        "ALOHA",
        {
            "position": "observations/qpos",
            "velocity": "observations/qvel",
            "effort": "observations/effort",
            "command": "action",
        },
    ),
)
"""Known layouts beside robomimic's, told apart by where positions are."""
ROBOMIMIC = {"position": "obs/robot0_joint_pos", "velocity": "obs/robot0_joint_vel"}
"""Within a robomimic demonstration; its actions are mostly steps of the gripper's pose, no joint
commands, so that they are read only where ``robot.yaml`` maps them."""


def read_hdf5_log(path: Path, mapping: LogMapping) -> Capture:
    """Read joint signals; the file names no joints, so ``joint_order`` has to.

    Raises:
        InputError: Truncated, no HDF5, an unknown layout, a data set that leads out of the file or
            is too large, no times and no ``log_rate``, another count of joints than declared.
        MachineError: ``h5py`` is not installed.
    """
    h5py = require("h5py", "logs", "a robot log in HDF5")
    try:
        with h5py.File(path, "r", locking=False) as file:
            layout = _layout(path, file, mapping)
            signals, times = {}, {}
            for kind, name in layout.fields.items():
                values = _values(h5py, path, file, name, kind in mapping.fields)
                if values is not None and kind in KINDS:
                    signals[kind] = values.reshape(len(values), -1)
                elif values is not None:
                    times[kind] = values.ravel()
    except OSError as error:
        raise InputError(_unreadable(path, error)) from error
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"{path}: damaged HDF5 file ({error}); copy it again.") from error
    return _capture(path, mapping, layout, signals, times)


def _unreadable(path: Path, error: OSError) -> str:
    size = path.stat().st_size
    if found := re.search(r"truncated file.*stored_eof = (\d+)", str(error)):
        return (
            f"{path}: the HDF5 file is truncated: {size} bytes of {found.group(1)}. Its index is "
            "not whole, so nothing of it can be trusted; copy it again."
        )
    return f"{path} ({size} bytes): cannot be read as HDF5: {error}."


def _layout(path: Path, file: Any, mapping: LogMapping) -> Layout:
    if mapping.fields:
        return Layout("robot.yaml", dict(mapping.fields), mapping.time_unit)
    for layout in LAYOUTS:
        if layout.fields["position"] in file:
            return layout
    demos = sorted((n for n in file["data"] if n.startswith("demo_")) if "data" in file else [])
    if not demos:
        raise InputError(
            f"{path}: is of no known layout (robomimic, DROID, ALOHA); it holds {sorted(file)[:8]}."
            " Say where the signals are in robot.yaml: `fields: {position: group/dataset, ...}`."
        )
    chosen = f"demo_{mapping.episode}" if mapping.episode is not None else demos[0]
    if chosen not in demos or (mapping.episode is None and len(demos) > 1):
        raise InputError(
            f"{path}: holds {len(demos)} demonstrations ({', '.join(demos[:4])} ...); say which in "
            f"robot.yaml: `episode: 0` (found {mapping.episode})."
        )
    return Layout("robomimic", {k: f"data/{chosen}/{v}" for k, v in ROBOMIMIC.items()})


def _values(h5py: Any, path: Path, file: Any, name: str, needed: bool) -> Array | None:
    """Numbers of a data set (n, ...); None where a known layout lacks it.

    Raises:
        InputError: A link out of the file, a virtual or external data set, no numbers, too many.
    """
    where = f"{path}: {name}"
    node = file
    for part in [p for p in name.split("/") if p]:
        link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
        if link is None:
            if needed:
                raise InputError(f"{where}: no such data set; robot.yaml names it in `fields`.")
            return None
        if not isinstance(link, h5py.HardLink):
            raise InputError(
                f"{where}: is a link ({type(link).__name__}), which may lead out of the file; "
                "copy the data itself into it (`h5repack`, or h5py's copy with expand_external)."
            )
        node = node[part]
    if not isinstance(node, h5py.Dataset):
        raise InputError(f"{where}: is a group, expected a data set.")
    if node.is_virtual or node.external:
        raise InputError(f"{where}: keeps its data in other files; refused, copy them into this.")
    if node.dtype.kind not in "iuf" or node.dtype.itemsize > 8:
        raise InputError(f"{where}: holds {node.dtype}, expected numbers (references are refused).")
    if node.ndim not in (1, 2) or not 0 < max(node.size, np.prod(node.chunks or 1)) <= LARGEST:
        raise InputError(
            f"{where}: has the shape {node.shape} in chunks of {node.chunks}; expected "
            f"(sample, joint), at most {LARGEST} values."
        )
    return np.asarray(node[()], dtype=np.float64)


def _capture(
    path: Path,
    mapping: LogMapping,
    layout: Layout,
    signals: dict[str, Array],
    times: dict[str, Array],
) -> Capture:
    if "position" not in signals:
        raise InputError(
            f"{path}: as {layout.name}: no joint positions at {layout.fields.get('position')}; say "
            "where they are in robot.yaml: `fields: {position: group/dataset}`."
        )
    n, width = signals["position"].shape
    joints = mapping.joint_order
    if len(joints) != width:
        raise InputError(
            f"{path}: {layout.fields['position']} has {width} columns without names, robot.yaml "
            f"names {len(joints)} joints in joint_order; name all {width} in the order of the "
            "columns."
        )
    for kind, values in {**signals, **times}.items():
        if len(values) != n or (kind in signals and values.shape[1] != width):
            raise InputError(
                f"{path}: {layout.fields[kind]} has the shape {values.shape}, positions have "
                f"{(n, width)}."
            )
    if "time" in times:
        stamps = nanoseconds(path, layout.fields["time"], times["time"], layout.time_unit)
        if "time_nanoseconds" in times:
            rest = times["time_nanoseconds"]
            if not ((rest >= 0) & (rest < 1e9)).all():
                raise InputError(
                    f"{path}: {layout.fields['time_nanoseconds']}: expected 0 to 1e9 ns beside the "
                    f"seconds, found {rest.min():g} to {rest.max():g}."
                )
            stamps = stamps + whole(rest)
    else:
        stamps = counted(path, n, mapping.log_rate)
    states, control = from_columns(path, joints, stamps, signals, mapping)
    return Capture(states, control, named=False)


def counted(path: Path, n: int, rate: float | None) -> Stamps:
    """Times (n,) ns of samples without stamps, from 0.

    Raises:
        InputError: The rate is not declared.
    """
    if rate is None:
        raise InputError(
            f"{path}: has no time stamps; declare the rate at which it was recorded in robot.yaml "
            "(`log_rate: 20`), or map a time (`fields: {time: ...}`)."
        )
    warnings.warn(
        f"{path}: has no time stamps; its {n} samples are taken to be {rate:g} Hz apart from 0 s "
        "(log_rate of robot.yaml).",
        CaptureWarning,
        stacklevel=2,
    )
    return whole(np.arange(n, dtype=np.float64) * (1e9 / rate))
