"""Follow the human hand with the robot's, in the object's frame, and settle the contacts."""

from __future__ import annotations

import numpy as np
import xarray as xr

from stages.harness import Inputs
from stages.retarget.params import Params
from twinloop.capture.demonstration import read_demonstration
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.object_grid import object_grid
from twinloop.geometry.sdf import DistanceGrid
from twinloop.hand.keypoints import WRIST, check_keypoints, grasp_frames, scale_hand, solve_scale
from twinloop.hand.kinematics import HandKinematics
from twinloop.hand.model import RobotModel
from twinloop.hand.retarget import RetargetWeights, finger_map, refine_contacts, retarget
from twinloop.metrics.poses import interpolate_poses


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Return the demonstration for the robot hand.

    Raises:
        InputError: unreadable capture, or a hand that never comes near the object.
    """
    demo = read_demonstration(inputs.raw / "demo")
    where = f"{inputs.object}: raw/demo/hand.npz"
    check_keypoints(demo.time, demo.keypoints, where)
    kinematics = HandKinematics(RobotModel.load(params.robot))
    reconstruction = inputs.artifacts["reconstruct"]
    reach = max(params.reach, kinematics.model.tip_radius)
    surface = object_grid(reconstruction, inputs.object, reach=reach)
    T_scan_object = se3.from_position_quaternion(
        reconstruction["position_world_object"].values,
        reconstruction["quaternion_world_object"].values,
    )

    chosen = np.unique(
        np.round(np.linspace(0, len(demo.time) - 1, min(params.frames, len(demo.time)))).astype(int)
    )
    time = demo.time[chosen]
    poses = interpolate_poses(demo.motion_time, demo.motion, time) @ T_scan_object
    keypoints = se3.apply(se3.inverse(poses), demo.keypoints[chosen])
    moved = np.linalg.norm(poses[:, :3, 3] - poses[0, :3, 3], axis=1)

    fingers = finger_map(keypoints, kinematics)
    distance = _distances(surface, keypoints[:, fingers])
    held = grasp_frames(distance, moved, 2.0 * params.reach)
    if len(held) == 0:
        raise InputError(
            f"{where}: thumb and fingers never come within {2 * params.reach} m of the object "
            f"(nearest: {distance.min():.3f} m); check that the keypoints are in metres, in the "
            f"frame "
            "of board.yaml, and that object_motion.csv belongs to this clip"
        )
    scale = params.scale or solve_scale(keypoints, fingers, surface, held)
    keypoints = scale_hand(keypoints, scale)
    targets = keypoints[:, fingers]
    distance = _distances(surface, targets)
    holding = np.zeros(distance.shape, dtype=bool)
    holding[held] = distance[held] < params.reach

    weights = RetargetWeights(
        tip=params.tip_weight,
        smooth_joint=params.smoothness,
        posture=params.posture,
        contact=params.contact_weight,
    )
    motion = retarget(
        targets, keypoints[:, WRIST], kinematics, weights=weights, iterations=params.iterations
    )
    motion = refine_contacts(
        motion, targets, holding, surface, kinematics, weights=weights, iterations=params.refinement
    )

    radius = kinematics.model.tip_radius
    signed, normal = surface.signed_distance(motion.tips.reshape(-1, 3))
    gap = signed.reshape(distance.shape) - radius
    near = (motion.error.max(axis=1) < params.largest_error) & (
        gap.min(axis=1) > -params.largest_depth
    )
    contact = motion.tips - signed.reshape(*distance.shape, 1) * normal.reshape(*distance.shape, 3)
    point, inward, known = _mean_contacts(contact, -normal.reshape(contact.shape), holding)
    position, wxyz = se3.to_position_quaternion(motion.wrist)
    dataset = xr.Dataset(
        {
            "time": ("frame", time),
            "joint_position": (("frame", "joint"), motion.joints),
            "position_object_wrist": (("frame", "xyz"), position),
            "quaternion_object_wrist": (("frame", "wxyz"), wxyz),
            "human_tip": (("frame", "tip", "xyz"), targets),
            "robot_tip": (("frame", "tip", "xyz"), motion.tips),
            "tip_error": (("frame", "tip"), motion.error),
            "gap": (("frame", "tip"), gap),
            "holding": (("frame", "tip"), holding.astype(np.int8)),
            "feasible": ("frame", near.astype(np.int8)),
            "contact_point": (("tip", "xyz"), point),
            "contact_normal": (("tip", "xyz"), inward),
            "contact_known": ("tip", known.astype(np.int8)),
        },
        attrs={
            "robot": kinematics.model.name,
            "joint_names": [kinematics.model.joint_names[i] for i in kinematics.hand],
            "tips": list(kinematics.model.tips),
            "keypoints": [int(index) for index in fingers],
            "hand_scale": float(scale),
            "handedness": demo.handedness,
        },
    )
    return {"/": dataset}


def _distances(surface: DistanceGrid, points: np.ndarray) -> np.ndarray:
    return surface.signed_distance(points.reshape(-1, 3))[0].reshape(points.shape[:2])


def _mean_contacts(
    point: np.ndarray, inward: np.ndarray, holding: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean contact point (tip, 3) and normal (tip, 3) over holding frames; which tips ever held."""
    tips = point.shape[1]
    where, normal = np.zeros((tips, 3)), np.tile([0.0, 0.0, -1.0], (tips, 1))
    known = holding.any(axis=0)
    for tip in np.flatnonzero(known):
        where[tip] = point[holding[:, tip], tip].mean(axis=0)
        mean = inward[holding[:, tip], tip].mean(axis=0)
        length = np.linalg.norm(mean)
        normal[tip] = mean / length if length > 1e-6 else normal[tip]
    return where, normal, known
