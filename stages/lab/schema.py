"""What `lab` writes: raw captures, as a real session leaves them, and the truth apart from them."""

from twinloop.artifacts.kinds.truth import TRUTH
from twinloop.artifacts.schema import ArtifactSchema

READS: dict[str, ArtifactSchema] = {}
FILES = ("raw/scan", "raw/push", "raw/demo", "truth/lab")
TRUTH_SCHEMA = TRUTH
