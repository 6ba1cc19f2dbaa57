"""Frames: undistorted, masked, posed pictures of an object (written by ``ingest``)."""

from twinloop.artifacts.schema import ArraySpec, ArtifactSchema, GroupSpec

FRAMES = ArtifactSchema(
    name="twinloop.frames",
    version="1.1.0",
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
                    # A window beside the optical axis has a centre outside it: no sign is required.
                    description="pinhole intrinsics fx, fy, cx, cy of the stored window",
                    sizes={"fx_fy_cx_cy": 4},
                    invariants=("finite",),
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
                    description="RMS reprojection error of the tag corners or points that the pose "
                    "was found from; absent when an export does not say",
                    invariants=("finite", "non_negative"),
                    optional=True,
                ),
                "gain": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="1",
                    description="factor that the picture was multiplied by to even out exposure",
                    invariants=("finite", "positive"),
                    optional=True,
                ),
                "mask_agreement": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="1",
                    description="overlap (IoU) of the mask with the silhouette of the common hull",
                    invariants=("probability",),
                    optional=True,
                ),
                "mask_support": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="1",
                    description="share of the mask whose colours alone speak for the object",
                    invariants=("probability",),
                    optional=True,
                ),
                "mask_quality": ArraySpec(
                    dims=("frame",),
                    dtype="float64",
                    units="1",
                    description="how far to trust the mask: agreement, support and edge together",
                    invariants=("probability",),
                    optional=True,
                ),
                "source": ArraySpec(
                    dims=("frame",),
                    dtype="int32",
                    units="1",
                    description="number of the picture in the scan",
                    invariants=("non_negative",),
                    optional=True,
                ),
                "lens": ArraySpec(
                    dims=("lens_parameter",),
                    dtype="float64",
                    units="1",
                    description="common lens: fx, fy, cx, cy [px], k1, k2, p1, p2, k3; the median "
                    "where frame_lens differs",
                    sizes={"lens_parameter": 9},
                    invariants=("finite",),
                    optional=True,
                ),
                "lens_std": ArraySpec(
                    dims=("lens_parameter",),
                    dtype="float64",
                    units="1",
                    description="standard deviation of lens",
                    sizes={"lens_parameter": 9},
                    invariants=("finite", "non_negative"),
                    optional=True,
                ),
                "frame_lens": ArraySpec(
                    dims=("frame", "lens_parameter"),
                    dtype="float64",
                    units="1",
                    description="lens of each frame, where it changes: fx, fy, cx, cy [px], k1, "
                    "k2, p1, p2, k3",
                    sizes={"lens_parameter": 9},
                    invariants=("finite",),
                    optional=True,
                ),
                "lens_size": ArraySpec(
                    dims=("width_height",),
                    dtype="int32",
                    units="px",
                    description="columns and rows of the upright pictures",
                    sizes={"width_height": 2},
                    invariants=("positive",),
                    optional=True,
                ),
            }
        ),
        "survey": GroupSpec(
            optional=True,
            arrays={
                "time": ArraySpec(
                    dims=("source",),
                    dtype="float64",
                    units="s",
                    description="presentation time of every picture of the scan",
                    invariants=("finite", "monotone"),
                ),
                "sharpness": ArraySpec(
                    dims=("source",),
                    dtype="float64",
                    units="1",
                    description="variance of the Laplacian relative to the running median",
                    invariants=("finite", "non_negative"),
                ),
                "verdict": ArraySpec(
                    dims=("source",),
                    dtype="int8",
                    units="1",
                    description="0 kept, 1 spare, 2 blurred, 3 duplicate, 4 no board, 5 board does "
                    "not fit, 6 redundant viewpoint, 7 mask contradicts the others, 8 other "
                    "picture size, 9 no pose found, 10 no mask file",
                    invariants=("non_negative",),
                ),
                "thumbnail": ArraySpec(
                    dims=("shot", "v", "u", "channel"),
                    dtype="uint8",
                    units="1",
                    description="small pictures of the candidates",
                    sizes={"channel": 3},
                    chunk={"shot": 16},
                    shard=16,
                ),
                "thumbnail_source": ArraySpec(
                    dims=("shot",),
                    dtype="int32",
                    units="1",
                    description="number of the thumbnail's picture in the scan",
                    invariants=("non_negative",),
                ),
            },
        ),
    },
)
