"""Forward simulation of one rigid object on a table, pushed by a fingertip whose motion is given.

``simulate`` rolls many parameter sets through many pushes in one call; rows are independent, so the
result does not depend on how they are spread over threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twinloop.errors import InputError
from twinloop.physics import layout
from twinloop.physics.shape import CollisionShape

Array = npt.NDArray[np.float64]

GRAVITY = 9.81


@dataclass(frozen=True)
class Controls:
    """Motion of the fingertip for P pushes of T steps.

    Attributes:
        tip_position: (P, T, 3) m, world, centre of the tip sphere at the start of each step.
        tip_velocity: (P, T, 3) m/s, world.
        tip_radius: (P,) m.
        steps: (P,) number of steps to roll, each at most T.
        dt: s, step length.
        every: steps per record.
    """

    tip_position: Array
    tip_velocity: Array
    tip_radius: Array
    steps: npt.NDArray[np.int32]
    dt: float
    every: int

    def __post_init__(self) -> None:
        if self.tip_position.shape != self.tip_velocity.shape or self.tip_position.ndim != 3:
            raise InputError(
                f"controls: tip_position {self.tip_position.shape} and tip_velocity "
                f"{self.tip_velocity.shape} must both be (push, step, 3)"
            )
        if self.dt <= 0 or self.every < 1:
            raise InputError(
                f"controls: dt is {self.dt} s and every {self.every}; dt > 0 and every >= 1 needed"
            )
        if int(self.steps.max(initial=0)) > self.tip_position.shape[1]:
            raise InputError(
                f"controls: steps up to {self.steps.max()} but only "
                f"{self.tip_position.shape[1]} tip positions; give a tip position for every step"
            )

    @property
    def records(self) -> int:
        """Number of records of the longest push."""
        return -(-int(self.steps.max(initial=1)) // self.every)


@dataclass(frozen=True)
class Rollout:
    """What the simulated world did, for R rollouts.

    Attributes:
        position: (R, N, 3) m, body frame origin in the world, at times ``record * every * dt``.
        quaternion: (R, N, 4) wxyz, body to world.
        force: (R, N, 3) N, force of the tip on the object, mean from this record to the next.
    """

    position: Array
    quaternion: Array
    force: Array


def simulate(
    shape: CollisionShape,
    controls: Controls,
    parameters: Array,
    state: Array,
    push: npt.NDArray[np.int32],
    *,
    gravity: float = GRAVITY,
    threads: int = 2,
) -> Rollout:
    """Roll every row of ``parameters`` from its ``state`` through its ``push``.

    Args:
        shape: Support points, signed distances and body frame of the object.
        controls: Fingertip motion of the pushes.
        parameters: (R, 16) physical parameters, columns of ``layout``.
        state: (R, 14) initial state, columns of ``layout``.
        push: (R,) index of the push in ``controls``.
        gravity: m/s^2, along -z.
        threads: How many threads share the rows; it never changes the result.

    Returns:
        Records of pose and fingertip force; records past a push's end repeat its last pose.

    Raises:
        InputError: A row has the wrong length or is not finite, or a mass or inertia is not
            positive.
    """
    _check(parameters, state, push, controls)
    rows = len(parameters)
    share = -(-rows // max(1, min(threads, rows)))
    parts = [slice(i, min(i + share, rows)) for i in range(0, rows, share)]
    device = _DeviceData(shape, controls)
    jobs = [(parameters[p], state[p], push[p]) for p in parts]
    if len(jobs) == 1:
        results = [device.roll(jobs[0][0], jobs[0][1], jobs[0][2], gravity)]
    else:
        with ThreadPoolExecutor(len(jobs)) as pool:
            results = list(pool.map(lambda job: device.roll(job[0], job[1], job[2], gravity), jobs))
    position, quaternion, force = (np.concatenate(part) for part in zip(*results, strict=True))
    records = -(-controls.steps[push] // controls.every)
    last = np.minimum(np.arange(controls.records)[None], records[:, None] - 1)
    row = np.arange(rows)[:, None]
    force[np.arange(controls.records)[None] >= records[:, None]] = 0.0
    return Rollout(position[row, last], quaternion[row, last], force)


class _DeviceData:
    """Arrays that all rows share, uploaded once per call."""

    def __init__(self, shape: CollisionShape, controls: Controls) -> None:
        import warp as wp

        wp.config.quiet = True
        self.wp = wp
        self.controls = controls
        self.count = len(shape.points)
        with wp.ScopedDevice("cpu"):
            self.points = wp.array(np.ascontiguousarray(shape.points), dtype=wp.vec3d)
            self.rounding = wp.array(np.ascontiguousarray(shape.rounding), dtype=wp.vec3d)
            self.weight = wp.array(np.ascontiguousarray(shape.weight), dtype=wp.float64)
            self.spread = wp.array(np.ascontiguousarray(shape.weight_spread), dtype=wp.float64)
            self.grid = shape.grid.nodes
            self.origin = wp.vec3d(*(float(c) for c in shape.grid.origin))
            self.spacing = wp.float64(shape.grid.spacing)
            self.R_grid_body = wp.mat33d(*(float(c) for c in shape.R_object_body.ravel()))
            self.tip = wp.array(np.ascontiguousarray(controls.tip_position), dtype=wp.vec3d)
            self.tip_v = wp.array(np.ascontiguousarray(controls.tip_velocity), dtype=wp.vec3d)
            self.radius = wp.array(np.ascontiguousarray(controls.tip_radius), dtype=wp.float64)
            self.steps = wp.array(np.ascontiguousarray(controls.steps, np.int32), dtype=wp.int32)

    def roll(
        self, parameters: Array, state: Array, push: npt.NDArray[np.int32], gravity: float
    ) -> tuple[Array, Array, Array]:
        """Launch one thread's share of the rows and copy the records back."""
        from twinloop.physics.rollout_kernel import rollout

        wp = self.wp
        rows, records = len(parameters), self.controls.records
        with wp.ScopedDevice("cpu"):
            bristles = wp.zeros((rows, self.count + 1), dtype=wp.vec3d)
            position = wp.zeros((rows, records), dtype=wp.vec3d)
            quaternion = wp.zeros((rows, records), dtype=wp.vec4d)
            force = wp.zeros((rows, records), dtype=wp.vec3d)
            wp.launch(
                rollout,
                dim=rows,
                inputs=[
                    wp.array(np.ascontiguousarray(parameters), dtype=wp.float64),
                    wp.array(np.ascontiguousarray(state), dtype=wp.float64),
                    wp.array(np.ascontiguousarray(push, np.int32), dtype=wp.int32),
                    self.steps,
                    self.points,
                    self.rounding,
                    self.weight,
                    self.spread,
                    self.grid,
                    self.origin,
                    self.spacing,
                    self.R_grid_body,
                    self.tip,
                    self.tip_v,
                    self.radius,
                    wp.float64(gravity),
                    wp.float64(self.controls.dt),
                    self.controls.every,
                    bristles,
                ],
                outputs=[position, quaternion, force],
            )
        return position.numpy(), quaternion.numpy(), force.numpy()


def _check(
    parameters: Array, state: Array, push: npt.NDArray[np.int32], controls: Controls
) -> None:
    for name, array, width in (
        ("parameters", parameters, layout.PARAMETERS),
        ("state", state, layout.STATE),
    ):
        if array.ndim != 2 or array.shape[1] != width or len(array) != len(push):
            raise InputError(
                f"simulate: {name} has shape {array.shape}, expected ({len(push)}, {width})"
            )
        if not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0]
            raise InputError(
                f"simulate: {name}[{row}, {column}] is {array[row, column]}, expected finite"
            )
    positive = parameters[:, [layout.MASS, *range(layout.INERTIA, layout.INERTIA + 3)]]
    if (positive <= 0).any():
        row, column = np.argwhere(positive <= 0)[0]
        raise InputError(
            f"simulate: mass or inertia of row {row} is {positive[row, column]}, expected > 0"
        )
    if len(push) and (push.min() < 0 or push.max() >= len(controls.steps)):
        raise InputError(
            f"simulate: push index {push.min()}..{push.max()} outside 0..{len(controls.steps) - 1}"
        )
