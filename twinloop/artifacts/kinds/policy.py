"""Policy: the grasp network, its nominal grasp, its force law and its training (by ``train``).

Attributes: robot, joint_names, tips, law, margin, risk, grip, notes.
"""

from twinloop.artifacts.kinds.arrays import numbers, position, quaternion
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

_OBJECT = "object"

POLICY = ArtifactSchema(
    name="twinloop.policy",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            arrays={
                "points": position(("point",), "surface points that the network sees", _OBJECT),
                "position_object_wrist": position((), "nominal wrist at the grasp", _OBJECT),
                "quaternion_object_wrist": quaternion((), "nominal wrist at the grasp", _OBJECT),
                "joint_target": numbers(
                    ("joint",), "rad", "hand joints at contact, the network's answer", "finite"
                ),
                "joint_open": numbers(
                    ("joint",), "rad", "hand joints on the way down", "finite", joint=16
                ),
                "contact_point": position(("tip",), "planned contacts", _OBJECT),
                "contact_normal": numbers(
                    ("tip", "xyz"),
                    "1",
                    "normal into the object",
                    "unit_vector",
                    frame=_OBJECT,
                    xyz=3,
                ),
                "contact_constraint": numbers(
                    ("constraint",),
                    "1",
                    "probability of [three fingers touch, object in hand]",
                    "probability",
                    constraint=2,
                ),
                "side_force": numbers((), "N", "force of each side of the grip", "non_negative"),
                "finger_force": numbers(("tip",), "N", "normal force per pad", "non_negative"),
                "payload_side_force": numbers(
                    (), "N", "largest side force within effort limits", "positive"
                ),
                "law_side_force": numbers(
                    (), "N", "S g q / 2 with q the load m/mu at the accepted risk", "positive"
                ),
                "physics": numbers(
                    ("quantity",),
                    "1",
                    "mass, low, high (kg); grip friction, low, high",
                    "finite",
                    "positive",
                    quantity=6,
                ),
                "refinement": numbers(
                    ("offset",),
                    "1",
                    "twin refinement: height (m), shift (m), log force gain",
                    "finite",
                    offset=3,
                ),
            }
        ),
        "network": GroupSpec(arrays={}, extra=True),
        "training": GroupSpec(
            arrays={
                name: numbers(("epoch",), "1", f"mean loss of the {name} head", "finite")
                for name in ("joints", "wrist", "contacts", "force")
            }
        ),
        "search": GroupSpec(
            arrays={
                "tried": numbers(
                    ("candidate", "offset"), "1", "offsets tried in the twin", "finite", offset=3
                ),
                "score": numbers(("candidate",), "1", "mean score of the rollouts", "finite"),
            }
        ),
        "twin_trials": GroupSpec(
            arrays={
                "success": numbers(("trial",), "1", "1 lifted and held", dtype="int8"),
                "lifted": numbers(("trial",), "m", "height gained at the end"),
                "slip": numbers(("trial",), "m", "motion in the hand while lifting"),
                "mass": numbers(("trial",), "kg", "mass of the posterior sample", "positive"),
                "friction": numbers(
                    ("trial",), "1", "grip friction of the posterior sample", "positive"
                ),
            }
        ),
    },
)
