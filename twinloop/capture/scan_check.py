"""What ``scan.yaml`` states, checked before minutes are spent on the pictures' poses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import inside
from twinloop.capture.flange_poses import read_flange_poses
from twinloop.capture.given_masks import masked_of
from twinloop.capture.metric_world import require_scale
from twinloop.capture.prompts import by_picture
from twinloop.capture.scan_file import Click
from twinloop.capture.source import Scan
from twinloop.errors import InputError


def check_scan(scan: Scan) -> None:
    """Refuse a scan whose ``scan.yaml`` cannot be fulfilled, whatever the pictures show.

    Raises:
        InputError: Nothing gives metres; a click or box is in a picture that does not exist, or
            outside of it; robot poses, masks or a segmenter are not there.
    """
    file, where = scan.file, scan.folder / "scan.yaml"
    require_scale(scan)
    if file.prompts:
        by_picture(file.prompts, scan.pictures)
    for distance in file.scale.distances:
        said = f"{where}: the distance of {distance.metres:g} m"
        _check_clicks(said, (*distance.first, *distance.second), scan.pictures.sizes)
    if file.scale.robot_poses:
        path = inside(scan.folder, file.scale.robot_poses, where)
        read_flange_poses(path)
    if file.scale.depth and (scan.posed is None or scan.posed.depth is None):
        raise InputError(
            f"{where}: scale.depth is true, but the {scan.format} capture has no depth pictures."
        )
    if file.segmenter and not inside(scan.folder, file.segmenter, where).is_file():
        raise InputError(f"{where}: the segmenter {file.segmenter!r} does not exist.")
    masked = masked_of(scan)
    if masked is not None and not masked.any():
        raise InputError(f"{where}: no picture has a mask in {file.masks!r}.")


def _check_clicks(said: str, clicks: Sequence[Click], sizes: NDArray[np.int64]) -> None:
    for picture, u, v in clicks:
        if not 0 <= picture < len(sizes):
            raise InputError(
                f"{said} is clicked in picture {picture}; there are {len(sizes)} (0 to "
                f"{len(sizes) - 1}), counted from 0 in order of presentation."
            )
        width, height = (int(x) for x in sizes[picture])
        if not (-0.5 <= u <= width - 0.5 and -0.5 <= v <= height - 0.5):
            hint = " Swap u and v?" if -0.5 <= v <= width - 0.5 and u <= height - 0.5 else ""
            raise InputError(
                f"{said} is clicked at ({u:g}, {v:g}) px in picture {picture}, outside the upright "
                f"picture of {width} x {height} px.{hint}"
            )
