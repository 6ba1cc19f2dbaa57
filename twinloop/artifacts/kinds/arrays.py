"""Array declarations that several kinds share: times, poses, covariances."""

from __future__ import annotations

from twinloop.artifacts.schema import ArraySpec


def time(dim: str, clock: str) -> ArraySpec:
    """Return strictly increasing time stamps along ``dim`` on the named clock."""
    return ArraySpec(
        dims=(dim,),
        dtype="float64",
        units="s",
        description=f"time on the {clock} clock",
        invariants=("finite", "monotone"),
    )


def position(dims: tuple[str, ...], what: str, frame: str) -> ArraySpec:
    """Return positions in metres."""
    return ArraySpec(
        dims=(*dims, "xyz"),
        dtype="float64",
        units="m",
        description=what,
        frame=frame,
        sizes={"xyz": 3},
        invariants=("finite",),
    )


def quaternion(dims: tuple[str, ...], what: str, frame: str) -> ArraySpec:
    """Return unit quaternions, wxyz."""
    return ArraySpec(
        dims=(*dims, "wxyz"),
        dtype="float64",
        units="1",
        description=what,
        frame=frame,
        sizes={"wxyz": 4},
        invariants=("unit_quaternion",),
    )


def pose_covariance(dims: tuple[str, ...], frame: str) -> ArraySpec:
    """Return 6x6 covariances: translation [m], then rotation [rad], left perturbation."""
    return ArraySpec(
        dims=(*dims, "twist", "twist_"),
        dtype="float64",
        units="1",
        description="covariance of translation [m^2] and left rotation [rad^2]",
        frame=frame,
        sizes={"twist": 6, "twist_": 6},
        invariants=("spd",),
    )


def numbers(
    dims: tuple[str, ...],
    units: str,
    what: str,
    *invariants: str,
    dtype: str = "float64",
    frame: str | None = None,
    optional: bool = False,
    **sizes: int,
) -> ArraySpec:
    """Return any other array in one line."""
    return ArraySpec.model_validate(
        {
            "dims": dims,
            "dtype": dtype,
            "units": units,
            "description": what,
            "frame": frame,
            "sizes": sizes,
            "invariants": invariants,
            "optional": optional,
        }
    )
