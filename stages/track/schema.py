"""What `track` reads and writes."""

from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION
from twinloop.artifacts.kinds.tracks import TRACKS

READS = {"ingest": FRAMES, "reconstruct": RECONSTRUCTION}
WRITES = TRACKS
