"""Parameters of `identify`."""

from __future__ import annotations

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """Search, model error and priors of the identification."""

    step: float = Field(5e-4, gt=0, le=2e-3, description="Step of the simulation [s].")
    steps_per_record: int = Field(10, ge=1, le=40, description="Simulation steps per record [1].")
    records_per_bin: int = Field(4, ge=1, le=40, description="Records per force bin [1].")
    lead: float = Field(
        0.3, ge=0, description="Free motion kept before contact, calibrates the force bias [s]."
    )
    tail: float = Field(0.1, ge=0, description="Time kept after the object has come to rest [s].")
    longest_push: float = Field(3.0, gt=0, description="Longest part of a push that is used [s].")
    max_tilt: float = Field(
        0.7, gt=0, description="Tilt at which a push ends: what follows is an impact [rad]."
    )
    starts: int = Field(3, ge=1, le=16, description="Starts followed after the scan [1].")
    first_iterations: int = Field(6, ge=1, description="Steps from each start [1].")
    explore_iterations: int = Field(
        4, ge=0, description="Steps on the misfit averaged over the posterior [1]."
    )
    iterations: int = Field(12, ge=1, description="Most steps of the last descent [1].")
    draws: int = Field(96, ge=0, description="Rollouts per averaged step; under 40: none [1].")
    samples: int = Field(512, ge=16, le=100_000, description="Posterior samples written [1].")

    motion_error: float = Field(
        0.015, ge=0, description="Model error of poses, share of the motion so far [1]."
    )
    force_error: float = Field(
        0.05, ge=0, description="Model error of forces, share of the force [1]."
    )
    force_error_across: float = Field(
        0.1, ge=0, description="The same across the force: friction of a rubbing fingertip [1]."
    )
    force_jitter: float = Field(2e-3, ge=0, description="Timing error of force peaks [s].")
    error_correlation: float = Field(
        0.1, gt=0, description="Time over which model error stays the same [s]."
    )
    temperature: float = Field(
        3.0, ge=1, description="Factor on the posterior covariance for model error [1]."
    )
    huber: float = Field(2.5, gt=0, description="Residuals beyond this count linearly [sd].")

    prior_density: float = Field(500.0, gt=0, description="Prior mean of bulk density [kg/m^3].")
    prior_log_density_std: float = Field(
        1.5, gt=0, description="Prior sd of log density; 1.5 is a factor of 20 at 2 sd [1]."
    )
    prior_friction: float = Field(0.35, gt=0, description="Prior of table friction [1].")
    prior_log_friction_std: float = Field(0.7, gt=0, description="Its sd, of the log [1].")
    prior_tip_friction: float = Field(0.5, gt=0, description="Prior of fingertip friction [1].")
    prior_log_tip_friction_std: float = Field(0.6, gt=0, description="Its sd, of the log [1].")
    prior_com_std: float = Field(
        0.15, gt=0, description="Prior sd of the centre of mass, share of the half size [1]."
    )
    prior_extent_std: float = Field(
        0.2, gt=0, description="Prior sd of the log of the mass distribution's extents [1]."
    )
    prior_edge_radius: float = Field(
        0.1, description="Prior radius of the edge it stands on, share of the half width [1]."
    )
    prior_edge_radius_std: float = Field(0.15, gt=0, description="Its sd, same unit [1].")
    camera_std: float = Field(
        3e-3, gt=0, description="Shift of object poses against the robot, sd [m]."
    )
    drag_std: float = Field(
        0.1, gt=0, description="Dry friction of the robot by axis, beyond what is known, sd [N]."
    )
    force_bias_std: float = Field(0.1, gt=0, description="Force bias per push and axis, sd [N].")
    effort_gain_std: float = Field(
        0.02, ge=0, description="Relative sd of the effort scale; goes into mass 1:1 [1]."
    )
