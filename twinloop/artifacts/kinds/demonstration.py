"""Demonstration: a human grasp as joint angles of the robot hand (written by ``retarget``).

Attributes: robot, joint_names, tips, keypoints (which human keypoint each tip follows), hand_scale.
"""

from twinloop.artifacts.kinds.arrays import numbers, position, quaternion, time
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

OBJECT = "object"

DEMONSTRATION = ArtifactSchema(
    name="twinloop.demonstration",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            arrays={
                "time": time("frame", "demonstration camera"),
                "joint_position": numbers(
                    ("frame", "joint"), "rad", "hand joint angles", "finite", joint=16
                ),
                "position_object_wrist": position(("frame",), "wrist of the robot hand", OBJECT),
                "quaternion_object_wrist": quaternion(
                    ("frame",), "wrist of the robot hand", OBJECT
                ),
                "human_tip": position(
                    ("frame", "tip"), "scaled human fingertips, in the order of the tips", OBJECT
                ),
                "robot_tip": position(("frame", "tip"), "centres of the robot's pads", OBJECT),
                "tip_error": numbers(
                    ("frame", "tip"),
                    "m",
                    "distance of the pad to the scaled human fingertip",
                    "finite",
                    "non_negative",
                ),
                "gap": numbers(
                    ("frame", "tip"),
                    "m",
                    "distance of the pad's skin from the mesh, negative inside",
                    "finite",
                ),
                "holding": numbers(
                    ("frame", "tip"), "1", "1 where the finger holds the object", dtype="int8"
                ),
                "feasible": numbers(
                    ("frame",),
                    "1",
                    "1 where the robot can follow: tips near, nothing inside the object",
                    dtype="int8",
                ),
                "contact_point": position(("tip",), "mean contact while holding", OBJECT),
                "contact_normal": numbers(
                    ("tip", "xyz"),
                    "1",
                    "normal into the object at the contact",
                    "unit_vector",
                    frame=OBJECT,
                    xyz=3,
                ),
                "contact_known": numbers(
                    ("tip",), "1", "1 where the finger ever held the object", dtype="int8"
                ),
            },
        )
    },
)
