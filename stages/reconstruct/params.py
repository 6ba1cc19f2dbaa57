"""Parameters of `reconstruct`."""

from typing import Literal

from pydantic import Field

from stages.params import StageParams


class Params(StageParams):
    """How the surface is found, and how surfels and Gaussians are fitted."""

    surface: Literal["surfels", "refined", "hull"] = Field(
        "surfels",
        description="What the mesh is made of: surfels fitted to the pictures and fused, the "
        "outlines' hull moved to where pictures agree, or that hull alone.",
    )
    start: str = Field(
        "",
        pattern=r"^[^/\\\x00-\x1f]*$",
        description="File in the object's raw/start/ to start from: a mesh (.ply .obj .glb .stl) "
        "in place of the hull, or splats (.ply .spz) in place of those spread over it.",
    )
    start_sha256: str = Field(
        "",
        pattern=r"^([0-9a-f]{64})?$",
        description="SHA-256 of that file, by which results know its content.",
    )
    start_scale: float = Field(
        1.0, gt=0, le=1e6, description="What one unit of that file is, about its origin [m]."
    )
    start_turn: tuple[float, float, float] = Field(
        (0.0, 0.0, 0.0),
        description="Then it is turned about x, then y, then z of the scan's world [deg].",
    )
    start_move: tuple[float, float, float] = Field(
        (0.0, 0.0, 0.0), description="Last it is moved, into the scan's world [m]."
    )
    resolution: int = Field(
        80, ge=16, le=400, description="Grid cells of the hull along the object's longest side [1]."
    )
    tolerate: int = Field(
        0, ge=0, le=2, description="Views that may call a point outside before it is [1]."
    )
    table_height: float = Field(
        0.0, ge=-1, le=1, description="Height of the plane that the object stands on [m]."
    )
    smoothing: int = Field(10, ge=0, le=200, description="Rounds of smoothing of the hull [1].")
    refine: bool = Field(
        True, description="Move the hull's surface to where the pictures agree [1]."
    )
    hollow: bool = Field(
        False,
        description="Look for hollows by stereo before surfels are fitted: for bowls and mugs, "
        "whose inside no outline shows. Takes minutes, and is less exact on convex objects.",
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
    surfels: int = Field(8000, ge=50, le=500_000, description="Surfels at the start [1].")
    most_surfels: int = Field(12000, ge=50, le=1_000_000, description="Surfels at most [1].")
    surfel_iterations: int = Field(
        300, ge=1, le=100_000, description="Training steps of the surfels [1]."
    )
    cell: float = Field(
        1.5, ge=0.2, le=10, description="Cell of the grid that depth is fused in [px]."
    )
    polish: int = Field(
        20, ge=0, le=200, description="Rounds of smoothing of the mesh of the surfels [1]."
    )
    faces: int = Field(6000, ge=100, le=500_000, description="Faces of the mesh at most [1].")
    decimation_error: float = Field(
        1e-3, gt=0, le=0.1, description="Largest distance that thinning the mesh may cost [m]."
    )
    parts_error: float = Field(
        1.5e-3,
        gt=0,
        le=0.1,
        description="Mean distance of the convex parts to the mesh that is good enough [m].",
    )
    nearly_convex: float = Field(
        0.94,
        gt=0,
        le=1,
        description="Part of its convex hull that a mesh must fill to be kept as one part [1].",
    )
    most_parts: int = Field(10, ge=1, le=200, description="Convex parts at most [1].")
    part_faces: int = Field(
        1500, ge=100, le=500_000, description="Faces of the mesh that is split into parts [1]."
    )
    part_vertices: int = Field(128, ge=8, le=255, description="Vertices of a part at most [1].")
    distance_cells: int = Field(
        64, ge=8, le=400, description="Cells of the distance grid along the longest side [1]."
    )
    distance_margin: float = Field(
        0.02, ge=0, le=1, description="How far the distance grid reaches beyond the mesh [m]."
    )
    gaussians: int = Field(5000, ge=50, le=500_000, description="Gaussians at the start [1].")
    most_gaussians: int = Field(9000, ge=50, le=1_000_000, description="Gaussians at most [1].")
    sh_degree: int = Field(
        1, ge=0, le=3, description="Degree of the spherical harmonics of the colour [1]."
    )
    iterations: int = Field(1000, ge=0, le=100_000, description="Training steps [1].")
    densify: Literal["split", "default", "mcmc"] = Field(
        "split", description="How Gaussians are added: by gradient, gsplat's strategy, or MCMC."
    )
    mask_weight: float = Field(
        0.5, ge=0, le=10, description="Weight of the silhouette against the colour [1]."
    )
    ssim_weight: float = Field(
        0.2, ge=0, le=1, description="Share of 1 - SSIM in the loss of the colour [1]."
    )
    opacity_weight: float = Field(
        0.0, ge=0, le=10, description="Weight of the Gaussians' mean opacity in their loss [1]."
    )
    scale_weight: float = Field(
        0.0,
        ge=0,
        le=10,
        description="Weight of the Gaussians' mean scale, in radii of the object, in their loss "
        "[1].",
    )
    normal_weight: float = Field(
        0.05,
        ge=0,
        le=10,
        description="Weight of 1 - cosine between the surfels' normals and those of their depth "
        "[1].",
    )
    distortion_weight: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="Weight of the spread of the surfels' depth along a ray, in radii of the "
        "object [1].",
    )
    antialiased: bool = Field(
        False,
        description="Gaussians that the low-pass filter widens get fainter by as much "
        "(Mip-Splatting); viewers that do not know of it show them too bold [1].",
    )
    eps2d: float = Field(
        0.3,
        ge=0,
        le=100,
        description="Low-pass filter of the Gaussians; viewers have the default [px^2].",
    )
    exposure: bool = Field(True, description="Fit each picture's own exposure [1].")
    refine_poses: bool = Field(False, description="Fit a small motion of each camera [1].")
    sets: Literal["disjoint", "joint"] = Field(
        "disjoint",
        description="Gaussians for pictures apart from surfels for shape, or surfels for both.",
    )
    scene_iterations: int = Field(
        250,
        ge=0,
        le=100_000,
        description="Training steps of the splats of the table around the object; 0: none [1].",
    )
    texture: int = Field(
        512, ge=0, le=8192, description="Side of the mesh's texture, 0 for none [px]."
    )
