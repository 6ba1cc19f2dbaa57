"""The demonstrated grasp as the robot can do it: direction and height from the human's contacts."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from twinloop.geometry.surface import TriangleSurface
from twinloop.hand.kinematics import HandKinematics
from twinloop.policy.grasp import Grasp, finger_offsets, narrow_yaws, plan_grasp

Array = NDArray[np.float64]


def demonstrated_grasp(
    demonstration: xr.DataTree,
    surface: TriangleSurface,
    kinematics: HandKinematics,
    centre_of_mass: Array,
) -> tuple[Grasp, list[str]]:
    """Top-down grasp closest to a demonstration.

    The human shows which sides to press and how high; the arm keeps the palm level, so wrist and
    joints are solved anew for contacts at that height along that direction, over the identified
    centre of mass. Narrow directions of the object stand by in case the demonstrated one does not
    fit the hand.

    Args:
        demonstration: artifact of retarget: contact points, normals, which are known.
        surface: object mesh in the object frame.
        kinematics: the hand.
        centre_of_mass: (3,) identified, object frame, m.

    Returns:
        The grasp and notes in words on what was taken from the demonstration.
    """
    _, thumb = finger_offsets(kinematics)
    shown = demonstration.to_dataset()
    known = shown["contact_known"].values.astype(bool)
    point, normal = shown["contact_point"].values, shown["contact_normal"].values
    yaws, height, notes = [], None, []
    if known[thumb].any() and known[~thumb].any():
        yaws = _closing_yaws(
            point[known & ~thumb],
            point[known & thumb],
            normal[known & ~thumb],
            normal[known & thumb],
        )
        height = float(0.5 * (point[known & thumb, 2].mean() + point[known & ~thumb, 2].mean()))
        notes.append(
            f"closing direction {np.degrees(yaws[0]):.0f} deg and height {1e3 * height:.0f} mm "
            f"from the "
            "demonstration's contacts"
        )
    else:
        notes.append(
            "the demonstration shows no opposed contact: the object's narrow side is taken instead"
        )
    grasp = plan_grasp(
        surface,
        kinematics,
        centre_of_mass=centre_of_mass,
        yaws=[*yaws, *narrow_yaws(surface)[:6]],
        height=height,
    )
    turned = abs((grasp.request.yaw - yaws[0] + np.pi) % (2 * np.pi) - np.pi) if yaws else 0.0
    if turned > 0.3:
        notes.append(f"turned by {np.degrees(turned):.0f} deg from it, where the hand fits better")
    return grasp, notes


def _closing_yaws(
    finger_point: Array, thumb_point: Array, finger_normal: Array, thumb_normal: Array
) -> list[float]:
    """Directions from fingers to thumb: square to the touched surfaces first, then as shown."""
    square = finger_normal.mean(axis=0) - thumb_normal.mean(axis=0)
    shown = thumb_point.mean(axis=0) - finger_point.mean(axis=0)
    return [
        float(np.arctan2(direction[1], direction[0]))
        for direction in (square, shown)
        if np.linalg.norm(direction[:2]) > 1e-3
    ]
