"""Tracks: the object's pose in every frame of every push clip (written by ``track``).

1.1 adds velocities, how much of the object is seen, and in each push's attributes the modes.
"""

from twinloop.artifacts.kinds.arrays import numbers, pose_covariance, position, quaternion, time
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

WORLD = "world (robot base, z up, table at z = 0)"
STATUS = "0 ok, 1 uncertain, 2 lost"

TRACKS = ArtifactSchema(
    name="twinloop.tracks",
    version="1.1.0",
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
                "visible": numbers(
                    ("frame",), "1", "share of the object not hidden", "probability", optional=True
                ),
                "velocity": numbers(
                    ("frame", "twist"),
                    "1",
                    "velocity of the object's origin [m/s], angular velocity [rad/s]",
                    "finite",
                    frame=WORLD,
                    optional=True,
                    twist=6,
                ),
                "velocity_covariance": numbers(
                    ("frame", "twist", "twist_"),
                    "1",
                    "covariance of velocity [m^2/s^2] and angular velocity [rad^2/s^2]",
                    "spd",
                    frame=WORLD,
                    optional=True,
                    twist=6,
                    twist_=6,
                ),
            },
        ),
    },
)
