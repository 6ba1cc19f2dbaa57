"""Gaussians as PLY files in the convention of 3D Gaussian splatting, which viewers open.

The file holds log scales, logit opacities and coefficients ordered by channel. What is written
equals what gsplat's exporter writes, byte for byte, without loading torch for it; the reader trusts
nothing in the header.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.splat.gaussians import Gaussians

MOST = 20_000_000
"""Most Gaussians that `read_ply` accepts."""


def write_gaussians(path: Path, group: xr.Dataset) -> None:
    """Write the group `gaussians` of a reconstruction to `path`; see `write_ply`."""
    write_ply(Gaussians.from_dataset(group), path)


def write_ply(gaussians: Gaussians, path: Path) -> None:
    """Write `gaussians` to `path`; opacities are kept inside 1e-6..1-1e-6 for finite logits.

    Raises:
        InputError: Values that are not finite, or scales that are not positive.
    """
    fields = {
        "means": gaussians.means,
        "quaternions": gaussians.quaternions,
        "scales": gaussians.scales,
        "opacities": gaussians.opacities,
        "sh": gaussians.sh,
    }
    for name, values in fields.items():
        if not np.isfinite(values).all():
            raise InputError(f"{path}: {name} of the Gaussians has values that are not finite")
    if len(gaussians) == 0 or gaussians.scales.min() <= 0:
        raise InputError(
            f"{path}: {len(gaussians)} Gaussians with positive scales expected; train longer or "
            "reconstruct again"
        )

    opacity = gaussians.opacities.astype(np.float64).clip(1e-6, 1 - 1e-6)
    count, basis = gaussians.sh.shape[:2]
    # Coefficients past the first are ordered by channel: all of red, all of green, all of blue.
    columns = {
        ("x", "y", "z"): gaussians.means,
        tuple(f"f_dc_{i}" for i in range(3)): gaussians.sh[:, 0],
        tuple(f"f_rest_{i}" for i in range(3 * (basis - 1))): (
            gaussians.sh[:, 1:].transpose(0, 2, 1).reshape(count, -1)
        ),
        ("opacity",): np.log(opacity / (1 - opacity))[:, None],
        tuple(f"scale_{i}" for i in range(3)): np.log(gaussians.scales.astype(np.float64)),
        tuple(f"rot_{i}" for i in range(4)): gaussians.quaternions,
    }
    names = [name for group in columns for name in group]
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {count}\n"
    header += "".join(f"property float {name}\n" for name in names) + "end_header\n"
    table = np.concatenate([values.astype("<f4") for values in columns.values()], axis=1)
    path.write_bytes(header.encode() + table.tobytes())


def read_ply(path: Path) -> Gaussians:
    """Read Gaussians from a binary little-endian PLY, with its properties in any order.

    Raises:
        InputError: No such PLY, properties missing, or the file shorter than its header says.
    """
    data = path.read_bytes()
    end = data.find(b"end_header\n")
    head = data[: max(end, 0)].decode("ascii", errors="replace")
    count = re.search(r"^element vertex (\d{1,9})\s*$", head, re.MULTILINE)
    if end < 0 or not head.startswith("ply") or count is None:
        raise InputError(f"{path} is no PLY file with an 'element vertex' line")
    if "format binary_little_endian 1.0" not in head:
        raise InputError(f"{path}: expected 'format binary_little_endian 1.0'; export it again so")
    names = re.findall(r"^property (\w+) (\w+)\s*$", head.split("element vertex")[1], re.MULTILINE)
    kinds = {"float": "<f4", "float32": "<f4", "double": "<f8", "uchar": "u1", "int": "<i4"}
    wrong = sorted({kind for kind, _ in names} - set(kinds))
    if wrong:
        raise InputError(f"{path}: property types {wrong} are not known, expected {sorted(kinds)}")
    n = int(count.group(1))
    layout = np.dtype([(name, kinds[kind]) for kind, name in names])
    body = data[end + len(b"end_header\n") :]
    if n > MOST or len(body) < n * layout.itemsize:
        raise InputError(
            f"{path}: the header promises {n} Gaussians of {layout.itemsize} bytes, the file holds "
            f"{len(body)} bytes and {MOST} Gaussians are the most accepted; it is cut or damaged"
        )
    table = np.frombuffer(body, layout, count=n)
    rest = sum(name.startswith("f_rest_") for _, name in names)
    needed = [
        *("x", "y", "z", "opacity"),
        *(f"rot_{i}" for i in range(4)),
        *(f"scale_{i}" for i in range(3)),
        *(f"f_dc_{i}" for i in range(3)),
        *(f"f_rest_{i}" for i in range(rest)),
    ]
    missing = [name for name in needed if name not in (layout.names or ())]
    if missing or rest % 3:
        raise InputError(f"{path}: properties {missing or 'f_rest_*'} are missing")

    def columns(*wanted: str) -> NDArray[np.float64]:
        return np.stack([table[name].astype(np.float64) for name in wanted], axis=1)

    quaternions = columns(*needed[4:8])
    length = np.linalg.norm(quaternions, axis=1, keepdims=True)
    first = columns(*needed[11:14])[:, None]
    more = columns(*needed[14:]) if rest else np.zeros((n, 0))
    more = more.reshape(n, 3, rest // 3).transpose(0, 2, 1)
    result = Gaussians(
        columns("x", "y", "z").astype(np.float32),
        (quaternions / np.where(length > 0, length, 1)).astype(np.float32),
        np.exp(columns(*needed[8:11])).astype(np.float32),
        (1 / (1 + np.exp(-table["opacity"].astype(np.float64)))).astype(np.float32),
        np.concatenate([first, more], axis=1).astype(np.float32),
    )
    if not all(np.isfinite(v).all() for v in (result.means, result.scales, result.sh)):
        raise InputError(f"{path}: Gaussians with values that are not finite")
    return result
