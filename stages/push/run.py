"""Robot logs and tracks, side by side: tip motion, contact force, clock offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from stages.harness import Inputs
from stages.push.params import Params
from twinloop.capture.logs.streams import ControlLog
from twinloop.capture.push_session import PushSession, load_session
from twinloop.capture.robot_log import RobotLog, read_capture_log
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.hand.model import RobotModel
from twinloop.progress import track
from twinloop.tracking.clock import Offset
from twinloop.tracking.contact_force import ContactForce, FreeMotion, separate
from twinloop.tracking.impact import find_pulse
from twinloop.tracking.joint_signals import JointSignals, joint_signals, order_joints
from twinloop.tracking.session_clock import Clip, Log, Settings, session_offsets


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


def clip_of(name: str, tracked: xr.Dataset) -> Clip:
    """The object in one push's video, as the clocks need it."""
    poses = se3.from_position_quaternion(
        tracked["position_world_object"].values, tracked["quaternion_world_object"].values
    )
    return Clip(name, tracked["time"].values, poses, tracked["status"].values < 2)


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


def control_array(robot: RobotModel, control: ControlLog, where: Path) -> xr.DataArray:
    """Commands as logged (command, target, joint), apart from what was measured."""
    nothing = np.full_like(control.position, np.nan)
    columns = [
        np.broadcast_to(control.time[:, None], control.position.shape),
        control.position,
        control.velocity,
        control.effort,
        nothing if control.stiffness is None else control.stiffness,
        nothing if control.damping is None else control.damping,
    ]
    ordered = [order_joints(robot, tuple(control.joints), column, where) for column in columns]
    return xr.DataArray(np.stack(ordered, axis=1), dims=("command", "target", "joint"))


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
    signals, tracked, controls = [], [], []
    for push in track(session.pushes, "robot logs"):
        path = session.log(push.name)
        capture = read_capture_log(path, session.robot, robot)
        log = capture.states
        if log is None:
            raise InputError(f"{path}: holds no joint states, so no contact force can be found.")
        controls.append(capture.control)
        data = tracks[push.name].to_dataset().load()
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
    chain = robot.chain(robot.tip(session.robot.tip).link)
    offsets = session_offsets(
        [
            Log(session.log(push.name), s, f, find_pulse(s, model, chain))
            for push, s, f in zip(session.pushes, signals, forces, strict=True)
        ],
        [clip_of(push.name, d) for push, d in zip(session.pushes, tracked, strict=True)],
        session.robot.clock,
        Settings(
            largest=params.largest_offset,
            mismatch=params.largest_mismatch,
            pose_sigma=params.pose_sigma,
            floor=params.offset_floor,
            smoothing=params.smoothing,
            common_std=params.common_std,
            share=params.share_clock,
        ),
    )
    groups = {"/": xr.Dataset(attrs=free_motion_attrs(robot, model, session.robot.tip))}
    rows = zip(session.pushes, signals, forces, tracked, offsets, controls, strict=True)
    for push, s, f, d, o, control in rows:
        data = group(s, f, d, o, robot.tip_radius)
        if params.keep_joints:
            data["joint_signals"] = joint_array(s)
        if control is not None:
            data["control"] = control_array(robot, control, session.log(push.name))
            data = data.assign_attrs(control_delay=control.delay)
        groups[f"/{push.name}"] = data.assign_attrs(action=push.action, held_out=push.held_out)
    return groups
