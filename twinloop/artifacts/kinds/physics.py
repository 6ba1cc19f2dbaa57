"""Physics: identified parameters with intervals and verdicts (written by ``identify``).

Root attributes: ``parameters``, ``units`` and ``verdicts`` (identified, prior-dominated or
unidentifiable) by parameter, ``excluded`` (reason by push), ``unknowns``; ``pose_only`` has its own
``verdicts``; ``residuals`` has ``pushes``, the names that ``*_push`` indexes.
"""

from twinloop.artifacts.kinds.arrays import numbers
from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

_ESTIMATE = {
    "value": numbers(("parameter",), "1", "estimate, unit by parameter (attrs)", "finite"),
    "std": numbers(("parameter",), "1", "standard deviation", "positive"),
    "low": numbers(("parameter",), "1", "lower end of the 95 % interval", "finite"),
    "high": numbers(("parameter",), "1", "upper end of the 95 % interval", "finite"),
    "identifiable": numbers(
        ("parameter",), "1", "1 when the data tell, 0 unidentifiable", dtype="int8"
    ),
}
_PRIOR = {
    "prior_value": numbers(("parameter",), "1", "prior mean, before any push", "finite"),
    "prior_std": numbers(("parameter",), "1", "prior standard deviation", "positive"),
}
_UNKNOWN = {
    "unknown_value": numbers(("unknown",), "1", "shared unknowns of the fit", "finite"),
    "unknown_std": numbers(("unknown",), "1", "their posterior sd", "positive"),
    "unknown_prior_std": numbers(("unknown",), "1", "their prior sd", "positive"),
}
_WORLD = "world, relative to the rest pose"
_RESIDUALS = {
    "held_out": numbers(("push",), "1", "1 where the push was predicted, not fitted", dtype="int8"),
    "pose_chi2": numbers(("push",), "1", "mean squared whitened pose residual", "finite"),
    "force_chi2": numbers(("push",), "1", "mean squared whitened force residual", "finite"),
    "frame_push": numbers(("frame",), "1", "push of the frame", dtype="int32"),
    "frame_time": numbers(("frame",), "s", "since the window's start", "finite"),
    "measured_position": numbers(
        ("frame", "xyz"), "m", "object origin", "finite", frame=_WORLD, xyz=3
    ),
    "predicted_position": numbers(
        ("frame", "xyz"), "m", "object origin", "finite", frame=_WORLD, xyz=3
    ),
    "measured_rotation": numbers(
        ("frame", "xyz"), "rad", "rotation vector", "finite", frame=_WORLD, xyz=3
    ),
    "predicted_rotation": numbers(
        ("frame", "xyz"), "rad", "rotation vector", "finite", frame=_WORLD, xyz=3
    ),
    "bin_push": numbers(("bin",), "1", "push of the force bin", dtype="int32"),
    "bin_time": numbers(("bin",), "s", "since the window's start", "finite"),
    "measured_force": numbers(
        ("bin", "xyz"),
        "N",
        "mean force of the tip on the object, force nuisances removed",
        "finite",
        frame="world",
        xyz=3,
    ),
    "predicted_force": numbers(
        ("bin", "xyz"), "N", "the same, simulated", "finite", frame="world", xyz=3
    ),
    "force_std": numbers(
        ("bin", "xyz"), "N", "noise and model error", "positive", frame="world", xyz=3
    ),
}

PHYSICS = ArtifactSchema(
    name="twinloop.physics",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            arrays={
                **_ESTIMATE,
                **_PRIOR,
                **_UNKNOWN,
                "samples": numbers(
                    ("sample", "parameter"), "1", "draws from the posterior", "finite"
                ),
            }
        ),
        "pose_only": GroupSpec(arrays=_ESTIMATE),
        "residuals": GroupSpec(arrays=_RESIDUALS),
    },
)
