"""Which OpenGL to render with when there is no screen: EGL where it works, else OSMesa.

MuJoCo and PyOpenGL read MUJOCO_GL and PYOPENGL_PLATFORM once, on import, so the choice is made here
by asking the system's libraries directly, before either is loaded.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from typing import Any

from twinloop.errors import MachineError

ADVICE = (
    "install one of them, on Debian or Ubuntu: `sudo apt-get install libegl1 libgl1-mesa-dri` "
    "(EGL) or `sudo apt-get install libosmesa6` (OSMesa, no GPU and no display needed)"
)
_EGL_PLATFORM_DEVICE = 0x313F


def choose_backend() -> str:
    """``egl`` or ``osmesa``, as found on this machine; MUJOCO_GL, where set, wins.

    Also sets MUJOCO_GL and PYOPENGL_PLATFORM for what is imported afterwards.
    Raises MachineError, naming the packages to install, where neither works.
    """
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    if wanted and wanted not in ("egl", "osmesa"):
        raise MachineError(
            f"MUJOCO_GL={wanted!r} needs a screen; the lab renders without one: "
            "unset MUJOCO_GL, or set it to egl or osmesa"
        )
    works = {"egl": egl_works, "osmesa": osmesa_works}
    for name in [wanted] if wanted else ["egl", "osmesa"]:
        if works[name]():
            os.environ["MUJOCO_GL"] = name
            os.environ["PYOPENGL_PLATFORM"] = name
            return name
    what = f"MUJOCO_GL={wanted} is asked for, but it" if wanted else "neither EGL nor OSMesa"
    raise MachineError(f"headless rendering: {what} works on this machine; {ADVICE}")


def egl_works() -> bool:
    """True where libEGL has a device whose display can be initialised."""
    egl = _library("EGL")
    if egl is None or not hasattr(egl, "eglGetProcAddress"):
        return False
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    display_address = egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    if not address or not display_address:
        return False
    devices = (ctypes.c_void_p * 16)()
    count = ctypes.c_int(0)
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)
    if not query(16, ctypes.cast(devices, ctypes.c_void_p), ctypes.addressof(count)):
        return False
    get_display = ctypes.CFUNCTYPE(
        ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p
    )(display_address)
    egl.eglInitialize.argtypes = [ctypes.c_void_p] * 3
    egl.eglInitialize.restype = ctypes.c_uint
    for device in devices[: count.value]:
        display = get_display(_EGL_PLATFORM_DEVICE, device, None)
        if display and egl.eglInitialize(display, None, None):
            return True
    return False


def osmesa_works() -> bool:
    """True where libOSMesa can be loaded and makes contexts."""
    library = _library("OSMesa")
    return library is not None and hasattr(library, "OSMesaCreateContextExt")


def _library(name: str) -> Any:
    """The shared library, or None where it is absent or broken."""
    found = ctypes.util.find_library(name)
    try:
        return ctypes.CDLL(found) if found else None
    except OSError:
        return None


def make_context(width: int, height: int) -> Any:
    """A current OpenGL context with an offscreen surface of the given size (px).

    The caller frees it (``.free()``). Raises MachineError where the driver refuses.
    """
    backend = choose_backend()
    try:
        if backend == "egl":
            from mujoco.egl import GLContext
        else:
            from mujoco.osmesa import GLContext
        context = GLContext(width, height)
        context.make_current()
    except (ImportError, AttributeError, RuntimeError, OSError) as error:
        raise MachineError(
            f"headless rendering by {backend} failed ({error}); set MUJOCO_GL=osmesa or egl to try "
            f"the other, or {ADVICE}"
        ) from error
    return context
