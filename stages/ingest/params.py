"""Parameters of `ingest`."""

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """How frames are chosen, calibrated and masked."""

    frames: int = Field(50, ge=6, le=2000, description="Frames to keep at most [1].")
    candidates: int = Field(
        80, ge=6, le=5000, description="Frames that are looked at closer at most [1]."
    )
    min_frames: int = Field(6, ge=3, description="Frames that must remain [1].")
    min_sharpness: float = Field(
        0.6, ge=0, description="Least sharpness relative to the running median [1]."
    )
    min_change: float = Field(
        0.3,
        ge=0,
        description="Least mean difference to the frame before; below it is a duplicate [grey "
        "levels of 255].",
    )
    min_tags: int = Field(2, ge=1, description="Tags of the board a frame must show [1].")
    max_rms: float = Field(
        1.0,
        gt=0,
        description="Largest reprojection error of a frame, per 1000 px of the longer side [px].",
    )
    sfm_side: int = Field(
        800,
        ge=160,
        le=8000,
        description="Longer side of the pictures that structure from motion matches at most [px].",
    )
    sfm_features: int = Field(
        3000, ge=100, le=32768, description="Features of a picture that are matched at most [1]."
    )
    min_registered: float = Field(
        0.8, gt=0, le=1, description="Least share of candidates that must get a pose [1]."
    )
    max_side: int = Field(
        400, ge=32, le=4096, description="Longer side of the stored pictures at most [px]."
    )
    crop: bool = Field(
        True, description="Store a window around the object instead of the whole picture."
    )
    crop_margin: float = Field(
        0.12, ge=0, le=2, description="Room around the object in the window, per object size [1]."
    )
    held_out_every: int = Field(
        8, ge=2, description="Every so many kept frames one is held out for judging [1]."
    )
    max_height: float = Field(0.3, gt=0, description="Tallest object looked for [m].")
    min_support: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Least share of a mask whose colours speak for the object; frames below are "
        "dropped [1].",
    )
    min_quality: float = Field(
        0.65,
        ge=0,
        le=1,
        description="Least quality of a mask (agreement with the others, colours, edge); frames "
        "below are dropped [1].",
    )
    mask_rounds: int = Field(3, ge=1, le=10, description="Rounds of cutting the masks [1].")
    voxels: int = Field(
        500_000, ge=1000, le=20_000_000, description="Voxels of the hull that links the masks [1]."
    )
    smoothness: float = Field(
        3.0, gt=0, description="Cost of a mask boundary between two equal pixels [nat]."
    )
    small_side: int = Field(
        240, ge=48, description="Longer side of the pictures in which the object is found [px]."
    )
