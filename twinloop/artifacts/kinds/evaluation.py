"""Evaluation: grasp trials and figures (written by ``evaluate``).

Attributes of the root: world ("lab": hidden true world, "twin": posterior samples), controllers.
Where a quantity does not exist (no truth, no interval) its value is NaN.
"""

from twinloop.artifacts.kinds.arrays import numbers, position
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

_TRIAL = ("controller", "trial")

EVALUATION = ArtifactSchema(
    name="twinloop.evaluation",
    version="1.0.0",
    groups={
        "/": GroupSpec(arrays={}),
        "trials": GroupSpec(
            arrays={
                "success": numbers(_TRIAL, "1", "1 lifted and held", dtype="int8"),
                "lifted": numbers(_TRIAL, "m", "height gained at the end"),
                "slip": numbers(_TRIAL, "m", "motion in the hand while lifting and holding"),
                "tilt": numbers(_TRIAL, "rad", "turn in the hand while lifting and holding"),
                "finger_side_force": numbers(
                    _TRIAL, "N", "mean normal force of the finger side while holding"
                ),
                "thumb_side_force": numbers(
                    _TRIAL, "N", "mean normal force of the thumb side while holding"
                ),
                "peak_force": numbers(_TRIAL, "N", "largest normal force of a pad"),
                "needed_force": numbers(
                    ("trial",), "N", "least side force that holds, m g / (2 mu) of that world"
                ),
                "position_world_object": position(("trial",), "where the object stood", "world"),
                "yaw": numbers(("trial",), "rad", "how it was turned", "finite"),
            }
        ),
        "figures": GroupSpec(
            arrays={
                "value": numbers(("figure",), "1", "value, unit by figure (attrs)"),
                "low": numbers(("figure",), "1", "lower end of the 95 % interval"),
                "high": numbers(("figure",), "1", "upper end of the 95 % interval"),
                "target": numbers(("figure",), "1", "what was aimed at"),
                "successes": numbers(("figure",), "1", "k of a rate, -1 otherwise", dtype="int32"),
                "count": numbers(("figure",), "1", "n behind the value", dtype="int32"),
            }
        ),
        "parameters": GroupSpec(
            arrays={
                "value": numbers(("parameter",), "1", "identified, unit by parameter (attrs)"),
                "low": numbers(("parameter",), "1", "lower end of the 95 % interval"),
                "high": numbers(("parameter",), "1", "upper end of the 95 % interval"),
                "truth": numbers(("parameter",), "1", "true or measured value"),
                "covered": numbers(
                    ("parameter",), "1", "1 covered, 0 not, -1 no truth", dtype="int8"
                ),
                "identifiable": numbers(("parameter",), "1", "verdict of identify", dtype="int8"),
            }
        ),
        "tracking": GroupSpec(
            optional=True,
            arrays={
                "add_mean": numbers(("push",), "m", "mean ADD over frames that are not lost"),
                "add_p95": numbers(("push",), "m", "95 % quantile of ADD"),
                "frames": numbers(("push",), "1", "frames", dtype="int32"),
                "lost": numbers(
                    ("push",), "1", "frames that the tracker calls lost", dtype="int32"
                ),
                "clock_error": numbers(("push",), "s", "estimated minus true clock offset"),
            },
        ),
        "mesh": GroupSpec(
            optional=True,
            arrays={
                "point": position(("sample",), "samples of the reconstructed surface", "object"),
                "distance": numbers(
                    ("sample",), "m", "distance to the true surface", "non_negative"
                ),
            },
        ),
    },
)
