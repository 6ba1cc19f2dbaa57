"""Run one grasp in a MuJoCo world: approach from above, close until touch, squeeze, lift, hold.

The executor works on any `MjModel` that holds the robot under its own names, and acts on what a
real robot measures only: joint positions and efforts. Object pose and contacts are read for scoring
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import mujoco
import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import quaternion, se3
from twinloop.policy.grasp import Grasp
from twinloop.policy.world import World, level

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RolloutSettings:
    """Times and thresholds of a grasp.

    Attributes:
        approach_height: the wrist starts this far above the grasp, m.
        lift: height to lift, m.
        needed: an object counts as lifted above this height, m.
        approach, close, squeeze, lift_time, hold: durations of the phases, s.
        touch: a finger stops closing when its measured force along its direction exceeds this, N.
        travel: how far a pad may move beyond the planned contact when nothing is felt, m.
        rate: control rate, Hz.
        gain: rate at which a difference between wanted and measured force is corrected, 1/s.
    """

    approach_height: float = 0.08
    lift: float = 0.1
    needed: float = 0.05
    approach: float = 0.6
    close: float = 0.7
    squeeze: float = 0.6
    lift_time: float = 0.8
    hold: float = 1.0
    touch: float = 0.4
    travel: float = 0.012
    rate: float = 100.0
    gain: float = 4.0


@dataclass(frozen=True)
class Squeeze:
    """What the grip presses with.

    Attributes:
        forces: (tip,) normal force of each pad, N; zeros hold the touch and no more.
        payload: mass the arm expects to lift, kg (0 when the policy does not know it).
    """

    forces: Array
    payload: float = 0.0


@dataclass
class Outcome:
    """What happened in one rollout.

    Attributes:
        success: the object is higher than `needed` at the end and never fell during the hold.
        lifted: height it gained at the end, m (nan if the world blew up).
        slip: how far it moved in the wrist frame from the end of the squeeze to the end, m.
        tilt: how far it turned in the wrist frame meanwhile, rad.
        side_force: mean normal force of the finger side and the thumb side during the hold, N.
        peak_force: largest normal force of any pad, N.
        saturated: joints whose effort limit the squeeze would exceed.
        touched: (tip,) which fingers felt the object when closing.
        trace: arrays over control steps: `time` s, `height` m, `pad_force` (step, tip) N.
    """

    success: bool
    lifted: float
    slip: float
    tilt: float
    side_force: tuple[float, float]
    peak_force: float
    saturated: list[str]
    touched: NDArray[np.bool_]
    trace: dict[str, Array] = field(default_factory=dict)


class Controller:
    """The policy's motor part: commands from the clock and the robot's own measurements.

    Args:
        world: index maps (for the robot's kinematics).
        grasp: posture and contacts, object frame.
        squeeze: forces to press with.
        believed: (4, 4) `T_world_object` that the policy believes.
        settings: times and thresholds.
    """

    def __init__(
        self,
        world: World,
        grasp: Grasp,
        squeeze: Squeeze,
        believed: Array,
        settings: RolloutSettings,
    ) -> None:
        kinematics = world.kinematics
        self.world, self.grasp, self.squeeze, self.settings = world, grasp, squeeze, settings
        self.robot, self.arm, self.hand = kinematics.model, kinematics.arm, kinematics.hand
        T_base_wrist = se3.inverse(world.base) @ level(believed) @ grasp.T_object_wrist
        self.arm_goal = kinematics.arm_for_wrist(T_base_wrist)
        self.arm_start = kinematics.arm_for_wrist(
            self._raised(T_base_wrist, settings.approach_height)
        )
        self.arm_lift = kinematics.arm_for_wrist(self._raised(T_base_wrist, settings.lift))
        # The expected weight bends the arm's spring: command the sag away beforehand.
        up = np.array([abs(self.robot.joints[i].axis[2]) > 0.9 for i in self.arm])
        vertical = up & self.robot.prismatic[self.arm]
        self.sag = np.zeros(len(self.arm))
        gravity = abs(float(world.model.opt.gravity[2]))
        self.sag[vertical] = squeeze.payload * gravity / self._stiffness(self.arm)[vertical]
        self.pressing = grasp.pressing @ grasp.T_object_wrist[:3, :3]
        _, jacobian = kinematics.tips(grasp.joints)
        self.owners = [np.flatnonzero(np.abs(block).max(axis=0) > 1e-9) for block in jacobian]
        self.beyond = np.clip(
            grasp.joints + _inward_step(jacobian, settings.travel * self.pressing),
            kinematics.lower,
            kinematics.upper,
        )
        self.ends = np.cumsum(
            [
                settings.approach,
                settings.close,
                settings.squeeze,
                settings.lift_time,
                settings.hold,
            ]
        )
        self.touched = np.zeros(len(self.robot.tips), dtype=bool)
        self.held = grasp.joints.copy()
        self.settled = False
        self.correction = np.zeros(len(self.robot.tips))
        self.saturated: set[str] = set()
        self.command = np.zeros(self.robot.dof)
        self.command[self.arm], self.command[self.hand] = self.arm_start, grasp.open_joints

    def _raised(self, T_base_wrist: Array, height: float) -> Array:
        result = T_base_wrist.copy()
        result[:3, 3] += se3.inverse(self.world.base)[:3, 2] * height
        return result

    def _stiffness(self, joints: Array) -> Array:
        gains: Array = self.robot.gains[joints, 0]
        return gains

    def step(self, now: float, period: float, data: mujoco.MjData) -> Array:
        """Joint commands (dof,) at time `now`, s, for the next `period`, s."""
        hand = data.qpos[self.world.qpos][self.hand]
        effort = data.actuator_force[self.world.actuators][self.hand]
        jacobian = self.world.tip_jacobians(data)
        direction = self.pressing @ self.world.wrist_rotation(data).T
        felt = _felt_forces(jacobian, effort, direction)
        if now < self.ends[0]:
            part = _ease(now / self.ends[0])
            self.command[self.arm] = self.arm_start + part * (self.arm_goal - self.arm_start)
        elif now < self.ends[1]:
            self._close((now - self.ends[0]) / self.settings.close, hand, felt)
        else:
            self._press(now, period, hand, felt, jacobian, direction)
        if now >= self.ends[2]:
            part = _ease((now - self.ends[2]) / self.settings.lift_time)
            lifted = self.arm_goal + part * (self.arm_lift - self.arm_goal)
            self.command[self.arm] = lifted + min(1.0, 4.0 * part) * self.sag
        return self.command

    def _close(self, part: float, hand: Array, felt: Array) -> None:
        """Each finger moves in until it feels the object, whichever comes first."""
        target = self.grasp.open_joints + part * (self.beyond - self.grasp.open_joints)
        for tip, columns in enumerate(self.owners):
            if self.touched[tip]:
                continue
            if felt[tip] > self.settings.touch and part > 0.1:
                self.touched[tip] = True
                self.held[columns] = hand[columns]
            else:
                self.command[self.hand[columns]] = target[columns]

    def _press(
        self, now: float, period: float, hand: Array, felt: Array, jacobian: Array, direction: Array
    ) -> None:
        """Impedance targets beyond the touch, so that J^T F is the springs' effort."""
        if not self.settled:
            for tip, columns in enumerate(self.owners):
                if not self.touched[tip]:
                    self.held[columns] = hand[columns]
            self.settled = True
        ramp = _ease((now - self.ends[1]) / (0.6 * self.settings.squeeze))
        wanted = np.maximum(ramp * self.squeeze.forces, self.settings.touch)
        if ramp >= 1.0 and now < self.ends[2]:
            # The springs relax as pads and object give way: close the loop on the measured force.
            self.correction += self.settings.gain * period * (wanted - felt)
            self.correction = np.clip(self.correction, -0.3 * wanted, 0.5 * wanted)
        pressed = (wanted + self.correction)[:, None] * direction
        torque = np.einsum("tin,ti->n", jacobian, pressed)
        limit = self.robot.effort_limits[self.hand]
        if ramp >= 1.0:
            self.saturated.update(
                self.robot.joint_names[i] for i in self.hand[np.abs(torque) >= limit]
            )
        torque = np.clip(torque, -limit, limit)
        self.command[self.hand] = self.held + torque / self._stiffness(self.hand)


def execute(
    world: World,
    grasp: Grasp,
    squeeze: Squeeze,
    T_world_object: Array,
    believed: Array | None = None,
    settings: RolloutSettings | None = None,
    on_frame: Callable[[mujoco.MjData], None] | None = None,
) -> Outcome:
    """Grasp, lift and hold once.

    Args:
        world: the world and its index maps.
        grasp: what to do, in the object frame.
        squeeze: forces to press with, ordered as the robot's tips.
        T_world_object: (4, 4) where the object's body really stands in this world.
        believed: (4, 4) where the policy thinks its object frame stands; the true pose if None.
            Also
            carries a known difference between the world's object frame and the policy's.
        settings: times and thresholds.
        on_frame: called once per control step (for pictures).

    Returns:
        The outcome; a world that blows up counts as a failure.
    """
    settings = settings or RolloutSettings()
    model = world.model
    data = mujoco.MjData(model)
    world.place(data, T_world_object)
    seen = T_world_object if believed is None else believed
    controller = Controller(world, grasp, squeeze, seen, settings)
    data.qpos[world.qpos] = controller.command
    data.ctrl[world.actuators] = controller.command
    mujoco.mj_forward(model, data)
    start = float(data.xipos[world.body, 2])
    skip = max(1, round(1.0 / settings.rate / float(model.opt.timestep)))
    period = skip * float(model.opt.timestep)
    gripped = world.object_in_wrist(data)
    times: list[float] = []
    heights: list[float] = []
    pads: list[Array] = []
    for tick in range(int(np.ceil(controller.ends[-1] / period))):
        now = tick * period
        data.ctrl[world.actuators] = controller.step(now, period, data)
        mujoco.mj_step(model, data, skip)
        if not np.isfinite(data.qpos).all():
            break
        times.append(now)
        heights.append(float(data.xipos[world.body, 2]) - start)
        pads.append(world.pad_forces(data))
        if now < controller.ends[2] <= now + period:
            gripped = world.object_in_wrist(data)
        if on_frame is not None:
            on_frame(data)
    trace = {
        "time": np.array(times),
        "height": np.array(heights),
        "pad_force": np.array(pads).reshape(-1, len(controller.robot.tips)),
    }
    return _score(world, controller, data, gripped, trace)


def _score(
    world: World,
    controller: Controller,
    data: mujoco.MjData,
    gripped: Array,
    trace: dict[str, Array],
) -> Outcome:
    settings = controller.settings
    finite = bool(np.isfinite(data.qpos).all()) and len(trace["time"]) > 0
    holding = trace["time"] > controller.ends[3] + 0.3 * settings.hold
    held = trace["height"][holding]
    change = se3.inverse(gripped) @ world.object_in_wrist(data) if finite else np.eye(4)
    mean = trace["pad_force"][holding].mean(axis=0) if holding.any() else np.zeros(len(gripped))
    along = controller.grasp.normals @ controller.grasp.closing
    turn = quaternion.angle(quaternion.from_matrix(change[:3, :3]), np.array([1.0, 0.0, 0.0, 0.0]))
    return Outcome(
        success=bool(finite and len(held) and held.min() > settings.needed),
        lifted=float(trace["height"][-1]) if finite else float("nan"),
        slip=float(np.linalg.norm(change[:3, 3])),
        tilt=float(turn),
        side_force=(float(mean[along > 0].sum()), float(mean[along <= 0].sum())),
        peak_force=float(trace["pad_force"].max(initial=0.0)),
        saturated=sorted(controller.saturated),
        touched=controller.touched,
        trace=trace,
    )


def _ease(part: float) -> float:
    """Cubic ease from 0 to 1 with zero speed at both ends; held outside."""
    part = min(max(part, 0.0), 1.0)
    return part * part * (3.0 - 2.0 * part)


def _felt_forces(jacobian: Array, effort: Array, direction: Array) -> Array:
    """Force of each pad along its direction that explains the joint efforts, (tip,) N.

    Least squares of J^T f = tau per finger (three unknowns, four joints), projected on the
    direction.
    """
    gram = jacobian @ np.swapaxes(jacobian, 1, 2) + 1e-8 * np.eye(3)
    force = np.linalg.solve(gram, (jacobian @ effort)[..., None])[..., 0]
    felt: Array = (force * direction).sum(axis=1)
    return felt


def _inward_step(jacobian: Array, motion: Array) -> Array:
    """Smallest hand joint step (n,) that moves each pad by `motion` (tip, 3) m to first order."""
    gram = jacobian @ np.swapaxes(jacobian, 1, 2) + 1e-6 * np.eye(3)
    pull = np.linalg.solve(gram, motion[..., None])[..., 0]
    step: Array = np.einsum("tin,ti->n", jacobian, pull)
    return step
