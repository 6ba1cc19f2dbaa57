"""Parameters of `retarget`."""

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """How closely the robot hand follows the human's, and what counts as touching."""

    robot: str = Field(
        "twinhand",
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Robot model of twinloop/hand/models (DVC would not see a file elsewhere) [1].",
    )
    frames: int = Field(
        120, ge=3, le=5000, description="At most this many frames, evenly chosen [1]."
    )
    reach: float = Field(
        0.02, gt=0, le=0.05, description="A human fingertip nearer than this may touch [m]."
    )
    scale: float | None = Field(
        None,
        gt=0.3,
        lt=3,
        description="Scale of the hand; solved from the object's size if unset [1].",
    )
    iterations: int = Field(12, ge=1, le=100, description="Steps of following the hand [1].")
    refinement: int = Field(8, ge=0, le=100, description="Steps of contact refinement [1].")
    tip_weight: float = Field(10.0, gt=0, description="Weight of following a fingertip [1/m].")
    smoothness: float = Field(0.15, ge=0, description="Weight of slow joint motion [1/rad].")
    posture: float = Field(0.02, gt=0, description="Weight of a half-closed hand [1/rad].")
    contact_weight: float = Field(300.0, gt=0, description="Weight of exact contact [1/m].")
    largest_error: float = Field(
        0.03, gt=0, description="A frame is feasible when no tip is farther off than this [m]."
    )
    largest_depth: float = Field(
        0.001, gt=0, description="A frame is feasible when no pad enters deeper than this [m]."
    )
