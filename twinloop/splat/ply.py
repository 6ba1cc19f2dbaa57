"""Splats as PLY files in the convention of 3D Gaussian splatting, which viewers open.

The properties, their names and their order are those of the original code (Kerbl et al. 2023),
normals included, since some viewers read by position. `twinloop.splat.encoding` says what the
numbers are. Surfels get their normals, and as third scale 0.1 um, by which they are known again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from twinloop.capture.files import write_whole
from twinloop.errors import InputError
from twinloop.geometry import quaternion
from twinloop.splat.encoding import FLAT, LOGIT, QUATERNION, SCALES, decode, encode
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.ply_table import BLOCK, PlyTable, open_table
from twinloop.splat.surfels import Surfels

MOST = 20_000_000
"""Most Gaussians that `read_ply` accepts."""
RESTS = (0, 9, 24, 45)
"""Numbers of f_rest_ properties at degrees 0 to 3."""


def write_gaussians(path: Path, group: xr.Dataset) -> None:
    """Write the group `gaussians` of a reconstruction to `path`; see `write_ply`."""
    write_ply(Gaussians.from_dataset(group), path)


def write_ply(splats: Gaussians | Surfels, path: Path) -> None:
    """Write `splats` to `path`, whole or not at all.

    What `read_splats` reads from such a file gives the same bytes when it is written again.

    Raises:
        InputError: No splats, values that are not finite, scales that are not positive, opacities
            outside 0..1, or a quaternion of length 0.
        MachineError: The disk is full, or the folder cannot be written.
    """
    check(splats, str(path))

    def write(fresh: Path) -> None:
        with fresh.open("wb") as file:
            file.write(_header(len(splats), splats.sh.shape[1]))
            for rows in _rows(splats):
                file.write(rows.tobytes())

    write_whole(path, write)


def check(splats: Gaussians | Surfels, where: str) -> None:
    """Refuse splats that no file or renderer can hold; `where` begins the message.

    Raises:
        InputError: See `write_ply`.
    """
    if len(splats) == 0:
        raise InputError(f"{where}: there are no Gaussians to write; reconstruct again")
    for name in ("means", "quaternions", "scales", "opacities", "sh"):
        values = getattr(splats, name)
        if not np.isfinite(values).all():
            bad = np.flatnonzero(~np.isfinite(values).reshape(len(splats), -1).all(axis=1))
            raise InputError(
                f"{where}: {name} of {len(bad)} Gaussians are not finite (the first is number "
                f"{bad[0]}); train again with smaller steps, or leave those out"
            )
    if splats.scales.min() <= 0:
        raise InputError(
            f"{where}: the smallest scale is {splats.scales.min():g} m, expected positive scales"
        )
    if splats.opacities.min() < 0 or splats.opacities.max() > 1:
        raise InputError(
            f"{where}: opacities run from {splats.opacities.min():g} to {splats.opacities.max():g},"
            " expected 0..1 (a logit needs the sigmoid first)"
        )
    if not (np.abs(splats.quaternions).max(axis=1) > 0).all():
        raise InputError(f"{where}: a quaternion is 0 0 0 0, expected unit ones (wxyz)")


def _header(count: int, bases: int) -> bytes:
    names = ["x", "y", "z", "nx", "ny", "nz", *(f"f_dc_{i}" for i in range(3))]
    names += [f"f_rest_{i}" for i in range(3 * (bases - 1))]
    names += ["opacity", *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4))]
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    lines += [f"property float {name}" for name in names]
    return ("\n".join([*lines, "end_header"]) + "\n").encode()


def _rows(splats: Gaussians | Surfels) -> Iterator[NDArray[np.float32]]:
    """Blocks (rows, properties) of the file's numbers."""
    stored = encode(splats)
    for first in range(0, len(splats), BLOCK):
        part = slice(first, first + BLOCK)
        means, sh = splats.means[part], splats.sh[part]
        normals = np.zeros_like(means)
        if isinstance(splats, Surfels):
            normals = quaternion.to_matrix(splats.quaternions[part])[:, :, 2].astype(np.float32)
        # Coefficients past the first are ordered by channel: all of red, of green, of blue.
        rest = sh[:, 1:].transpose(0, 2, 1).reshape(len(sh), -1)
        columns = [means, normals, sh[:, 0], rest, stored[part]]
        yield np.concatenate(columns, axis=1).astype("<f4")


def read_ply(path: Path) -> Gaussians:
    """Read Gaussians from a PLY: see `read_splats`; surfels come as very flat Gaussians."""
    return _read(open_table(path))


def read_splats(path: Path) -> Gaussians | Surfels:
    """Read Gaussians or surfels from a PLY.

    Properties in any order, of any number type, further ones ignored; binary of either byte order,
    or ascii. Surfels are files without scale_2 (as 2DGS writes), or in which it is 0.1 um all over
    (as `write_ply` does). Memory: the result, and a block of rows.

    Raises:
        InputError: No such file, no PLY, a file of something else (a mesh, compressed splats),
            properties missing, degree above 3, cut short, more than `MOST` rows, values that are
            not finite, or a quaternion of length 0.
    """
    table = open_table(path)
    gaussians = _read(table)
    assert gaussians.stored is not None
    if (gaussians.stored[:, 3] != FLAT).any():
        return gaussians
    return Surfels(
        gaussians.means,
        gaussians.quaternions,
        gaussians.scales[:, :2].copy(),
        gaussians.opacities,
        gaussians.sh,
    )


def _read(table: PlyTable) -> Gaussians:
    path, rest = table.path, _check_properties(table)
    n, bases = table.count, rest // 3 + 1
    if not 0 < n <= MOST:
        raise InputError(
            f"{path}: holds {n} Gaussians, expected 1 to {MOST}; thin it out in a splat editor"
        )
    means = np.empty((n, 3), np.float32)
    sh = np.empty((n, bases, 3), np.float32)
    stored = np.full((n, 8), FLAT, np.float32)
    targets = {name: means[:, i] for i, name in enumerate("xyz")}
    targets |= {f"f_dc_{i}": sh[:, 0, i] for i in range(3)}
    targets |= {f"f_rest_{i}": sh[:, 1 + i % (bases - 1), i // (bases - 1)] for i in range(rest)}
    targets["opacity"] = stored[:, LOGIT][:, 0]
    targets |= {f"scale_{i}": stored[:, SCALES][:, i] for i in range(3)}
    targets |= {f"rot_{i}": stored[:, QUATERNION][:, i] for i in range(4)}
    first = 0
    for block in table.blocks():
        rows = len(block["x"])
        for name, target in targets.items():
            if name not in block:
                continue  # scale_2 of a file of surfels
            with np.errstate(over="ignore"):
                values = block[name].astype(np.float32)
            if not np.isfinite(values).all():
                row = first + int(np.flatnonzero(~np.isfinite(values))[0])
                raise InputError(
                    f"{path}: property {name} of Gaussian {row} is {block[name][row - first]}, "
                    "expected finite numbers; open it in a splat editor, drop such Gaussians and "
                    "export it again"
                )
            target[first : first + rows] = values
        first += rows
    if not (np.abs(stored[:, QUATERNION]).max(axis=1) > 0).all():
        row = int(np.argmin(np.abs(stored[:, QUATERNION]).max(axis=1)))
        raise InputError(f"{path}: rot_0..rot_3 of Gaussian {row} are 0, expected a quaternion")
    gaussians = decode(means, stored, sh)
    if not np.isfinite(gaussians.scales).all():
        raise InputError(
            f"{path}: scales up to exp({stored[:, SCALES].max():g}) m; scale_0..2 are expected to "
            "be logarithms of metres"
        )
    return gaussians


def _check_properties(table: PlyTable) -> int:
    """Check that the table is one of splats; returns the number of f_rest_ properties."""
    names, path = set(table.names), table.path
    if "packed_position" in names:
        raise InputError(
            f"{path}: is a compressed PLY of packed splats; export it as an ordinary PLY "
            "(uncompressed) from the viewer that made it"
        )
    rest = sum(name.startswith("f_rest_") for name in names)
    needed = ["x", "y", "z", "opacity", "scale_0", "scale_1"]
    needed += [f"rot_{i}" for i in range(4)] + [f"f_dc_{i}" for i in range(3)]
    needed += [f"f_rest_{i}" for i in range(rest)]
    missing = [name for name in needed if name not in names]
    if missing:
        mesh = ""
        if table.elements.get("face") or not {"opacity", "f_dc_0"} & names:
            mesh = "; it looks like a mesh or a point cloud"
        raise InputError(
            f"{path}: is no PLY of Gaussians: the properties {', '.join(missing)} are missing{mesh}"
        )
    if rest not in RESTS:
        raise InputError(
            f"{path}: has {rest} f_rest_ properties, expected one of {RESTS} (degrees 0 to 3 of "
            "the spherical harmonics)"
        )
    return rest
