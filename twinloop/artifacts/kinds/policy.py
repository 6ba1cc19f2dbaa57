"""Policy: the grasp policy's network and force law (written by ``train``)."""

from twinloop.artifacts.schema import ArtifactSchema, GroupSpec

POLICY = ArtifactSchema(
    name="twinloop.policy",
    version="1.0.0",
    groups={
        "/": GroupSpec(arrays={}, extra=True),
        "network": GroupSpec(arrays={}, extra=True),
    },
)
