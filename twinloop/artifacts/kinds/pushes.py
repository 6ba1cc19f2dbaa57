"""Pushes: robot signals and object poses of every push, side by side (written by ``push``)."""

from twinloop.artifacts.kinds.arrays import numbers, pose_covariance, position, quaternion, time
from twinloop.artifacts.kinds.tracks import STATUS, WORLD
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

PUSHES = ArtifactSchema(
    name="twinloop.pushes",
    version="1.1.0",
    groups={
        # The attributes of the root hold the robot's fitted free-motion model.
        "/": GroupSpec(arrays={}),
        "push_": GroupSpec(
            pattern=True,
            arrays={
                "robot_time": time("sample", "robot"),
                # One optional array and not four: an artifact may have 200 files, a session many
                # pushes.
                "joint_signals": numbers(
                    ("sample", "signal", "joint"),
                    "1",
                    "smoothed position, velocity, effort and command: m or rad, m/s or rad/s, "
                    "N or N m, m or rad",
                    "finite",
                    optional=True,
                    signal=4,
                ),
                "control": numbers(
                    ("command", "target", "joint"),
                    "1",
                    "what the robot was told, as logged: time of the command s (the same for all "
                    "joints), then commanded position, velocity and effort, stiffness and damping "
                    "of the controller: m or rad, m/s or rad/s, N or N m and per m or rad; NaN "
                    "where nothing was said",
                    optional=True,
                    target=6,
                ),
                "tip_position": position(("sample",), "centre of the fingertip sphere", WORLD),
                "tip_velocity": numbers(
                    ("sample", "xyz"), "m/s", "fingertip velocity", "finite", frame=WORLD, xyz=3
                ),
                "contact_force": numbers(
                    ("sample", "xyz"),
                    "N",
                    "force of the tip on the object, from joint efforts",
                    "finite",
                    frame=WORLD,
                    xyz=3,
                ),
                "contact_force_std": numbers(
                    ("sample", "xyz"),
                    "N",
                    "standard deviation of contact_force",
                    "positive",
                    frame=WORLD,
                    xyz=3,
                ),
                "frame_time": time("frame", "camera"),
                "position_world_object": position(("frame",), "object position", WORLD),
                "quaternion_world_object": quaternion(("frame",), "object orientation", WORLD),
                "covariance": pose_covariance(("frame",), WORLD),
                "status": numbers(("frame",), "1", STATUS, "non_negative", dtype="int8"),
                "clock_offset": numbers(
                    (), "s", "robot_time = frame_time + clock_offset", "finite"
                ),
                "clock_offset_std": numbers((), "s", "standard deviation", "positive"),
            },
        ),
    },
)
