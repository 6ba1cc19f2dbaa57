"""What `train` reads and writes."""

from twinloop.artifacts.kinds.demonstration import DEMONSTRATION
from twinloop.artifacts.kinds.physics import PHYSICS
from twinloop.artifacts.kinds.policy import POLICY
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION

READS = {"reconstruct": RECONSTRUCTION, "identify": PHYSICS, "retarget": DEMONSTRATION}
WRITES = POLICY
