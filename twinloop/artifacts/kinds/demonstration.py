"""Demonstration: a human grasp as joint angles of the robot hand (written by ``retarget``)."""

from twinloop.artifacts.kinds.arrays import numbers, position, quaternion, time
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

DEMONSTRATION = ArtifactSchema(
    name="twinloop.demonstration",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            extra=True,
            arrays={
                "time": time("frame", "demonstration camera"),
                "joint_position": numbers(
                    ("frame", "joint"), "rad", "hand joint angles", "finite", joint=16
                ),
                "position_object_wrist": position(("frame",), "wrist of the robot hand", "object"),
                "quaternion_object_wrist": quaternion(
                    ("frame",), "wrist of the robot hand", "object"
                ),
                "tip_error": numbers(
                    ("frame", "tip"), "m", "distance of robot tip to scaled human tip", "finite"
                ),
            },
        )
    },
)
