"""What `evaluate` reads and writes. Of a lab object it also reads ``truth/lab``."""

from twinloop.artifacts.kinds.evaluation import EVALUATION
from twinloop.artifacts.kinds.physics import PHYSICS
from twinloop.artifacts.kinds.policy import POLICY
from twinloop.artifacts.kinds.pushes import PUSHES
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION
from twinloop.artifacts.kinds.tracks import TRACKS

READS = {
    "reconstruct": RECONSTRUCTION,
    "track": TRACKS,
    "push": PUSHES,
    "identify": PHYSICS,
    "train": POLICY,
}
WRITES = EVALUATION
