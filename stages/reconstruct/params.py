"""Parameters of `reconstruct`."""

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """How the surface is found and how the Gaussians are fitted."""

    resolution: int = Field(
        80, ge=16, le=400, description="Grid cells along the object's longest side [1]."
    )
    tolerate: int = Field(
        0, ge=0, le=2, description="Views that may call a point outside before it is [1]."
    )
    table_height: float = Field(
        0.0, ge=-1, le=1, description="Height of the plane that the object stands on [m]."
    )
    smoothing: int = Field(10, ge=0, le=200, description="Rounds of smoothing of the mesh [1].")
    refine: bool = Field(
        True, description="Move the hull's surface to where the pictures agree [1]."
    )
    refine_views: int = Field(
        8, ge=2, le=16, description="Pictures that judge each point of the surface [1]."
    )
    refine_depth: float = Field(
        14.0, ge=1, le=200, description="Deepest the surface moves below the hull [px]."
    )
    stiffness: float = Field(
        15.0, ge=0, le=1000, description="Bending against agreement when the surface moves [1]."
    )
    faces: int = Field(6000, ge=100, le=500_000, description="Faces of the mesh at most [1].")
    concavity: float = Field(
        0.05, gt=0.01, le=1, description="Concavity left in a convex part, part of its size [1]."
    )
    nearly_convex: float = Field(
        0.94,
        gt=0,
        le=1,
        description="Part of its convex hull that a mesh must fill to be kept as one part [1].",
    )
    most_parts: int = Field(16, ge=1, le=200, description="Convex parts at most [1].")
    part_faces: int = Field(
        1500, ge=100, le=500_000, description="Faces of the mesh that is split into parts [1]."
    )
    part_vertices: int = Field(64, ge=8, le=255, description="Vertices of a part at most [1].")
    gaussians: int = Field(5000, ge=50, le=500_000, description="Gaussians at the start [1].")
    most_gaussians: int = Field(9000, ge=50, le=1_000_000, description="Gaussians at most [1].")
    sh_degree: int = Field(
        1, ge=0, le=3, description="Degree of the spherical harmonics of the colour [1]."
    )
    iterations: int = Field(700, ge=0, le=100_000, description="Training steps [1].")
    mask_weight: float = Field(
        0.5, ge=0, le=10, description="Weight of the silhouette against the colour [1]."
    )
