"""Truth: what the lab knows and nobody but ``evaluate`` may read (written by ``lab``)."""

from twinloop.artifacts.kinds.arrays import numbers, position, quaternion, time
from twinloop.artifacts.kinds.tracks import WORLD
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

_LAB_OBJECT = "lab object (origin at the bottom centre at rest, z up)"

TRUTH = ArtifactSchema(
    name="twinloop.truth",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            extra=True,
            arrays={
                "mass": numbers((), "kg", "mass", "positive"),
                "friction": numbers((), "1", "Coulomb friction, object on table", "positive"),
                "com": position((), "centre of mass", _LAB_OBJECT),
                "inertia": numbers(
                    ("row", "column"),
                    "kg m^2",
                    "inertia about the centre of mass",
                    "spd",
                    frame=_LAB_OBJECT,
                    row=3,
                    column=3,
                ),
                "position_world_labobject": position((), "pose at the scan", "scan board"),
                "quaternion_world_labobject": quaternion((), "pose at the scan", "scan board"),
            },
        ),
        "mesh": GroupSpec(
            arrays={
                "vertices": position(("vertex",), "true surface", _LAB_OBJECT),
                "faces": numbers(
                    ("face", "corner"), "1", "vertex indices", dtype="int32", corner=3
                ),
            }
        ),
        "push_": GroupSpec(
            pattern=True,
            extra=True,
            arrays={
                "time": time("frame", "camera"),
                "position_world_labobject": position(("frame",), "object position", WORLD),
                "quaternion_world_labobject": quaternion(("frame",), "orientation", WORLD),
                "clock_offset": numbers((), "s", "robot_time = frame_time + clock_offset"),
            },
        ),
    },
)
