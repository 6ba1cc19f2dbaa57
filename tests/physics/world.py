"""An independent world for the tests: MuJoCo, a box, and a position-driven sphere that pushes it.

It shares no code with the estimator. Contact, friction cone and integrator are MuJoCo's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from twinloop.physics.record import PushRecord

TIP_RADIUS = 0.01


@dataclass(frozen=True)
class HiddenObject:
    """Ground truth of a box: half sizes (m), mass (kg), frictions, CoM (m), gyration radii (m)."""

    half: np.ndarray
    mass: float
    friction: float
    tip_friction: float
    com: np.ndarray
    gyration: np.ndarray


def hidden_object(half, mass, seed, friction=None):
    """Draw friction, CoM and inertia away from a uniform body's."""
    rng = np.random.default_rng([seed, 7])
    half = np.asarray(half, float)
    k = np.sqrt((half @ half - half**2) / 3)
    return HiddenObject(
        half=half,
        mass=mass,
        friction=rng.uniform(0.2, 0.45) if friction is None else friction,
        tip_friction=rng.uniform(0.3, 0.8),
        com=half * rng.uniform([-0.12, -0.12, -0.2], [0.12, 0.12, 0.1]),
        gyration=k * rng.uniform(0.9, 1.1, 3),
    )


def _model(hidden):
    h, c = hidden.half, hidden.com
    inertia = hidden.mass * hidden.gyration**2
    return mujoco.MjModel.from_xml_string(
        f"""<mujoco><option timestep="0.0005" integrator="implicitfast" cone="elliptic"
 impratio="10" gravity="0 0 -9.81"/>
<default><geom solref="0.01 1" solimp="0.9 0.98 0.001"/></default>
<worldbody><geom type="plane" size="2 2 .1" friction="{hidden.friction} .003 .0001" condim="4"
 priority="1" contype="1" conaffinity="1"/>
<body pos="0 0 {h[2]}"><freejoint/>
<inertial pos="{c[0]} {c[1]} {c[2]}" mass="{hidden.mass}"
 diaginertia="{inertia[0]} {inertia[1]} {inertia[2]}"/>
<geom name="box" type="box" size="{h[0]} {h[1]} {h[2]}" friction="{hidden.tip_friction} .003 .0001"
 contype="3" conaffinity="3"/></body>
<body name="push" gravcomp="1"><joint name="px" type="slide" axis="1 0 0"/>
<joint name="py" type="slide" axis="0 1 0"/><joint name="pz" type="slide" axis="0 0 1"/>
<geom name="tip" type="sphere" size="{TIP_RADIUS}" friction="{hidden.tip_friction} .003 .0001"
 contype="2" conaffinity="2" mass="0.2"/></body></worldbody>
<actuator><position joint="px" kp="400" kv="35"/><position joint="py" kp="400" kv="35"/>
<position joint="pz" kp="400" kv="35"/></actuator></mujoco>"""
    )


def push_command(hidden, kind, side, offset, dt, seconds):
    """Tip path (T, 3) and the object's yaw so that the tip always comes along +x."""
    h = hidden.half
    yaw = side * np.pi / 2
    depth = h[0] if side % 2 == 0 else h[1]
    width = h[1] if side % 2 == 0 else h[0]
    height = {"slide": 0.8, "tap": 0.95, "tilt": 1.8}[kind] * h[2]
    speed = {"slide": 0.06, "tap": 0.35, "tilt": 0.06}[kind]
    travel = {"slide": 0.05, "tap": 0.03, "tilt": 0.55 * depth}[kind]
    t = np.arange(int(seconds / dt)) * dt
    begin, gap = 0.4, 0.02
    start = -(depth + TIP_RADIUS + gap)
    forth = begin + (gap + travel) / speed
    x = start + np.clip((t - begin) * speed, 0, gap + travel)
    hold = 0.15 if kind == "tilt" else 0.02
    back = np.clip((t - forth - hold) * max(speed, 0.1), 0, gap + travel)
    path = np.stack([x - back, np.full_like(t, offset * width), np.full_like(t, height)], axis=1)
    kernel = np.hanning(81)
    smooth = np.stack(
        [np.convolve(np.pad(p, 40, mode="edge"), kernel / kernel.sum(), "valid") for p in path.T],
        axis=1,
    )
    return smooth, yaw


def run_push(
    hidden,
    kind,
    side,
    offset,
    *,
    seed=0,
    name="push_000",
    held_out=False,
    offset_clock=0.04,
    pose_noise=(1.0e-3, 0.012),
    force_noise=0.05,
    gain=1.0,
    coulomb=0.0,
    bias=(0.0, 0.0, 0.0),
    tip_noise=2e-5,
    seconds=2.2,
):
    """Simulate one push and log it as a robot and a tracker would."""
    rng = np.random.default_rng([seed, 11])
    model = _model(hidden)
    data = mujoco.MjData(model)
    dt = model.opt.timestep
    path, yaw = push_command(hidden, kind, side, offset, dt, seconds)
    data.qpos[:7] = [0, 0, hidden.half[2], np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
    data.qpos[7:10] = path[0]
    mujoco.mj_forward(model, data)
    tip_geom = model.geom("tip").id
    rows = []
    for target in path:
        data.ctrl[:] = target
        force = np.zeros(3)
        for c in range(data.ncon):
            contact = data.contact[c]
            if tip_geom in (contact.geom1, contact.geom2):
                local = np.zeros(6)
                mujoco.mj_contactForce(model, data, c, local)
                sign = 1.0 if contact.geom1 == tip_geom else -1.0
                force += sign * contact.frame.reshape(3, 3).T @ local[:3]
        rows.append(np.concatenate([data.qpos, data.qvel[6:9], force]))
        mujoco.mj_step(model, data)
    rows = np.array(rows)
    time = np.arange(len(rows)) * dt
    robot_time = np.arange(0.0, time[-1], 1 / 300)
    at = lambda t, column: np.interp(t, time, rows[:, column])  # noqa: E731
    log = np.stack([at(robot_time, c) for c in range(16)], axis=1)
    velocity = log[:, 10:13]
    speed = np.linalg.norm(velocity, axis=1, keepdims=True)
    # A motor's effort is a mean over the sample, not a snapshot: an impact is shorter than that.
    impulse = np.concatenate([np.zeros((1, 3)), np.cumsum(rows[:, 13:16], axis=0) * dt])
    clock = np.arange(len(impulse)) * dt
    edges = np.stack([robot_time - 0.5 / 300, robot_time + 0.5 / 300])
    mean = [np.diff(np.interp(edges, clock, impulse[:, i]), axis=0)[0] * 300 for i in range(3)]
    force = gain * np.stack(mean, axis=1) + coulomb * velocity / (speed + 2e-3)
    force = force + rng.normal(0, force_noise, force.shape)
    frame_time = np.arange(0.0, time[-1] - 0.1, 1 / 60)
    frame_time = frame_time[(rng.random(len(frame_time)) > 0.1) | (frame_time < 0.1)]
    seen = np.clip(frame_time + offset_clock, 0, time[-1])
    q = np.stack([at(seen, c) for c in range(3, 7)], axis=1)
    R = Rotation.from_quat(q[:, [1, 2, 3, 0]] / np.linalg.norm(q, axis=1, keepdims=True))
    noisy = Rotation.from_rotvec(rng.normal(0, pose_noise[1], (len(seen), 3))) * R
    position = np.stack([at(seen, c) for c in range(3)], axis=1)
    position = position + np.asarray(bias) + rng.normal(0, pose_noise[0], position.shape)
    covariance = np.diag([pose_noise[0] ** 2] * 3 + [pose_noise[1] ** 2] * 3)
    return PushRecord(
        name=name,
        held_out=held_out,
        robot_time=robot_time,
        tip_position=log[:, 7:10] + rng.normal(0, tip_noise, (len(log), 3)),
        tip_velocity=velocity + rng.normal(0, 2e-3, velocity.shape),
        contact_force=force,
        contact_force_std=np.full(force.shape, max(force_noise, 0.02)),
        frame_time=frame_time,
        position=position,
        quaternion=noisy.as_quat()[:, [3, 0, 1, 2]],
        covariance=np.tile(covariance, (len(seen), 1, 1)),
        usable=np.ones(len(seen), bool),
        clock_offset=offset_clock + rng.normal(0, 2e-3),
        clock_offset_std=2e-3,
        tip_radius=TIP_RADIUS,
    )


STANDARD = (
    ("tilt", 0, 0.0),
    ("tilt", 2, 0.0),
    ("slide", 1, 0.4),
    ("tap", 0, 0.45),
    ("tilt", 3, 0.0),
    ("tap", 1, -0.3),
)


def push_set(hidden, seed, kinds=STANDARD, **noise):
    """The standard pushes of an object, in order."""
    return [
        run_push(hidden, *kind, seed=100 * seed + i, name=f"push_{i:03d}", **noise)
        for i, kind in enumerate(kinds)
    ]
