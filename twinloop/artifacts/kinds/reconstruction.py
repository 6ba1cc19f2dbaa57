"""Reconstruction: object frame, mesh, Gaussians, convex parts (written by ``reconstruct``)."""

from twinloop.artifacts.schema import ArraySpec, ArtifactSchema, GroupSpec

OBJECT = "object (origin at the mesh's volume centroid, axes as the scan world's)"

RECONSTRUCTION = ArtifactSchema(
    name="twinloop.reconstruction",
    version="1.0.0",
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
            }
        ),
    },
)
