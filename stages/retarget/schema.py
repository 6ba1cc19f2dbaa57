"""What `retarget` reads and writes."""

from twinloop.artifacts.kinds.demonstration import DEMONSTRATION
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION

READS = {"reconstruct": RECONSTRUCTION}
WRITES = DEMONSTRATION
