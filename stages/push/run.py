"""Robot logs and tracks, side by side: tip motion, contact force, clock offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from stages.harness import Inputs
from stages.push.params import Params
from twinloop.capture.push_session import PushSession, load_session
from twinloop.capture.robot_log import RobotLog, read_robot_log
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.hand.model import RobotModel
from twinloop.progress import track
from twinloop.track.clock import Offset, combine, estimate_offset
from twinloop.track.contact_force import ContactForce, FreeMotion, separate
from twinloop.track.joint_signals import JointSignals, joint_signals, order_joints


def check_overlap(log: Path, robot: np.ndarray, frames: np.ndarray, largest: float) -> None:
    """Refuse a log that was not made during the video.

    Raises:
        InputError: Within the offsets allowed, log and video share less than half of the shorter.
    """
    low = max(robot[0], frames[0] - largest)
    high = min(robot[-1], frames[-1] + largest)
    shorter = min(robot[-1] - robot[0], frames[-1] - frames[0])
    if high - low < 0.5 * shorter:
        raise InputError(
            f"{log}: the log runs from {robot[0]:.3f} to {robot[-1]:.3f} s, the video from "
            f"{frames[0]:.3f} to {frames[-1]:.3f} s; they share {max(high - low, 0.0):.3f} s, "
            f"expected {0.5 * shorter:.3f} s at least. Logs of two pushes may be swapped; if the "
            f"clocks differ by more than {largest} s, subtract the difference from the log, or "
            "raise push.largest_offset."
        )


def check_reach(log: Path, signals: JointSignals, positions: np.ndarray) -> None:
    """Refuse a log whose fingertip never comes near the tracked object (another push's log).

    Raises:
        InputError: The tip stays over 0.5 m away from the object.
    """
    gap = np.linalg.norm(signals.tip[:, None, :2] - positions[None, ::4, :2], axis=2).min()
    if gap > 0.5:
        raise InputError(
            f"{log}: the fingertip never comes nearer to the object than {gap:.2f} m, expected "
            "below 0.5 m. Check T_world_base and tip in robot.yaml, and whose log this is."
        )


def signals_of(
    session: PushSession, robot: RobotModel, log: RobotLog, where: Path, params: Params
) -> JointSignals:
    """Smoothed signals of a log, in the robot's joint order."""
    names = tuple(log.joints)
    position, velocity, effort, command = (
        order_joints(robot, names, values, where)
        for values in (log.position, log.velocity, log.effort, log.command)
    )
    if np.isnan(effort).all():
        raise InputError(
            f"{where}: holds no efforts, so no contact force can be found; log the motors' efforts "
            "(N, N m) in JointState.effort or in columns effort_<joint>."
        )
    # What a robot does not report is made of what it does: speed from position, no command means
    # that it stays.
    velocity = np.where(np.isnan(velocity), np.gradient(position, log.time, axis=0), velocity)
    command = np.where(np.isnan(command), position, command)
    columns = (position, velocity, effort, command)
    return joint_signals(
        robot,
        session.robot.T_world_base.matrix,
        session.robot.tip,
        log.time,
        *columns,
        rate=session.robot.log_rate,
        sigma=params.smoothing,
        where=where,
    )


def offset_of(
    signals: JointSignals, force: ContactForce, tracked: xr.Dataset, params: Params
) -> Offset | None:
    """The push's own clock offset, or None."""
    poses = se3.from_position_quaternion(
        tracked["position_world_object"].values, tracked["quaternion_world_object"].values
    )
    return estimate_offset(
        signals.time,
        signals.tip,
        force.force,
        force.touching,
        tracked["time"].values,
        poses,
        tracked["status"].values < 2,
        largest=params.largest_offset,
        sigma=params.pose_sigma,
    )


def check_match(
    folder: Path, names: list[str], offsets: list[Offset | None], largest: float
) -> None:
    """Refuse logs and videos that show different pushes, for example swapped clips.

    While finger and object touch, the finger's distance to the touched face is constant on the
    right clocks: 0.1 to 0.6 mm rms where log and video belong together, 3 mm and more where not.

    Raises:
        InputError: No clock offset makes it constant; names the pushes and the value of each.
    """
    wrong = {
        name: offset.residual
        for name, offset in zip(names, offsets, strict=True)
        if offset is not None and offset.residual > largest
    }
    if wrong:
        listed = ", ".join(f"{name} ({value * 1e3:.1f} mm)" for name, value in wrong.items())
        raise InputError(
            f"{folder}: while the finger touches the object, its distance to it should be constant "
            f"within {largest * 1e3:.1f} mm rms, but no clock offset makes it so in {listed}: the "
            "robot's log and the video show different pushes. Check whether clips or logs were "
            "swapped; `push.largest_mismatch` in params.yaml raises the limit."
        )


def group(
    signals: JointSignals, force: ContactForce, tracked: xr.Dataset, offset: Offset, radius: float
) -> xr.Dataset:
    """One push's group of the artifact."""
    measured = bool(np.isfinite(offset.residual))
    return xr.Dataset(
        {
            "robot_time": ("sample", signals.time),
            "tip_position": (("sample", "xyz"), signals.tip),
            "tip_velocity": (("sample", "xyz"), signals.tip_velocity),
            "contact_force": (("sample", "xyz"), force.force),
            "contact_force_std": (("sample", "xyz"), force.std),
            "frame_time": ("frame", tracked["time"].values),
            "position_world_object": (("frame", "xyz"), tracked["position_world_object"].values),
            "quaternion_world_object": (
                ("frame", "wxyz"),
                tracked["quaternion_world_object"].values,
            ),
            "covariance": (("frame", "twist", "twist_"), tracked["covariance"].values),
            "status": ("frame", tracked["status"].values),
            "clock_offset": ((), offset.value),
            "clock_offset_std": ((), offset.std),
        },
        attrs={
            "tip_radius": radius,
            "contact_time": float(force.touching.sum() * (signals.time[1] - signals.time[0])),
            "clock_measured": measured,
            "clock_residual_m": float(offset.residual) if measured else None,
        },
    )


def joint_array(signals: JointSignals) -> xr.DataArray:
    """Smoothed joint signals (sample, signal, joint)."""
    stacked = np.stack(
        [signals.position, signals.velocity, signals.effort, signals.command], axis=1
    )
    return xr.DataArray(stacked, dims=("sample", "signal", "joint"))


def free_motion_attrs(robot: RobotModel, model: FreeMotion, tip: str) -> dict[str, Any]:
    """The free-motion model of the joints that carry the tip, as attributes."""
    std = np.sqrt(np.diagonal(model.covariance, axis1=1, axis2=2))
    terms = ("rotor", "viscous", "coulomb", "links", "bias")
    return {
        "tip": tip,
        "joints": list(robot.joint_names),
        "free_motion": {
            robot.joint_names[j]: {
                **{t: float(model.value[j, k]) for k, t in enumerate(terms)},
                **{f"{t}_std": float(std[j, k]) for k, t in enumerate(terms)},
                "residual": float(model.residual[j]),
            }
            for j in robot.chain(robot.tip(tip).link)
        },
    }


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Process every push that was tracked."""
    session = load_session(inputs.raw / "push")
    robot = RobotModel.load(session.robot.robot)
    tracks = inputs.artifacts["track"]
    signals, tracked = [], []
    for push in track(session.pushes, "robot logs"):
        path = session.log(push.name)
        log = read_robot_log(path)
        data = tracks[push.name].to_dataset().load()
        check_overlap(path, log.time, data["time"].values, params.largest_offset)
        found = signals_of(session, robot, log, path, params)
        if (data["status"].values < 2).any():
            check_reach(path, found, data["position_world_object"].values)
        signals.append(found)
        tracked.append(data)
    model, forces = separate(
        robot,
        signals,
        session.robot.tip,
        margin=params.contact_margin,
        still=params.still_time,
    )
    own = [offset_of(s, f, d, params) for s, f, d in zip(signals, forces, tracked, strict=True)]
    names = [push.name for push in session.pushes]
    check_match(inputs.raw / "push", names, own, params.largest_mismatch)
    offsets = (
        combine(own, params.offset_floor, params.largest_offset)
        if params.share_clock
        else [combine([o], params.offset_floor, params.largest_offset)[0] for o in own]
    )
    groups = {"/": xr.Dataset(attrs=free_motion_attrs(robot, model, session.robot.tip))}
    for push, s, f, d, o in zip(session.pushes, signals, forces, tracked, offsets, strict=True):
        data = group(s, f, d, o, robot.tip_radius)
        if params.keep_joints:
            data["joint_signals"] = joint_array(s)
        groups[f"/{push.name}"] = data.assign_attrs(action=push.action, held_out=push.held_out)
    return groups
