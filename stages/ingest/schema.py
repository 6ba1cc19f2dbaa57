"""What `ingest` reads and writes."""

from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.schema import ArtifactSchema

READS: dict[str, ArtifactSchema] = {}
WRITES = FRAMES
