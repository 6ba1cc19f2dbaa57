"""Poses of an object that carries tags, from a file that says where on it they are stuck."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from twinloop.capture import families
from twinloop.capture.board import LARGEST, UNIT_CORNERS, Board, Pose, Tag, detect_tags
from twinloop.capture.camera_yaml import read_model
from twinloop.capture.families import Family
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.tracking.frame import CameraFrame
from twinloop.tracking.pose_observations import PoseObservations, observe
from twinloop.tracking.pose_track import OK, UNCERTAIN
from twinloop.tracking.solver import Array, WorldCamera, point_system

CORNER_SIGMA = 0.25
"""Deviation of a tag's corner, px: 0.06 px as rendered, several times that as filmed."""
FITS = 3.0
"""Largest reprojection error of a pose that is believed, px rms."""
AMBIGUOUS = 2.0
"""The other pose of a plane must fit worse by this factor."""


class ObjectTag(BaseModel):
    """One tag on the object."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    id: int = Field(ge=0)
    """Number within the family."""
    size: Annotated[float, Field(gt=0.001, lt=LARGEST)]
    """Edge of the black square, m."""
    T_object_tag: Pose
    """The tag in the object's frame: x right and y up as printed, z out of the print."""


class ObjectTags(BaseModel):
    """``tags.yaml`` of an object."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    family: Family = "36h11"
    """Family of the tags."""
    tags: tuple[ObjectTag, ...] = Field(min_length=1, max_length=100)
    """The tags."""

    @model_validator(mode="after")
    def _once(self) -> ObjectTags:
        ids = [tag.id for tag in self.tags]
        twice = sorted({i for i in ids if ids.count(i) > 1})
        if twice:
            raise ValueError(f"tag ids stand twice: {twice}")
        if max(ids) >= families.count(self.family):
            raise ValueError(
                f"tag id {max(ids)} is none of family {self.family}, whose ids go to "
                f"{families.count(self.family) - 1}"
            )
        return self

    def corners(self) -> dict[int, Array]:
        """Corners (4, 3) m of every tag by id, object frame, in OpenCV's order."""
        return {
            tag.id: se3.apply(
                tag.T_object_tag.matrix,
                np.column_stack([UNIT_CORNERS * tag.size, np.zeros(4)]),
            )
            for tag in self.tags
        }


def load_object_tags(path: Path) -> ObjectTags:
    """Read where an object's tags are.

    Raises:
        InputError: The file is missing, no YAML, or breaks the model.
    """
    return read_model(path, ObjectTags)


@dataclass(frozen=True)
class TagPose:
    """A pose (4, 4) T_world_object from tags, its covariance (6, 6), and whether it is sure."""

    pose: Array
    covariance: Array
    sure: bool


def tag_pose(
    camera: WorldCamera, points: Array, pixels: Array, last: Array | None
) -> TagPose | None:
    """The object's pose from corners (n, 3) m, object frame, seen at (n, 2) px.

    Corners in one plane fit two poses; where both fit alike (a small or distant tag), the one
    nearer to `last` (4, 4) T_world_object is taken, and not called sure. None where none fits.
    """
    flat = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[2] < 1e-6
    flags = cv2.SOLVEPNP_IPPE if flat else cv2.SOLVEPNP_SQPNP
    _, rotations, translations, _ = cv2.solvePnPGeneric(
        points, pixels, camera.matrix, np.zeros(5), flags=flags
    )
    T_world_camera = se3.inverse(camera.T_camera_world)
    found: list[tuple[float, Array, Array]] = []
    for rvec, tvec in zip(rotations, translations, strict=True):
        r, t = cv2.solvePnPRefineLM(points, pixels, camera.matrix, np.zeros(5), rvec, tvec)
        pose = T_world_camera @ se3.from_rotation_position(cv2.Rodrigues(r)[0], np.ravel(t))
        residual, jacobian = point_system(camera, pose, points, pixels)
        rms = float(np.sqrt((residual**2).sum(axis=1).mean()))
        if np.isfinite(rms) and (camera.T_camera_world @ pose)[2, 3] > 0:
            found.append((rms, pose, jacobian))
    if not found or min(f[0] for f in found) > FITS:
        return None
    found.sort(key=lambda f: f[0])
    rms, pose, jacobian = found[0]
    sure = len(found) < 2 or found[1][0] > AMBIGUOUS * max(rms, CORNER_SIGMA)
    if not sure and last is not None:
        near = [float(np.linalg.norm(f[1][:3, :3] - last[:3, :3])) for f in found[:2]]
        rms, pose, jacobian = found[int(np.argmin(near))]
    sigma = max(CORNER_SIGMA, rms)
    information = np.einsum("nki,nkj->ij", jacobian, jacobian) / sigma**2
    covariance = np.linalg.inv(information + np.diag([1.0] * 3 + [0.1] * 3))
    return TagPose(pose, 0.5 * (covariance + covariance.T), sure)


def from_object_tags(
    frames: Iterable[tuple[float, CameraFrame]], tags: ObjectTags, source: str
) -> PoseObservations:
    """Track an object by the tags on it.

    Args:
        frames: Time (s, camera clock) and undistorted picture of each frame.
        tags: Where they are on the object.
        source: The clip, for messages.

    Raises:
        InputError: No frames, or no tag of the file is seen in any of them.
    """
    # The detector only wants to know the ids: they lie side by side on a board that is none.
    step = 2 * max(tag.size for tag in tags.tags)
    row = min(len(tags.tags), max(int(LARGEST / step), 1))
    listed = tuple(
        Tag(id=tag.id, size=tag.size, centre=(step * (i % row), step * (i // row)))
        for i, tag in enumerate(tags.tags)
    )
    board = Board(family=tags.family, tags=listed)
    known = tags.corners()
    times: list[float] = []
    poses: list[Array] = []
    covariances: list[Array] = []
    sure: list[bool] = []
    last: Array | None = None
    foreign = 0
    for time, frame in frames:
        found = detect_tags(frame.grey, board)
        foreign += found.foreign
        pose = None
        if len(found.ids):
            points = np.concatenate([known[int(i)] for i in found.ids])
            pose = tag_pose(frame.camera, points, found.corners.reshape(-1, 2), last)
        times.append(time)
        poses.append(np.full((4, 4), np.nan) if pose is None else pose.pose)
        covariances.append(np.eye(6) if pose is None else pose.covariance)
        sure.append(pose is None or pose.sure)
        last = last if pose is None else pose.pose
    if times and all(np.isnan(p).any() for p in poses):
        raise InputError(
            f"{source}: no tag of the object ({tags.family}, ids {sorted(known)[:20]}) is seen in "
            f"{len(times)} frames; {foreign} other tags of the family are. Check family and ids."
        )
    seen = observe(
        np.array(times),
        np.array(poses).reshape(-1, 4, 4),
        f"tags on the object, {source}",
        covariance=np.array(covariances).reshape(-1, 6, 6),
    )
    return _doubted(seen, np.array(sure))


def _doubted(seen: PoseObservations, sure: NDArray[np.bool_]) -> PoseObservations:
    """The observations with frames uncertain in which a tag's two poses fit alike."""
    unsure = ~sure & (seen.status == OK)
    if not unsure.any():
        return seen
    status = np.where(unsure, UNCERTAIN, seen.status).astype(np.int8)
    note = f"In {int(unsure.sum())} frames two poses of the tags' plane fit alike."
    return replace(seen, status=status, notes=(*seen.notes, note))
