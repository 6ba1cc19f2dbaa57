"""Frames: undistorted, masked, posed pictures of an object (written by ``ingest``)."""

from twinloop.artifacts.schema import ArraySpec, ArtifactSchema, GroupSpec

FRAMES = ArtifactSchema(
    name="twinloop.frames",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            arrays={
                "image": ArraySpec(
                    dims=("frame", "y", "x", "channel"),
                    dtype="uint8",
                    units="1",
                    description="undistorted sRGB picture, exposure evened out",
                    sizes={"channel": 3},
                    chunk={"frame": 1},
                    shard=32,
                ),
                "mask": ArraySpec(
                    dims=("frame", "y", "x"),
                    dtype="uint8",
                    units="1",
                    description="object mask, 0 outside to 255 inside",
                    chunk={"frame": 1},
                    shard=64,
                ),
                "time": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="s",
                    description="presentation time in the clip",
                    invariants=("finite", "monotone"),
                ),
                "position_world_camera": ArraySpec(
                    dims=("frame", "xyz"),
                    dtype="float64",
                    units="m",
                    description="camera position",
                    frame="world (scan board)",
                    sizes={"xyz": 3},
                    invariants=("finite",),
                ),
                "quaternion_world_camera": ArraySpec(
                    dims=("frame", "wxyz"),
                    dtype="float64",
                    units="1",
                    description="camera orientation, OpenCV axes",
                    frame="world (scan board)",
                    sizes={"wxyz": 4},
                    invariants=("unit_quaternion",),
                ),
                "intrinsics": ArraySpec(
                    dims=("frame", "fx_fy_cx_cy"),
                    dtype="float64",
                    units="px",
                    description="pinhole intrinsics fx, fy, cx, cy",
                    sizes={"fx_fy_cx_cy": 4},
                    invariants=("finite", "positive"),
                ),
                "held_out": ArraySpec(
                    dims=("frame",),
                    dtype="bool",
                    units="1",
                    description="kept for judging, never used for reconstruction",
                ),
                "sharpness": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="1",
                    description="variance of the Laplacian relative to the running median",
                    invariants=("finite", "positive"),
                ),
                "reprojection_rms": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="px",
                    description="RMS reprojection error of the board's tag corners",
                    invariants=("finite", "non_negative"),
                ),
                "gain": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="1",
                    description="factor that the picture was multiplied by to even out exposure",
                    invariants=("finite", "positive"),
                    optional=True,
                ),
            }
        )
    },
)
