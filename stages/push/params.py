"""Parameters of `push`."""

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """How robot logs are smoothed, split into free motion and contact, and put on one clock."""

    smoothing: float = Field(
        0.008, gt=0, le=0.1, description="Standard deviation of the Gaussian kernel [s]."
    )
    still_time: float = Field(
        0.25,
        gt=0,
        le=5,
        description="Time at a push's start that is surely free of contact [s].",
    )
    contact_margin: float = Field(
        0.04, ge=0, le=1, description="Time around contact kept out of the free-motion fit [s]."
    )
    largest_mismatch: float = Field(
        2.5e-3,
        gt=0,
        description="Most that the finger's distance to the object may vary, rms, while they "
        "touch, before log and video are taken to show different pushes [m].",
    )
    largest_offset: float = Field(
        0.15,
        gt=0,
        le=5,
        description="Largest offset that is sought between clocks that share an epoch [s].",
    )
    common_std: float = Field(
        0.001, gt=0, le=0.1, description="Standard deviation of the offset 0 of common clocks [s]."
    )
    pose_sigma: float = Field(
        0.0008, gt=0, le=0.05, description="Pose error along the push, for the offset's doubt [m]."
    )
    offset_floor: float = Field(
        0.0005, gt=0, le=0.05, description="Least standard deviation of the clock offset [s]."
    )
    share_clock: bool = Field(
        True, description="Whether both clocks ran on through the session, so all pushes share [1]."
    )
    keep_joints: bool = Field(
        False, description="Store the smoothed joint signals too, for a closer look [1]."
    )
