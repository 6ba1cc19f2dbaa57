"""What `identify` reads and writes."""

from twinloop.artifacts.kinds.physics import PHYSICS
from twinloop.artifacts.kinds.pushes import PUSHES
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION

READS = {"push": PUSHES, "reconstruct": RECONSTRUCTION}

WRITES = PHYSICS
