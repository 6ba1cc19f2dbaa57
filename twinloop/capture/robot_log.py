"""Read a robot's log of any kind: MCAP, ROS bags, CSV, HDF5, LeRobot.

Times are stamps of measurement on the robot's clock.  Which topic, column or data set is what, and
in which units, is said in ``robot.yaml`` (:class:`twinloop.capture.logs.mapping.LogMapping`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from twinloop.capture.logs.mapping import LogMapping
from twinloop.capture.logs.messages import capture_of
from twinloop.capture.logs.streams import Capture, RobotLog
from twinloop.capture.logs.units import in_si
from twinloop.errors import InputError
from twinloop.hand.model import RobotModel

__all__ = ["Capture", "LogMapping", "RobotLog", "read_capture_log", "read_robot_log"]

PLAIN = LogMapping()
"""ROS topics or plain columns, SI units."""
SUFFIXES = (".mcap", ".csv", ".bag", ".db3", ".hdf5", ".h5")
"""Suffixes of log files; a folder is a ROS 2 bag or a LeRobot data set."""


def read_robot_log(
    path: Path, mapping: LogMapping = PLAIN, robot: RobotModel | None = None
) -> RobotLog:
    """Read the measured joint states of a log, with the commands in force.

    Args:
        path: File or folder; see :func:`read_capture_log`.
        mapping: What ``robot.yaml`` says of the log.
        robot: The robot, to convert units and check limits; None for neither.

    Raises:
        InputError: As :func:`read_capture_log`, or the log holds no joint states.
    """
    states = _read(path, mapping, robot, only_joints=True).states
    if states is None:
        raise InputError(f"{path}: holds no joint states.")
    return states


def read_capture_log(
    path: Path, mapping: LogMapping = PLAIN, robot: RobotModel | None = None
) -> Capture:
    """Read all streams of a log.

    A file that was cut (power loss) is read as far as it goes, with a :class:`CaptureWarning` that
    says how much; HDF5 and Parquet cannot be, and are refused.

    Args:
        path: ``.mcap``, ``.bag``, ``.db3``, ``.csv``, ``.hdf5`` or ``.h5`` file, folder of a ROS 2
            bag, or folder of a LeRobot data set.
        mapping: What ``robot.yaml`` says of the log.
        robot: The robot, to convert units and check limits; None for neither.

    Raises:
        InputError: The file is missing or empty, of another kind, its stamps or joint names are
            inconsistent, or (with ``robot``) its values cannot be that robot's.
        MachineError: A package that reads this kind is not installed; names it.
    """
    return _read(path, mapping, robot, only_joints=False)


def _read(path: Path, mapping: LogMapping, robot: RobotModel | None, only_joints: bool) -> Capture:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{str(path)!a}: the name is no UTF-8; rename it.") from error
    if not path.is_dir():
        if not path.is_file():
            raise InputError(f"{path}: no such robot log. Check the capture folder's layout.")
        if path.stat().st_size == 0:
            raise InputError(f"{path}: the robot log has 0 bytes. Copy it again from the robot.")
    capture = _of_kind(path, mapping, only_joints)
    if robot is not None:
        return in_si(capture, mapping, robot, path)
    if (mapping.angle_unit, mapping.length_unit, mapping.effort_unit) != ("rad", "m", "N_or_Nm"):
        raise InputError(
            f"{path}: is declared to be in {mapping.angle_unit}, {mapping.length_unit} and "
            f"{mapping.effort_unit}; to convert it, the robot has to be known."
        )
    return capture


def _of_kind(path: Path, mapping: LogMapping, only_joints: bool) -> Capture:
    # Readers load as they are needed: most logs need no package beyond MCAP's.
    if path.is_dir():
        if (path / "meta" / "info.json").is_file():
            from twinloop.capture.logs.lerobot_log import read_lerobot_log

            return read_lerobot_log(path, mapping)
        from twinloop.capture.logs.bag_folder import folder_records

        return capture_of(path, mapping, partial(folder_records, path), only_joints)
    suffix = path.suffix.lower()
    if suffix == ".mcap":
        from twinloop.capture.logs.mcap_log import mcap_records

        return capture_of(path, mapping, partial(mcap_records, path), only_joints)
    if suffix == ".bag":
        from twinloop.capture.logs.bag_log import bag_records

        return capture_of(path, mapping, partial(bag_records, path), only_joints)
    if suffix == ".db3":
        from twinloop.capture.logs.bag_folder import db3_records

        return capture_of(path, mapping, partial(db3_records, path), only_joints)
    if suffix == ".csv":
        from twinloop.capture.logs.csv_log import read_csv_log

        return read_csv_log(path, mapping)
    if suffix in (".hdf5", ".h5"):
        from twinloop.capture.logs.hdf5_log import read_hdf5_log

        return read_hdf5_log(path, mapping)
    raise InputError(
        f"{path}: a robot log ends in {', '.join(SUFFIXES)}, or is a folder (ROS 2 bag, LeRobot "
        f"data set); not {path.suffix!r}."
    )
