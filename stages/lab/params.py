"""Parameters of `lab`: how the captures are made. The object itself is in ``lab.yaml``."""

from pydantic import Field

from stages.params import StageParams
from twinloop.lab.demo import DemoSettings
from twinloop.lab.scan import ScanSettings
from twinloop.lab.session import PushSettings


class Params(StageParams):
    """Cameras, lengths and fineness of the captures; ``seed`` is added to the recipe's own."""

    scan: ScanSettings = Field(ScanSettings(), description="The phone scan (units in its fields).")
    push: PushSettings = Field(PushSettings(), description="The pushes (units in its fields).")
    demo: DemoSettings = Field(
        DemoSettings(), description="The hand demonstration (units in its fields)."
    )
