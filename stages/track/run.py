"""Push videos to `T_world_object` of every frame, with covariance and status."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from stages.harness import Inputs
from stages.track.params import Params
from twinloop.capture.push_session import PushSession, load_session
from twinloop.geometry import se3
from twinloop.hand.model import RobotModel
from twinloop.progress import track
from twinloop.splat.gaussians import Gaussians
from twinloop.tracking.clip import (
    Undistortion,
    clip_frames,
    enlarge,
    locate_camera,
    read_clip,
    rest_image,
    watched,
)
from twinloop.tracking.coarse_clock import CoarseOffset, coarse_offset
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import to_grey
from twinloop.tracking.initialise import find_start
from twinloop.tracking.model import ObjectModel, build_model
from twinloop.tracking.model_checks import check_scale
from twinloop.tracking.model_error import ModelError, model_error
from twinloop.tracking.motion_hint import REACH, lost_note, motion_note, pixel_motion
from twinloop.tracking.pose_track import PoseTrack
from twinloop.tracking.robot_mask import JointMotion, RobotMask, session_motion
from twinloop.tracking.session import Followed, follow, zoom_for
from twinloop.tracking.settings import Settings
from twinloop.tracking.solver import WorldCamera
from twinloop.tracking.tracker import unobservable


def object_model(inputs: Inputs, params: Params) -> ObjectModel:
    """The tracked object from the reconstruction: its mesh and its Gaussians."""
    reconstruction = inputs.artifacts["reconstruct"]
    mesh = reconstruction["mesh"]
    return build_model(
        mesh["vertices"].values.astype(np.float64),
        mesh["faces"].values,
        Gaussians.from_dataset(reconstruction["gaussians"].to_dataset()),
        T_world_object=scan_pose(reconstruction),
        views=params.reference_views,
    )


def scan_pose(reconstruction: xr.DataTree) -> NDArray[np.float64]:
    """T_world_object (4, 4) of the object in the scan."""
    root = reconstruction.to_dataset()
    return se3.from_position_quaternion(
        root["position_world_object"].values, root["quaternion_world_object"].values
    )


def scan_views(frames: xr.Dataset, count: int) -> list[CameraFrame]:
    """`count` scan frames, those first that the reconstruction did not see."""
    held_out = frames["held_out"].values
    order = np.concatenate([np.flatnonzero(held_out), np.flatnonzero(~held_out)])
    pool = np.sort(order[: max(count, int(held_out.sum()))])
    chosen = pool[np.unique(np.linspace(0, len(pool) - 1, count).round().astype(int))]
    out = []
    for i in chosen:
        frame = frames.isel(frame=int(i))
        rgb = np.asarray(frame["image"].values)
        h, w = rgb.shape[:2]
        T_world_camera = se3.from_position_quaternion(
            frame["position_world_camera"].values, frame["quaternion_world_camera"].values
        )
        camera = WorldCamera(frame["intrinsics"].values, se3.inverse(T_world_camera), w, h)
        out.append(CameraFrame(camera, rgb, to_grey(rgb)))
    return out


def settings(params: Params, error: ModelError) -> Settings:
    """The tracker's settings; floors grow with the error that the model itself shows."""
    return Settings(
        features=params.features,
        sigma_live=params.sigma_live,
        sigma_scan=params.sigma_scan,
        contact_sigma=params.contact_sigma,
        contact_cutoff=params.contact_cutoff,
        floor_position=float(np.hypot(params.floor_position, error.across)),
        floor_rotation=float(np.hypot(params.floor_rotation, error.rotation)),
        floor_range=float(np.hypot(params.floor_range, error.along)),
        time_sigma=params.time_sigma,
        minimum_inliers=params.minimum_inliers,
        correlated=params.correlated,
    )


def dataset(followed: Followed) -> xr.Dataset:
    """One push's group of the artifact."""
    found, smoothed = followed.found, followed.poses
    start, modes = followed.start, followed.modes
    position, quaternion = se3.to_position_quaternion(smoothed.pose)
    return xr.Dataset(
        {
            "time": ("frame", smoothed.time),
            "position_world_object": (("frame", "xyz"), position),
            "quaternion_world_object": (("frame", "wxyz"), quaternion),
            "covariance": (("frame", "twist", "twist_"), smoothed.covariance),
            "status": ("frame", smoothed.status),
            "inliers": ("frame", np.array([f.measurements for f in found], np.int32)),
            "visible": ("frame", np.array([f.visible for f in found])),
            "velocity": (("frame", "twist"), smoothed.velocity),
            "velocity_covariance": (("frame", "twist", "twist_"), smoothed.velocity_covariance),
        },
        attrs={
            "start_method": "none" if start is None else start.method,
            "start_sure": bool(start is not None and start.sure),
            "start_resting": bool(start is not None and start.resting),
            "modes": "none" if modes is None else modes.names,
            "texture_cells": 0.0 if modes is None else modes.texture_cells,
            "colour_overlap": 1.0 if modes is None else modes.overlap,
        },
    )


def motion_attributes(
    poses: PoseTrack, film: WorldCamera, model: ObjectModel, reach: float
) -> dict[str, float | str]:
    """How far the object moves from frame to frame, px of the film (-1: not known), and the note.

    reach: px from frame to frame that are followed for certain.
    """
    moved = pixel_motion(poses, film, model.shape.hull)
    return {
        "motion_px_median": -1.0 if moved is None else moved.median,
        "motion_px_p95": -1.0 if moved is None else moved.p95,
        "motion_px_most": -1.0 if moved is None else moved.most,
        "motion_note": motion_note(moved, reach),
        "lost_note": lost_note(poses.time, poses.status, reach),
    }


@dataclass(frozen=True)
class Robot:
    """The robot of a session, and where its clock stands against the camera's."""

    mask: RobotMask
    motion: JointMotion
    offset: CoarseOffset

    def hides(self, camera: WorldCamera, time: float) -> NDArray[np.bool_] | None:
        """Pixels (h, w) that it may hide at `time` s, camera clock; None beyond its log."""
        moment = time + self.offset.value
        if not self.motion.covers(moment):
            return None
        return self.mask.mask(camera, self.motion.around(moment, 2 * self.offset.std))


def robot_of(
    session: PushSession, push: str, camera: WorldCamera, undistort: Undistortion
) -> Robot | None:
    """Robot and clock of one push; None without log or shapes, or where nothing tells the clock."""
    if not session.has_log(push):
        return None
    model = RobotModel.load(session.robot.robot)
    if all(geom.shape == "none" for geom in model.geoms):
        return None
    mask = RobotMask(model, session.robot.T_world_base.matrix)
    motion = session_motion(session, push, model)
    frames = (
        (time, to_grey(undistort(image)))
        for time, image in read_clip(session.video(push), session.camera)
    )
    offset = coarse_offset(frames, camera, mask, motion)
    return None if offset is None else Robot(mask, motion, offset)


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Track every push of the session."""
    cv2.setNumThreads(1)  # the order of features must not depend on the number of threads
    session = load_session(inputs.raw / "push")
    model = object_model(inputs, params)
    plain = settings(params, ModelError(0.0, 0.0, 0.0, 0))
    views = scan_views(inputs.artifacts["ingest"].to_dataset(), params.error_views)
    error = model_error(model, views, scan_pose(inputs.artifacts["reconstruct"]), plain)
    chosen = settings(params, error)
    rests = {
        p.name: rest_image(session.video(p.name), session.camera, params.rest_time).image
        for p in track(session.pushes, "resting images")
    }
    camera, rms = locate_camera(
        {str(session.video(name)): image for name, image in rests.items()},
        session.camera,
        session.board,
    )
    zoom = zoom_for(model, camera, params.object_size)
    where = f"datasets/{inputs.object}/reconstruct.zarr"
    check_scale(model.shape.renderer.vertices, camera, where)
    film, camera, undistort = camera, enlarge(camera, zoom), Undistortion(session.camera, zoom)
    position, quaternion = se3.to_position_quaternion(se3.inverse(camera.T_camera_world))
    groups = {
        "/": xr.Dataset(
            {
                "position_world_camera": ("xyz", position),
                "quaternion_world_camera": ("wxyz", quaternion),
                "intrinsics": ("fx_fy_cx_cy", np.array(session.camera.intrinsics)),
                "distortion": ("k1_k2_p1_p2_k3", np.array(session.camera.distortion)),
            },
            attrs={
                "board_rms_px": rms,
                "zoom": zoom,
                "symmetry": model.symmetry.describe(),
                "model_error_across_m": error.across,
                "model_error_along": error.along,
                "model_error_rotation_rad": error.rotation,
            },
        )
    }
    hints: list[NDArray[np.float64]] = []
    known = model
    for push in track(session.pushes, "track pushes"):
        model = known.fresh()
        still = undistort(rests[push.name])
        first = Frame(0.0, (CameraFrame(camera, still, to_grey(still)),))
        start = find_start(model, first, chosen, search=params.search, hints=hints)
        if start is not None and start.sure and start.method != "hint":
            hints.append(start.solution.pose)
        robot = robot_of(session, push.name, camera, undistort) if params.robot_mask else None
        knocks: list[float] = []
        frames = watched(
            clip_frames(
                session.video(push.name),
                session.camera,
                camera,
                undistort,
                (lambda time: None) if robot is None else partial(robot.hides, camera),
            ),
            model,
            start,
            knocks,
        )
        followed = follow(model, first, start, frames, chosen, plane=True, knocks=knocks)
        groups[f"/{push.name}"] = dataset(followed).assign_attrs(
            action=push.action,
            held_out=push.held_out,
            robot_mask=robot is not None,
            camera_knocked=knocks[0] if knocks else -1.0,
            unobservable=unobservable(model, followed.modes),
            **motion_attributes(followed.poses, film, model, REACH / zoom),
        )
    return groups
