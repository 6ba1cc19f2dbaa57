"""Push videos to `T_world_object` of every frame, with covariance and status."""

from __future__ import annotations

import cv2
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from stages.harness import Inputs
from stages.track.params import Params
from twinloop.capture.push_session import load_session
from twinloop.geometry import se3
from twinloop.progress import track
from twinloop.tracking.clip import Undistortion, enlarge, locate_camera, read_grey, rest_image
from twinloop.tracking.initialise import Start, expected_size, find_start
from twinloop.tracking.model import ObjectModel, build_model
from twinloop.tracking.model_error import ModelError, model_error
from twinloop.tracking.tracker import ClipTrack, Settings, track_clip


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


def dataset(times: NDArray[np.float64], result: ClipTrack, start: Start | None) -> xr.Dataset:
    """One push's group of the artifact."""
    position, quaternion = se3.to_position_quaternion(result.pose)
    return xr.Dataset(
        {
            "time": ("frame", times),
            "position_world_object": (("frame", "xyz"), position),
            "quaternion_world_object": (("frame", "wxyz"), quaternion),
            "covariance": (("frame", "twist", "twist_"), result.covariance),
            "status": ("frame", result.status),
            "inliers": ("frame", result.inliers),
        },
        attrs={
            "start_method": "none" if start is None else start.method,
            "start_sure": bool(start is not None and start.sure),
            "start_resting": bool(start is not None and start.resting),
        },
    )


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Track every push of the session."""
    cv2.setNumThreads(1)  # the order of features must not depend on the number of threads
    session = load_session(inputs.raw / "push")
    model = object_model(inputs, params)
    error = model_error(model, features=params.features, sigma=params.sigma_scan)
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
    zoom = int(np.clip(np.ceil(params.object_size / expected_size(model, camera)), 1, 4))
    camera, undistort = enlarge(camera, zoom), Undistortion(session.camera, zoom)
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
                "model_error_across_m": error.across,
                "model_error_along": error.along,
                "model_error_rotation_rad": error.rotation,
            },
        )
    }
    hints: list[NDArray[np.float64]] = []
    for push in track(session.pushes, "track pushes"):
        still = undistort(rests[push.name])
        start = find_start(
            model,
            camera,
            still,
            features=params.features,
            sigma=params.sigma_scan,
            minimum_inliers=params.minimum_inliers,
            search=params.search,
            hints=hints,
        )
        if start is not None and start.sure and start.method != "hint":
            hints.append(start.solution.pose)
        frames = (
            (time, undistort(image))
            for time, image in read_grey(session.video(push.name), session.camera)
        )
        times, result = track_clip(model, camera, frames, still, start, chosen)
        groups[f"/{push.name}"] = dataset(times, result, start).assign_attrs(
            action=push.action, held_out=push.held_out
        )
    return groups
