"""What `package` reads and writes."""

from twinloop.artifacts.kinds.evaluation import EVALUATION
from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.kinds.physics import PHYSICS
from twinloop.artifacts.kinds.policy import POLICY
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION

READS = {
    "ingest": FRAMES,
    "reconstruct": RECONSTRUCTION,
    "identify": PHYSICS,
    "train": POLICY,
    "evaluate": EVALUATION,
}

FILES = ("twin",)
