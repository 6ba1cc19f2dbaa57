"""Parameters of `package`."""

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """What the package is checked for."""

    settle_time: float = Field(
        1.0, gt=0, le=10, description="How long the twin settles on a table in MuJoCo [s]."
    )
    settle_tolerance: float = Field(
        0.005, gt=0, description="Largest move of the resting twin's origin while it settles [m]."
    )
