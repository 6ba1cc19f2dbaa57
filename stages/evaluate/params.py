"""Parameters of `evaluate`."""

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """Grasp trials and how closely meshes are compared."""

    trials: int = Field(20, ge=1, le=10000, description="Grasp trials per controller [1].")
    baselines: bool = Field(
        True, description="Run position-only and the paper's force law in the same trials [1]."
    )
    position: float = Field(0.02, ge=0, description="Half width of the object's place [m].")
    turn: float = Field(3.14159, ge=0, description="Half width of the object's yaw [rad].")
    seen_position: float = Field(
        0.002, ge=0, description="Sd of the error of the pose that the policy is told [m]."
    )
    seen_yaw: float = Field(
        0.02, ge=0, description="Sd of the error of the yaw that the policy is told [rad]."
    )
    hold: float = Field(1.0, gt=0, description="How long the object is held up [s].")
    substeps: int = Field(
        2, ge=2, le=20, description="Physics steps of the true world per 1/300 s [1]."
    )
    samples: int = Field(
        4000, ge=50, description="Points per surface for the Chamfer distance [1]."
    )
    target_psnr: float = Field(28.0, description="Aim for the held-out PSNR [dB].")
    target_chamfer: float = Field(1.0, description="Aim for the Chamfer distance [mm].")
    target_add: float = Field(4.0, description="Aim for the mean ADD of tracking [mm].")
    target_mass: float = Field(15.0, description="Aim for the error of the mass [%].")
    target_grasp: float = Field(0.8, description="Aim for the rate of grasp success [1].")
