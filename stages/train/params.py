"""Parameters of `train`."""

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """Imitation, force law and refinement in the twin."""

    robot: str = Field(
        "twinhand",
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Robot model of twinloop/hand/models (DVC would not see a file elsewhere) [1].",
    )
    points: int = Field(96, ge=8, le=4096, description="Surface points the network sees [1].")
    examples: int = Field(1024, ge=8, description="Displaced grasps to imitate [1].")
    horizontal: float = Field(
        0.012, ge=0, le=0.05, description="Half width of the wrist's horizontal displacement [m]."
    )
    vertical: float = Field(
        0.006, ge=0, le=0.05, description="Half width of the wrist's vertical displacement [m]."
    )
    yaw: float = Field(
        0.15, ge=0, le=1, description="Half width of the wrist's turn about the vertical [rad]."
    )
    touch: float = Field(
        0.002, gt=0, description="A pad nearer than this to its contact counts as touching [m]."
    )
    hidden: int = Field(64, ge=4, le=1024, description="Width of the network [1].")
    epochs: int = Field(40, ge=1, description="Passes over the examples [1].")
    batch: int = Field(64, ge=1, description="Examples per step [1].")
    rate: float = Field(3e-3, gt=0, description="First step size of Adam [1].")
    margin: float = Field(
        2.0, gt=0, le=10, description="S: grip force over the least that holds the load [1]."
    )
    risk: float = Field(
        0.05, gt=0, lt=1, description="Accepted probability that the load m/mu is larger [1]."
    )
    iterations: int = Field(2, ge=0, description="Rounds of the search in the twin [1].")
    population: int = Field(6, ge=1, description="Candidates per round [1].")
    elites: int = Field(2, ge=1, description="Best candidates that steer the next round [1].")
    cases: int = Field(3, ge=1, description="Posterior samples each candidate is scored on [1].")
    trials: int = Field(8, ge=1, description="Final trials in the twin, fresh samples [1].")
    position: float = Field(0.02, ge=0, description="Half width of the object's place [m].")
    turn: float = Field(0.5, ge=0, description="Half width of the object's yaw [rad].")
    hold: float = Field(1.0, gt=0, description="How long the object is held up [s].")
    timestep: float = Field(0.002, gt=0, le=0.005, description="Time step of the twin [s].")
