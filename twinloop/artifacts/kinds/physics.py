"""Physics: identified parameters with intervals and verdicts (written by ``identify``)."""

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

PHYSICS = ArtifactSchema(
    name="twinloop.physics",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            arrays={
                **_ESTIMATE,
                "samples": numbers(
                    ("sample", "parameter"), "1", "draws from the posterior", "finite"
                ),
            }
        ),
        "pose_only": GroupSpec(arrays=_ESTIMATE),
        "residuals": GroupSpec(arrays={}, extra=True, optional=True),
    },
)
