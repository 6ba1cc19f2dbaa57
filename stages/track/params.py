"""Parameters of `track`."""

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """How the object is found and followed."""

    rest_time: float = Field(
        0.25, gt=0, le=5, description="Time at the start of a clip in which all is still [s]."
    )
    reference_views: int = Field(
        48, ge=4, le=400, description="Views of the twin's Gaussians for looks and features [1]."
    )
    error_views: int = Field(
        6, ge=1, le=100, description="Scan frames in which the model's own error is measured [1]."
    )
    robot_mask: bool = Field(
        True, description="Leave out what the robot hides, by its log and its shapes [1]."
    )
    object_size: float = Field(
        90.0, gt=0, le=1000, description="Smaller objects have their images enlarged to this [px]."
    )
    features: int = Field(
        80, ge=20, le=1000, description="Points measured at most per frame and source [1]."
    )
    sigma_live: float = Field(
        0.5, gt=0, le=5, description="Noise of a point measured against the same clip [px]."
    )
    sigma_scan: float = Field(
        0.8,
        gt=0,
        le=10,
        description="Noise of a point measured against the twin's picture [px].",
    )
    contact_sigma: float = Field(
        0.0004, gt=0, le=0.1, description="How well the lowest point stands on the table [m]."
    )
    contact_cutoff: float = Field(
        0.006, gt=0, le=0.5, description="Height above which the object is in the air [m]."
    )
    floor_position: float = Field(
        0.0001, gt=0, le=0.05, description="Position error that no averaging removes [m]."
    )
    floor_rotation: float = Field(
        0.0008, gt=0, le=0.5, description="Rotation error that no averaging removes [rad]."
    )
    floor_range: float = Field(
        0.0006, ge=0, le=0.1, description="Error along the line of sight, part of the range [1]."
    )
    time_sigma: float = Field(
        0.001, ge=0, le=0.1, description="Error of a frame's time stamp, of moving objects [s]."
    )
    minimum_inliers: int = Field(
        8, ge=6, le=500, description="Points that must agree before a pose is believed [1]."
    )
    correlated: float = Field(
        25.0, ge=1, le=1000, description="Points that carry all the information of a frame [1]."
    )
    search: bool = Field(
        True, description="Search the table when the feature map does not find the object [1]."
    )
