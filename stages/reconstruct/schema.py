"""What `reconstruct` reads and writes."""

from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION

READS = {"ingest": FRAMES}
WRITES = RECONSTRUCTION
