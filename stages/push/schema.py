"""What `push` reads and writes."""

from twinloop.artifacts.kinds.pushes import PUSHES
from twinloop.artifacts.kinds.tracks import TRACKS

READS = {"track": TRACKS}
WRITES = PUSHES
