"""Reconstruction: object frame, surface, two Gaussian sets, collision (written by ``reconstruct``).

1.1 adds what simulators and renderers need beside mesh and Gaussians: surfels, the distance grid,
how far the convex parts and the decimated mesh are from the surface, what no camera saw, the
texture, the table around the object, and more figures of the held-out frames.
"""

from twinloop.artifacts.kinds.arrays import numbers
from twinloop.artifacts.schema import ArraySpec, ArtifactSchema, GroupSpec

OBJECT = "object (origin at the mesh's volume centroid, axes as the scan world's)"


def _splats(one: str, axes: str, many: int) -> dict[str, ArraySpec]:
    """Arrays of a set of splats along dimension `one`; scales have `many` values along `axes`."""
    return {
        "means": numbers(
            (one, "xyz"), "m", "centres", "finite", dtype="float32", frame=OBJECT, xyz=3
        ),
        "scales": ArraySpec(
            dims=(one, axes),
            dtype="float32",
            units="m",
            description="standard deviations along the own axes",
            sizes={axes: many},
            invariants=("finite", "positive"),
        ),
        "quaternions": numbers(
            (one, "wxyz"),
            "1",
            "orientation of the own axes; a surfel's normal is the third",
            "unit_quaternion",
            dtype="float32",
            frame=OBJECT,
            wxyz=4,
        ),
        "opacities": numbers((one,), "1", "peak opacity", "probability", dtype="float32"),
        "sh": numbers(
            (one, "basis", "channel"),
            "1",
            "spherical-harmonics colour coefficients, RGB",
            "finite",
            dtype="float32",
            channel=3,
        ),
    }


RECONSTRUCTION = ArtifactSchema(
    name="twinloop.reconstruction",
    version="1.1.0",
    groups={
        "/": GroupSpec(
            arrays={
                "position_world_object": ArraySpec(
                    dims=("xyz",),
                    dtype="float64",
                    units="m",
                    description="where the object stood in the scan",
                    frame="world (scan board)",
                    sizes={"xyz": 3},
                    invariants=("finite",),
                ),
                "quaternion_world_object": ArraySpec(
                    dims=("wxyz",),
                    dtype="float64",
                    units="1",
                    description="orientation of the object in the scan",
                    frame="world (scan board)",
                    sizes={"wxyz": 4},
                    invariants=("unit_quaternion",),
                ),
            }
        ),
        "gaussians": GroupSpec(
            arrays={
                "means": ArraySpec(
                    dims=("gaussian", "xyz"),
                    dtype="float32",
                    units="m",
                    description="centres",
                    frame=OBJECT,
                    sizes={"xyz": 3},
                    invariants=("finite",),
                ),
                "scales": ArraySpec(
                    dims=("gaussian", "xyz"),
                    dtype="float32",
                    units="m",
                    description="standard deviations along the own axes",
                    sizes={"xyz": 3},
                    invariants=("finite", "positive"),
                ),
                "quaternions": ArraySpec(
                    dims=("gaussian", "wxyz"),
                    dtype="float32",
                    units="1",
                    description="orientation of the own axes",
                    frame=OBJECT,
                    sizes={"wxyz": 4},
                    invariants=("unit_quaternion",),
                ),
                "opacities": ArraySpec(
                    dims=("gaussian",),
                    dtype="float32",
                    units="1",
                    description="peak opacity",
                    invariants=("probability",),
                ),
                "sh": ArraySpec(
                    dims=("gaussian", "basis", "channel"),
                    dtype="float32",
                    units="1",
                    description="spherical-harmonics colour coefficients, RGB",
                    sizes={"channel": 3},
                    invariants=("finite",),
                ),
            }
        ),
        "mesh": GroupSpec(
            arrays={
                "vertices": ArraySpec(
                    dims=("vertex", "xyz"),
                    dtype="float64",
                    units="m",
                    description="vertices of the watertight mesh",
                    frame=OBJECT,
                    sizes={"xyz": 3},
                    invariants=("finite",),
                ),
                "faces": ArraySpec(
                    dims=("face", "corner"),
                    dtype="int32",
                    units="1",
                    description="vertex indices, counter-clockwise from outside",
                    sizes={"corner": 3},
                    invariants=("non_negative",),
                ),
                "colors": ArraySpec(
                    dims=("vertex", "channel"),
                    dtype="uint8",
                    units="1",
                    description="sRGB colour per vertex",
                    sizes={"channel": 3},
                ),
                "normals": numbers(
                    ("vertex", "xyz"),
                    "1",
                    "outward unit normals",
                    "unit_vector",
                    dtype="float32",
                    frame=OBJECT,
                    optional=True,
                    xyz=3,
                ),
                "inferred": numbers(
                    ("vertex",),
                    "1",
                    "1 where no camera saw the surface: closed by the table's plane or by filling",
                    "non_negative",
                    dtype="uint8",
                    optional=True,
                ),
                "decimation_error": numbers(
                    (),
                    "m",
                    "largest distance between this mesh and the one before decimation, both ways",
                    "non_negative",
                    optional=True,
                ),
            }
        ),
        "parts": GroupSpec(
            arrays={
                "vertices": ArraySpec(
                    dims=("part_vertex", "xyz"),
                    dtype="float64",
                    units="m",
                    description="vertices of the convex pieces",
                    frame=OBJECT,
                    sizes={"xyz": 3},
                    invariants=("finite",),
                ),
                "part": ArraySpec(
                    dims=("part_vertex",),
                    dtype="int32",
                    units="1",
                    description="which convex piece the vertex belongs to",
                    invariants=("non_negative",),
                ),
                "error_mean": numbers(
                    (), "m", "mean distance of the pieces' surface to the mesh", optional=True
                ),
                "error_max": numbers(
                    (), "m", "largest distance of the pieces' surface to the mesh", optional=True
                ),
                "volume_ratio": numbers(
                    (), "1", "volume of the pieces over the mesh's", optional=True
                ),
            }
        ),
        "heldout": GroupSpec(
            arrays={
                "frame": ArraySpec(
                    dims=("view",),
                    dtype="int32",
                    units="1",
                    description="index of the held-out frame in ingest",
                    invariants=("non_negative",),
                ),
                "psnr": ArraySpec(
                    dims=("view",),
                    dtype="float64",
                    units="dB",
                    description="PSNR over the object and 4 px around it, over black, without "
                    "the pixels along the outline that mix object and background",
                    invariants=("finite",),
                ),
                "psnr_white": numbers(
                    ("view",), "dB", "PSNR of the full frame over white", "finite", optional=True
                ),
                "ssim": numbers(
                    ("view",), "1", "SSIM of the full frame over white", "finite", optional=True
                ),
            }
        ),
        "surfels": GroupSpec(optional=True, arrays=_splats("surfel", "uv", 2)),
        "scene": GroupSpec(
            optional=True,
            arrays=_splats("gaussian", "xyz", 3)
            | {
                "label": numbers(
                    ("gaussian",),
                    "1",
                    "index into the attribute `parts`: the object, and the table around it",
                    "non_negative",
                    dtype="int32",
                )
            },
        ),
        "texture": GroupSpec(
            optional=True,
            arrays={
                "source": numbers(
                    ("corner_vertex",),
                    "1",
                    "vertex of the mesh; one on a seam of the texture is there for each side",
                    "non_negative",
                    dtype="int32",
                ),
                "uv": numbers(
                    ("corner_vertex", "uv"),
                    "1",
                    "texture coordinates, (0, 0) the lower left corner of the image",
                    "finite",
                    dtype="float32",
                    uv=2,
                ),
                "faces": numbers(
                    ("face", "corner"),
                    "1",
                    "the mesh's faces, in their order, as indices of corner vertices",
                    "non_negative",
                    dtype="int32",
                    corner=3,
                ),
                "image": numbers(
                    ("row", "column", "channel"),
                    "1",
                    "sRGB, row 0 on top",
                    dtype="uint8",
                    channel=3,
                ),
            },
        ),
        "distance": GroupSpec(
            optional=True,
            arrays={
                "distance": numbers(
                    ("i", "j", "k"),
                    "m",
                    "signed distance to the mesh at the nodes of a grid, negative inside",
                    "finite",
                    dtype="float32",
                ),
                "origin": numbers(
                    ("xyz",), "m", "position of node (0, 0, 0)", "finite", frame=OBJECT, xyz=3
                ),
                "spacing": numbers((), "m", "between nodes", "positive"),
            },
        ),
        "uniform": GroupSpec(
            optional=True,
            arrays={
                "volume": numbers((), "m^3", "enclosed by the mesh", "positive"),
                "inertia": numbers(
                    ("row", "column"),
                    "m^5",
                    "inertia about the centroid at a density of 1 kg/m^3",
                    "spd",
                    frame=OBJECT,
                    row=3,
                    column=3,
                ),
            },
        ),
    },
)
