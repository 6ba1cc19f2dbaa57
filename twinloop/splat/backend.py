"""Whether the native CPU kernels can be used on this machine, or torch has to do.

Warp compiles its CPU kernels, and the C++ in them, with a clang of its own. A Warp that was built
without it (`wp.is_cpu_available()` is False) has no CPU kernels at all, not even of pure Python, so
that the way out is torch: slower by far, equal within rounding.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from types import ModuleType
from typing import Any

import warp as wp

from twinloop.errors import ParamsError


class SlowBackendWarning(UserWarning):
    """Native CPU kernels are not available; the slow torch code runs instead."""


def native(kernels: ModuleType) -> bool:
    """Whether the Warp kernels of this module are compiled and loaded for the CPU.

    The first call for a module compiles it (some 10 s once per machine, then from Warp's cache), in
    the calling thread. ``TWINLOOP_NATIVE=0`` says no without trying, to measure or test the slow
    code. Where it is not possible a `SlowBackendWarning` says why, once per module.

    Raises:
        ParamsError: ``TWINLOOP_NATIVE`` is neither 0 nor 1.
    """
    wish = os.environ.get("TWINLOOP_NATIVE", "1") or "1"
    if wish not in ("0", "1"):
        raise ParamsError(
            f"TWINLOOP_NATIVE is {wish!r}, expected 1 (native CPU kernels) or 0 (torch only)."
        )
    return wish == "1" and _loaded(kernels)


@cache
def _loaded(kernels: Any) -> bool:
    reason = "this build of Warp has no compiler for CPU kernels (LLVM)"
    if wp.is_cpu_available():
        try:
            wp.load_module(kernels, device="cpu")
        except Exception as error:  # Warp raises a bare Exception when its clang fails
            reason = f"Warp cannot compile them here: {error}"
        else:
            return True
    warnings.warn(
        f"No native kernels of {kernels.__name__}: {reason}. The same is now computed by torch, "
        "correct but many times slower; an official wheel of warp-lang has what is needed.",
        SlowBackendWarning,
        stacklevel=3,
    )
    return False
