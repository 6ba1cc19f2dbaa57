"""Tracks: the object's pose in every frame of every push clip (written by ``track``)."""

from twinloop.artifacts.kinds.arrays import numbers, pose_covariance, position, quaternion, time
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

WORLD = "world (robot base, z up, table at z = 0)"
STATUS = "0 ok, 1 uncertain, 2 lost"

TRACKS = ArtifactSchema(
    name="twinloop.tracks",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            arrays={
                "position_world_camera": position((), "static camera", WORLD),
                "quaternion_world_camera": quaternion((), "static camera, OpenCV axes", WORLD),
                "intrinsics": numbers(
                    ("fx_fy_cx_cy",), "px", "fx, fy, cx, cy", "finite", fx_fy_cx_cy=4
                ),
                "distortion": numbers(
                    ("k1_k2_p1_p2_k3",), "1", "OpenCV lens distortion", "finite", k1_k2_p1_p2_k3=5
                ),
            }
        ),
        "push_": GroupSpec(
            pattern=True,
            arrays={
                "time": time("frame", "camera"),
                "position_world_object": position(("frame",), "object position", WORLD),
                "quaternion_world_object": quaternion(("frame",), "object orientation", WORLD),
                "covariance": pose_covariance(("frame",), WORLD),
                "status": numbers(("frame",), "1", STATUS, "non_negative", dtype="int8"),
                "inliers": numbers(
                    ("frame",), "1", "image measurements behind the pose", dtype="int32"
                ),
            },
        ),
    },
)
