"""Evaluation: trials and figures (written by ``evaluate``)."""

from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

EVALUATION = ArtifactSchema(
    name="twinloop.evaluation",
    version="1.0.0",
    groups={
        "/": GroupSpec(arrays={}, extra=True),
        "trials": GroupSpec(arrays={}, extra=True),
    },
)
