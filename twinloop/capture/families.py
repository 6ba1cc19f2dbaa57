"""Families of square tags that the detector knows: AprilTag and ArUco."""

from __future__ import annotations

from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Family = Literal[
    "16h5",
    "25h9",
    "36h10",
    "36h11",
    "mip_36h12",
    "aruco_original",
    "aruco_4x4_50",
    "aruco_4x4_100",
    "aruco_4x4_250",
    "aruco_4x4_1000",
    "aruco_5x5_50",
    "aruco_5x5_100",
    "aruco_5x5_250",
    "aruco_5x5_1000",
    "aruco_6x6_50",
    "aruco_6x6_100",
    "aruco_6x6_250",
    "aruco_6x6_1000",
    "aruco_7x7_50",
    "aruco_7x7_100",
    "aruco_7x7_250",
    "aruco_7x7_1000",
]
"""The first four are AprilTag's, the others ArUco's."""


def dictionary(family: Family) -> Any:
    """OpenCV's dictionary of a family."""
    if family[0].isdigit():
        name = f"APRILTAG_{family}"
    elif family == "mip_36h12":
        name = "ARUCO_MIP_36h12"
    else:
        name = family.removeprefix("aruco_").upper() if "x" in family else family.upper()
    return cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, f"DICT_{name}"))


def count(family: Family) -> int:
    """How many tags a family has; their ids go from 0 to one less."""
    return len(np.asarray(dictionary(family).bytesList))


def cells(family: Family) -> int:
    """Cells along a tag's edge, the black frame of one cell included."""
    return int(dictionary(family).markerSize) + 2


def dark_cells(family: Family, tag_id: int) -> NDArray[np.bool_]:
    """Which cells (cells, cells) of a tag are black, first row on top."""
    drawn = dictionary(family).generateImageMarker(tag_id, cells(family), borderBits=1)
    return np.asarray(np.asarray(drawn) == 0)
