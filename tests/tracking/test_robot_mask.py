"""The robot's silhouette against rays through the same shapes, and the clocks told from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import mujoco
import numpy as np
import pytest

from tests.lab.blocks import block
from twinloop.capture.logs.streams import RobotLog
from twinloop.capture.push_session import load_session
from twinloop.errors import InputError
from twinloop.geometry import camera as lens
from twinloop.geometry import se3
from twinloop.hand.mjcf import add_robot
from twinloop.hand.model import RobotModel
from twinloop.lab.film import FilmSettings
from twinloop.lab.session import PushSettings, shoot_pushes
from twinloop.lab.spec import PushSpec, load_preset
from twinloop.tracking.clip import Undistortion, locate_camera, read_clip
from twinloop.tracking.coarse_clock import coarse_offset
from twinloop.tracking.images import to_grey
from twinloop.tracking.robot_mask import JointMotion, RobotMask, joint_motion, session_motion
from twinloop.tracking.solver import WorldCamera

Array = np.ndarray

ROBOT = RobotModel.load("twinhand")
BASE = se3.exp(np.array([0.02, -0.05, 0.0, 0.0, 0.0, 0.4]))
VIEW = WorldCamera(
    np.array([110.0, 105.0, 81.0, 58.0]),
    se3.inverse(lens.look_at([0.1, -0.55, 0.35], [0.0, 0.0, 0.1])),
    160,
    120,
)


def reach(time: Array) -> Array:
    """Joints (n, joint) of a finger that comes, pushes, rests and goes back; times (n,) s."""
    knots = np.array([0.0, 0.4, 0.75, 1.1, 1.35, 1.7])
    q = np.tile(ROBOT.posture("poke"), (len(time), 1))
    q[:, 0] = np.interp(time, knots, [-0.10, -0.10, 0.03, 0.06, 0.06, -0.12])
    q[:, 1] = np.interp(time, knots, [0.05, 0.05, 0.02, 0.03, 0.03, 0.06])
    q[:, 2] = 0.18
    return q


def by_rays(q: Array, camera: WorldCamera) -> Array:
    """(h, w) bool: which pixels' rays MuJoCo finds the robot on."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    add_robot(spec, ROBOT, BASE)
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    rays = lens.rays(camera.intrinsics, camera.width, camera.height).reshape(-1, 3)
    T_world_camera = se3.inverse(camera.T_camera_world)
    rays = rays @ T_world_camera[:3, :3].T
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    hit = np.zeros(len(rays), np.int32)
    distance = np.zeros(len(rays))
    eye = np.ascontiguousarray(T_world_camera[:3, 3])
    mujoco.mj_multiRay(
        model, data, eye, rays.ravel(), None, 1, -1, hit, distance, None, len(rays), 100.0
    )
    return (hit >= 0).reshape(camera.height, camera.width)


@pytest.mark.parametrize("posture", ["poke", "open", "closed"])
def test_silhouette_is_that_of_the_shapes(posture: str) -> None:
    """It agrees with MuJoCo's rays but for pixels on the outline, and never leaves one out."""
    q = ROBOT.posture(posture)
    q[:4] = [0.03, 0.02, 0.15, 0.7]
    drawn = RobotMask(ROBOT, BASE, margin=0.0).mask(VIEW, q)
    truth = by_rays(q, VIEW)
    assert truth.sum() > 800
    assert not (truth & ~drawn).any()
    kernel = np.ones((3, 3), np.uint8)
    assert not (drawn & ~cv2.dilate(truth.astype(np.uint8), kernel).astype(bool)).any()


def test_margin_is_in_pixels() -> None:
    """The margin reaches so far from the outline, whatever the distance."""
    robot, q = RobotMask(ROBOT, BASE), ROBOT.posture("open")
    q[2] = 0.15
    for zoom in (1.0, 2.0):
        camera = WorldCamera(
            VIEW.intrinsics * zoom, VIEW.T_camera_world, round(160 * zoom), round(120 * zoom)
        )
        bare, wide = (robot.mask(camera, q, margin=m) for m in (0.0, 5.0))
        away = cv2.distanceTransform((~bare).astype(np.uint8), cv2.DIST_L2, 5)
        assert wide[away < 4.2].all()
        assert not wide[away > 8.0].any()  # pixels far from the centre measure less


def test_doubt_of_the_clock_covers_what_is_swept() -> None:
    """With the clock +- 30 ms, the mask covers the robot at each instant within."""
    time = np.linspace(0, 1.7, 400)
    motion = JointMotion(time, reach(time))
    robot = RobotMask(ROBOT, BASE, margin=1.0)
    swept = robot.mask(VIEW, motion.around(0.6, 0.03))
    one = robot.mask(VIEW, motion.at(0.6))
    assert swept.sum() > 1.2 * one.sum()
    for moment in (0.57, 0.583, 0.6, 0.63):
        assert not (robot.mask(VIEW, motion.at(moment), margin=0.0) & ~swept).any()


def test_window_is_a_cut_of_the_whole() -> None:
    """Drawing a window gives the same pixels."""
    robot, q = RobotMask(ROBOT, BASE), reach(np.array([0.8]))[0]
    whole = robot.mask(VIEW, q)
    part = robot.mask(VIEW, q, window=(40, 20, 110, 95))
    np.testing.assert_array_equal(part, whole[20:95, 40:110])


def test_robot_about_the_camera_and_behind_it() -> None:
    """Inside a shape everything is hidden, behind the camera nothing, across it what is ahead."""
    q = np.zeros(ROBOT.dof)
    q[2] = 0.1
    robot = RobotMask(ROBOT, np.eye(4), margin=0.0)

    def seen(eye: list[float], target: list[float]) -> Array:
        T = se3.inverse(lens.look_at(eye, target))
        return robot.mask(WorldCamera(VIEW.intrinsics, T, 160, 120), q)

    assert seen([0.0, 0.0, 0.2], [0.0, 0.5, 0.2]).all()  # in the wrist's capsule
    assert not seen([0.0, 0.4, 0.2], [0.0, 1.0, 0.2]).any()
    across = seen([0.045, 0.0, 0.142], [0.3, 0.0, 0.142])  # just above the palm's plate
    assert across[80:].any()
    assert not across[:50].any()


def test_log_is_ordered_and_checked() -> None:
    """Joints are found by name; NaN and missing joints are refused, one sample will do."""
    names = ROBOT.joint_names[::-1]
    q = reach(np.array([0.9]))
    nothing = np.full((1, ROBOT.dof), np.nan)
    log = RobotLog(names, np.array([0.9]), q[:, ::-1], nothing, nothing, nothing)
    motion = joint_motion(ROBOT, log, Path("robot.csv"))
    np.testing.assert_array_equal(motion.at(5.0), q[0])
    assert motion.covers(0.94)
    assert not motion.covers(1.0)
    with pytest.raises(InputError, match=r"robot.csv: sample 0 has a position that is not finite"):
        joint_motion(
            ROBOT, RobotLog(names, log.time, nothing, nothing, nothing, nothing), Path("robot.csv")
        )
    with pytest.raises(InputError, match="arm_x"):
        joint_motion(
            ROBOT,
            RobotLog(names[:-1], log.time, q[:, :-1], nothing, nothing, nothing),
            Path("robot.csv"),
        )


def film(offset: float) -> Iterator[tuple[float, Array]]:
    """A push at 30 frames/s: blurred robot, object that slides on, drift of exposure, noise.

    Frames 11 and 30 are dropped, 20 is a repetition of 19.
    """
    rng = np.random.default_rng(5)
    robot = RobotMask(ROBOT, BASE, margin=0.0)
    ground = cv2.resize(rng.uniform(60, 200, (30, 40)), (160, 120), interpolation=cv2.INTER_CUBIC)
    image = np.zeros((120, 160), np.uint8)
    for k in range(45):
        time = k / 30 + 0.01
        if k in (11, 30):
            continue
        q = reach(time + offset + np.array([-0.004, 0.004]))
        cover = np.mean([robot.mask(VIEW, p) for p in q], axis=0)
        x = int(85 + 25 * np.clip((time - 0.6) / 0.6, 0, 1))
        scene = ground.copy()
        scene[70:95, x : x + 20] = 90
        scene = (scene * (1 - cover) + 50 * cover) * (1 + 0.04 * np.sin(3 * time))
        if k != 20:
            image = np.clip(scene + rng.normal(0, 2, scene.shape), 0, 255).astype(np.uint8)
        yield time, image


@pytest.fixture(scope="module")
def clip() -> list[tuple[float, Array]]:
    """The film of a robot whose clock is 0.137 s ahead."""
    return list(film(0.137))


def test_offset_is_found_to_a_fraction_of_a_frame(clip: list[tuple[float, Array]]) -> None:
    """Far below one frame (33 ms), and within what it says of itself; epochs shift along."""
    time = np.linspace(0.0, 1.75, 400)
    motion = JointMotion(time + 5000.0, reach(time))
    found = coarse_offset(
        clip, VIEW, RobotMask(ROBOT, BASE), motion, largest=0.3, centre=5000.0 + 0.1
    )
    assert found is not None
    error = abs(found.value - 5000.137)
    assert error < 0.3 / 30
    assert error < 3 * found.std
    assert found.rival < 0.7 * found.score


def test_no_motion_no_offset(clip: list[tuple[float, Array]]) -> None:
    """A robot that rests by its log, one frame alone, no frame, a log of another time or push."""
    time = np.linspace(-0.2, 1.9, 300)
    motion = JointMotion(time, reach(time))
    robot = RobotMask(ROBOT, BASE)
    still = JointMotion(time, reach(np.full(len(time), 0.2)))
    assert coarse_offset(clip, VIEW, robot, still, largest=0.5) is None
    assert coarse_offset(clip[:1], VIEW, robot, motion) is None
    assert coarse_offset([], VIEW, robot, motion) is None
    assert coarse_offset(clip, VIEW, robot, motion, largest=0.5, centre=100.0) is None
    other = JointMotion(time, reach(1.7 - time) * np.where(np.arange(ROBOT.dof) == 1, -1.0, 1.0))
    assert coarse_offset(clip, VIEW, robot, other, largest=0.4) is None


def test_a_motion_that_repeats_is_ambiguous(clip: list[tuple[float, Array]]) -> None:
    """Two strokes that look alike do not tell which is which."""
    time = np.linspace(0, 3.4, 1000)
    twice = JointMotion(time, reach(np.mod(time, 1.7)))
    assert (
        coarse_offset(clip[8:36], VIEW, RobotMask(ROBOT, BASE), twice, largest=0.9, centre=1.0)
        is None
    )


def test_offset_of_a_push_of_the_lab(tmp_path: Path) -> None:
    """A filmed push, with camera and joints as a capture tells them: below a third of a frame."""
    push = PushSpec(action="tap", direction=0, height=0.35, speed=0.35, distance=0.02)
    spec = load_preset("spam").model_copy(update={"pushes": (push,)})
    settings = PushSettings(
        substeps=2, camera=FilmSettings(width=240, height=180, rate=30, subframes=1)
    )
    shoot_pushes(block(), spec, settings, tmp_path / "push", 3)
    session = load_session(tmp_path / "push")
    undistorted = Undistortion(session.camera)
    frames = [
        (time, to_grey(undistorted(image)))
        for time, image in read_clip(session.video("push_000"), session.camera)
    ]
    first = next(read_clip(session.video("push_000"), session.camera))[1]
    camera, _ = locate_camera({"push_000": first}, session.camera, session.board)
    robot = RobotMask(ROBOT, session.robot.T_world_base.matrix)
    found = coarse_offset(
        frames, camera, robot, session_motion(session, "push_000", ROBOT), largest=0.2
    )
    assert found is not None
    assert abs(found.value - spec.noise.clock_offset) < 0.33 / 30
