"""The push session: which pushes, rehearsed until they show something, then run for the record.

The operator is part of the lab: like a person at the bench he tries a push, sees that the object
tips too little or slides too far, and tries again. Only what he finally does is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.hand.model import RobotModel
from twinloop.lab.actions import plan
from twinloop.lab.objects import LabObject
from twinloop.lab.spec import PushSpec
from twinloop.lab.world import LOG_RATE, RobotTruth, Rollout, build_world, simulate

FloatArray = NDArray[np.float64]

TILT_SHARE = (0.25, 0.6)
"""A tilt should reach this part of the angle at which a uniform box would topple."""
PATIENCE = 1.2
"""s that a clip may be longer than planned, until the object stands still."""
TRAVEL = (0.015, 0.06)
"""m that a tap or slide should move the object."""


@dataclass(frozen=True)
class RecordedPush:
    """One recorded push: what was done, where the object stood, what happened."""

    name: str
    spec: PushSpec
    T_world_object: FloatArray
    rollout: Rollout


def placement(push: PushSpec, rng: np.random.Generator) -> FloatArray:
    """Pose ``T_world_object`` (4, 4) in which the object is put for a push.

    It stands near the origin, turned so that the finger comes from the camera's left or right and
    hides little.
    """
    base = 0.0 if -90.0 < (push.direction + 180.0) % 360.0 - 180.0 <= 90.0 else 180.0
    yaw = np.deg2rad(base - push.direction + rng.uniform(-5.0, 5.0))
    position = np.array([*rng.uniform(-0.004, 0.004, 2), 0.0])
    return se3.from_position_quaternion(position, quaternion.from_rotvec([0.0, 0.0, yaw]))


def auto_pushes(size: FloatArray) -> tuple[PushSpec, ...]:
    """A session for any upright object, from its bounding box (3,) m alone.

    Tilts about the edges it tips over most easily (weight and its height), one fast tap off centre
    with a free coast and one through the middle (friction, weight, turning inertia), one slow slide
    off centre; two more with other contact points and speeds are held out.
    """
    thin = 0.0 if size[0] <= size[1] else 90.0
    wide = 90.0 - thin
    low, broad = sliding_height(size, thin), sliding_height(size, wide)
    return (
        PushSpec(action="tilt", direction=thin, height=0.88, offset=0.0, speed=0.12),
        PushSpec(action="tilt", direction=thin + 180, height=0.88, offset=0.2, speed=0.12),
        PushSpec(action="tap", direction=wide, height=broad, offset=0.5, speed=0.35, distance=0.02),
        PushSpec(
            action="slide", direction=thin, height=low, offset=0.35, speed=0.09, distance=0.04
        ),
        PushSpec(action="tilt", direction=wide, height=0.85, offset=0.1, speed=0.12),
        PushSpec(
            action="tap", direction=thin + 180, height=low, offset=-0.15, speed=0.35, distance=0.02
        ),
        PushSpec(
            action="tilt", direction=thin, height=0.78, offset=-0.25, speed=0.10, held_out=True
        ),
        PushSpec(
            action="tap",
            direction=wide + 180,
            height=broad,
            offset=-0.4,
            speed=0.30,
            distance=0.02,
            held_out=True,
        ),
    )


def sliding_height(size: FloatArray, direction: float) -> float:
    """Height (fraction) at which a push along an axis slides a box rather than tips it.

    A box of half depth b slides where height < b / mu; mu is guessed as 0.6 to be on the safe side.
    """
    depth = float(size[0] if abs(np.cos(np.deg2rad(direction))) > 0.5 else size[1])
    return float(np.clip(min(0.35, 0.5 * depth / 0.6 / size[2]), 0.02 / size[2], 0.7))


def topple_angle(size: FloatArray, direction: float) -> float:
    """Angle (rad) at which a uniform box of ``size`` (3,) m topples along ``direction``."""
    angle = np.deg2rad(direction)
    half = 0.5 * (abs(np.cos(angle)) * size[0] + abs(np.sin(angle)) * size[1])
    # Along a diagonal the true half extent lies between; the smaller of the two is the safe one.
    half = min(half, 0.5 * max(size[0], size[1]))
    return float(np.arctan2(half, 0.5 * size[2]))


def outcome(push: PushSpec, rollout: Rollout, size: FloatArray) -> int:
    """-1 too little, 0 right, +1 too much, by the goal of the action."""
    tilt = rollout.tilt()
    fallen = bool(tilt[-1] > 0.2)
    if push.action == "flick":
        return 0 if tilt[-1] > 1.0 else -1
    if push.action == "tilt":
        share = float(tilt.max()) / topple_angle(size, push.direction)
        if fallen or share > TILT_SHARE[1]:
            return 1
        return -1 if share < TILT_SHARE[0] else 0
    if push.action == "lift":
        return 0
    states = rollout.qpos[:, -7:]
    travel = float(np.linalg.norm(states[-1, :2] - states[0, :2]))
    if fallen or travel > TRAVEL[1]:
        return 1
    return -1 if travel < TRAVEL[0] else 0


def scaled(push: PushSpec, factor: float, size: FloatArray) -> PushSpec:
    """The push with more or less of what its action is about: reach of a tilt, speed of a tap."""
    if push.action in ("tilt", "slide"):
        return push.model_copy(
            update={"distance": float(np.clip(push.distance * factor, 5e-3, 0.3))}
        )
    speed = float(np.clip(push.speed * factor, 0.05, 1.5))
    if push.action == "flick":
        return push.model_copy(update={"speed": speed})
    # A heavy object needs a longer push as much as a faster one.
    distance = float(np.clip(push.distance * factor, 2e-3, 0.05))
    return push.model_copy(update={"speed": min(speed, 0.6), "distance": distance})


def first_guess(push: PushSpec, size: FloatArray) -> PushSpec:
    """A tilt's reach along the arc for 45 % of the topple angle; other actions as they are."""
    if push.action != "tilt":
        return push
    reach = 0.45 * topple_angle(size, push.direction) * push.height * float(size[2])
    return push.model_copy(update={"distance": reach + 0.006})


def instead(push: PushSpec, size: FloatArray) -> PushSpec:
    """What to try where a push cannot be done: a tap for a tilt that slides, else a tilt."""
    if push.action == "tilt":
        low = sliding_height(size, push.direction)
        changes = {"action": "tap", "height": low, "speed": 0.4, "distance": 0.02}
    else:
        changes = {"action": "tilt", "height": 0.85, "speed": 0.12}
    return push.model_copy(update=changes)


def rehearse(
    push: PushSpec,
    run: Callable[[PushSpec], Rollout],
    size: FloatArray,
    tries: int = 7,
) -> tuple[PushSpec, Rollout, bool]:
    """Adjust a push until its outcome is right: widen until both sides are seen, then bisect.

    Returns the push, what happened, and whether the goal was met; where it never was, the strongest
    push that was not too much, if there was one.
    """
    low, high, factor = 0.0, np.inf, 1.0
    trial, mild = push, None
    for _ in range(tries):
        trial = scaled(push, factor, size)
        rollout = run(trial)
        verdict = outcome(trial, rollout, size)
        if verdict == 0:
            return trial, rollout, True
        if verdict < 0:
            low, mild = factor, (trial, rollout, False)
        else:
            high = factor
        factor = 1.4 * factor if high == np.inf else 0.5 * (low + high)
    return mild or (trial, rollout, False)


def run_push(
    robot: RobotModel,
    obj: LabObject,
    push: PushSpec,
    T_world_object: FloatArray,
    truth: RobotTruth,
    substeps: int,
) -> Rollout:
    """Plan a push on the object where it stands and simulate it.

    The clip goes on until the object has come to rest, for at most ``PATIENCE`` longer.
    """
    start, commands = plan(robot, obj, push, T_world_object)
    model = build_world(obj, robot, T_world_object, truth, substeps).compile()
    rollout = simulate(model, start, commands, substeps)
    step = round(0.4 * LOG_RATE)
    for _ in range(round(PATIENCE / 0.4)):
        if at_rest(rollout):
            break
        commands = np.concatenate([commands, np.repeat(commands[-1:], step, axis=0)])
        rollout = simulate(model, start, commands, substeps)
    return rollout


def at_rest(rollout: Rollout) -> bool:
    """Whether the object stands still at the end: within 0.5 mm and 0.01 rad for 0.15 s."""
    end = float(rollout.time[-1])
    poses = rollout.object_poses(end - np.linspace(0.0, min(0.15, end), 16))
    motion = se3.log(poses @ se3.inverse(poses[0]))
    shift = np.linalg.norm(poses[:, :3, 3] - poses[0, :3, 3], axis=1)
    return bool(shift.max() < 5e-4 and np.linalg.norm(motion[:, 3:], axis=1).max() < 0.01)


def record_session(
    robot: RobotModel,
    obj: LabObject,
    pushes: tuple[PushSpec, ...] | str,
    truth: RobotTruth,
    rng: np.random.Generator,
    substeps: int = 10,
    limit: int | None = None,
    lift: bool = False,
) -> list[RecordedPush]:
    """Run a whole session.

    Args:
        robot: the robot's datasheet.
        obj: the object.
        pushes: an explicit list, done as written, or ``"auto"``: ``auto_pushes`` rehearsed; a tilt
            that only slides (low friction) becomes a tap at that place, and a tap that only topples
            becomes a tilt.
        truth: the real robot.
        rng: source of the placements.
        substeps: physics steps per log sample.
        limit: at most so many pushes, a held-out one among them; all if None.
        lift: weigh the object at the end by lifting it.

    Raises:
        InputError: a push misses the object or leaves the robot's reach.
    """
    auto = isinstance(pushes, str)
    specs = auto_pushes(obj.size) if isinstance(pushes, str) else pushes
    specs = _limited(specs, limit)
    if lift:
        specs = (*specs, PushSpec(action="lift", speed=0.15))
    recorded = []
    for number, spec in enumerate(specs):
        pose = placement(spec, rng)

        def run(push: PushSpec, pose: FloatArray = pose) -> Rollout:
            return run_push(robot, obj, push, pose, truth, substeps)

        done = spec
        if auto and spec.action != "lift":
            done, rollout, good = rehearse(first_guess(spec, obj.size), run, obj.size)
            if not good and (spec.action == "tilt" or outcome(done, rollout, obj.size) > 0):
                other = first_guess(instead(spec, obj.size), obj.size)
                done, rollout, good = rehearse(other, run, obj.size)
        else:
            rollout = run(spec)
        if not np.isfinite(rollout.qpos).all():
            raise InputError(f"push {number} ({done.action}) diverged")
        recorded.append(RecordedPush(f"push_{number:03d}", done, pose, rollout))
    return recorded


def _limited(specs: tuple[PushSpec, ...], limit: int | None) -> tuple[PushSpec, ...]:
    """The first pushes up to ``limit``, with at least one held-out push if there is any."""
    if limit is None or limit >= len(specs):
        return specs
    held = [s for s in specs if s.held_out][: max(1, limit // 4)]
    fitted = [s for s in specs if not s.held_out][: limit - len(held)]
    return (*fitted, *held)
