"""What this machine and project can do, what is missing, and what each missing thing costs."""

from __future__ import annotations

import configparser
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from twinloop.cli.project import read_mapping
from twinloop.errors import InputError, MachineError
from twinloop.extras import optional_packages

VERSIONS_FILE = "versions.yaml"
NO_LIBRARY = {"device"}
LITTLE_DISK = 5e9
"""Bytes of free disk below which a run may fail."""

State = Literal["ok", "missing", "fault"]

EXTRA_COSTS = {
    "dev": "tests and lint do not run",
    "sfm": "scans without a tag board cannot be posed",
    "photos": "photos in HEIC are not read",
    "logs": "ROS bags, LeRobot and HDF5 robot logs are not read",
    "depth": "depth of Record3D and EXR files is not read",
    "segment": "masks from an ONNX model of your own are not made",
}


@dataclass(frozen=True)
class Line:
    """One thing that was looked at."""

    name: str
    state: State
    """"missing" costs something, "fault" keeps the project from working."""
    found: str
    cost: str = ""
    """What it costs that it is missing, and how to get it."""


def examine(root: Path | None) -> list[Line]:
    """Look at the machine and, unless ``root`` is None, at the project."""
    checks: list[Callable[[], Line]] = [check_python, check_cores, check_git, check_dvc]
    checks += [check_gpu, check_gsplat, check_gl, check_video, check_prefect]
    lines = [_guarded(check) for check in checks]
    lines += check_extras()
    if root is None:
        lines.append(Line("project", "missing", "none here", "go into a clone to examine it too"))
        return lines
    return [*lines, check_disk(root), check_remote(root), *check_versions(root)]


def _guarded(check: Callable[[], Line]) -> Line:
    """A check that fails in an unforeseen way is a finding, not the end of the doctor."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.removeprefix("check_")
        return Line(name, "missing", f"could not be examined ({type(error).__name__}: {error})")


def check_python() -> Line:
    """Python of at least 3.11."""
    good = sys.version_info >= (3, 11)
    return Line("python", "ok" if good else "fault", platform.python_version(), "needs 3.11")


def check_cores() -> Line:
    """Processors: how many objects are built at once."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Line("cores", "ok", f"{count}: as many objects are built at once")


def check_git() -> Line:
    """Git, for snapshots and worktrees."""
    if shutil.which("git") is None:
        return Line("git", "fault", "not found", "nothing runs; install git")
    return Line("git", "ok", _output(["git", "--version"]).removeprefix("git version "))


def check_dvc() -> Line:
    """DVC of this interpreter."""
    try:
        return Line("dvc", "ok", version("dvc"))
    except PackageNotFoundError:
        return Line("dvc", "fault", "not installed", "nothing runs; `pip install -e .`")


def check_gpu() -> Line:
    """CUDA device for torch."""
    import torch

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        return Line("gpu", "ok", f"{name}; used when versions.yaml says `device: cuda`")
    cost = "profile full takes long; profile smoke is made for the CPU"
    return Line("gpu", "missing", f"torch {torch.__version__} finds no CUDA device", cost)


def check_gsplat() -> Line:
    """CUDA kernels of gsplat."""
    if find_spec("gsplat") is None:
        return Line("gsplat", "fault", "not installed", "no Gaussians on CUDA; `pip install -e .`")
    import torch

    if torch.cuda.is_available() and shutil.which("nvcc"):
        return Line("gsplat", "ok", f"{version('gsplat')}, CUDA kernels can be built")
    cost = "Gaussians are drawn by the Warp kernels: same pictures, slower"
    return Line("gsplat", "missing", f"{version('gsplat')} without CUDA kernels", cost)


def check_gl() -> Line:
    """Headless OpenGL, tried in a process of its own: the choice is final once it is loaded."""
    code = "from twinloop.lab.gl import make_context as m; m(16, 16).free(); import os"
    code += "; print(os.environ['MUJOCO_GL'])"
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=False, timeout=120
    )
    if done.returncode == 0:
        return Line("gl", "ok", f"renders without a screen by {done.stdout.strip()}")
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    cost = "no lab objects (no captures are rendered); install apt.txt's packages"
    return Line("gl", "missing", reason, cost)


def check_video() -> Line:
    """Decoder and encoder of phone videos."""
    import av

    names = ("h264", "hevc")
    lacking = [name for name in names if name not in av.codecs_available]
    if lacking:
        return Line("video", "fault", f"no codec {', '.join(lacking)}", "reinstall `av`")
    return Line("video", "ok", f"PyAV {av.__version__} with {', '.join(names)}")


def check_prefect() -> Line:
    """A running Prefect server; runs by hand need none."""
    url = os.environ.get("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    cost = "no schedules, no nightly builds, no web page; `twinloop run` needs no server. "
    cost += "Start one: prefect server start"
    if not url.startswith(("http://", "https://")):
        return Line("prefect server", "missing", f"PREFECT_API_URL is {url!r}", cost)
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2):  # noqa: S310, http(s) only
            return Line("prefect server", "ok", url)
    except (urllib.error.URLError, OSError, ValueError):
        return Line("prefect server", "missing", f"none answers at {url}", cost)


def check_extras() -> list[Line]:
    """Optional extras of the installed package."""
    wanted: dict[str, list[str]] = {}
    try:
        declared = requires("twinloop") or []
    except PackageNotFoundError:
        return [Line("twinloop", "missing", "not installed", "run `pip install -e .`")]
    for requirement in declared:
        match = re.match(r"([A-Za-z0-9._-]+).*extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        if match and match[2] != "all":
            wanted.setdefault(match[2], []).append(match[1])
    lines = []
    for extra, packages in sorted(wanted.items()):
        lacking = [package for package in packages if not _installed(package)]
        cost = f"{EXTRA_COSTS.get(extra, 'its features')}; `pip install -e .[{extra}]`"
        found = f"lacks {', '.join(lacking)}" if lacking else "installed"
        lines.append(Line(f"extra {extra}", "missing" if lacking else "ok", found, cost))
    return lines


def check_disk(root: Path) -> Line:
    """Free space where the cache is."""
    free = shutil.disk_usage(root).free
    cost = "a run may stop with a full disk; `dvc gc --workspace` frees what nothing needs"
    return Line(
        "disk", "ok" if free > LITTLE_DISK else "missing", f"{free / 1e9:.0f} GB free", cost
    )


def check_remote(root: Path) -> Line:
    """The default remote of DVC: where `dvc push` puts captures and results."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
    config.read([root / ".dvc" / "config", root / ".dvc" / "config.local"], encoding="utf-8")
    name = config.get("core", "remote", fallback="")
    cost = "results cannot be shared or backed up; `dvc remote add --default NAME URL`"
    if not name:
        return Line("dvc remote", "missing", "no default remote", cost)
    section = f"'remote \"{name}\"'"
    url = config.get(section, "url", fallback="")
    if not url:
        return Line("dvc remote", "missing", f"remote {name} has no url", cost)
    if "://" in url:
        scheme = url.split("://")[0]
        package = {"s3": "dvc_s3", "ssh": "dvc_ssh", "gs": "dvc_gs"}.get(scheme)
        if package and find_spec(package) is None:
            return Line("dvc remote", "missing", f"{url} needs {package}", f"pip install {package}")
        return Line("dvc remote", "ok", f"{name}: {url} (not contacted)")
    place = (root / ".dvc" / url).resolve()
    parent = next(p for p in (place, *place.parents) if p.exists())
    if not os.access(parent, os.W_OK):
        return Line("dvc remote", "missing", f"{place} cannot be written", cost)
    kind = "local folder" if place.exists() else "local folder, made by the first `dvc push`"
    return Line("dvc remote", "ok", f"{name}: {place} ({kind})")


def check_versions(root: Path) -> list[Line]:
    """Libraries against ``versions.yaml``."""
    wrong = [
        f"{library} {installed} (declared {declared})"
        for library, (declared, installed) in versions(root).items()
        if declared != installed
    ]
    if not wrong:
        return [Line("versions", "ok", f"as {VERSIONS_FILE} says")]
    cost = "stages refuse to run: `pip install -r requirements.lock`, or accept the installed ones "
    cost += "with `twinloop doctor --write-versions` (what uses them is built anew)"
    return [Line("versions", "fault", ", ".join(wrong), cost)]


def versions(root: Path) -> dict[str, tuple[str, str]]:
    """Declared and installed version of each library in ``versions.yaml``.

    An optional one that is not installed is left out: nothing can have used it.
    """
    declared = read_mapping(root / VERSIONS_FILE)
    found = {}
    for library, value in declared.items():
        absent = library in optional_packages() and not _installed(library)
        if library not in NO_LIBRARY and not absent:
            installed = version(library).split("+")[0] if _installed(library) else "nothing"
            found[str(library)] = (str(value), installed)
    return found


def write_versions(root: Path) -> list[str]:
    """Put the installed versions into ``versions.yaml``; comments stay. Returns what changed.

    Raises:
        MachineError: A library is not installed.
        InputError: A line of the file cannot be found.
    """
    path = root / VERSIONS_FILE
    text = path.read_text(encoding="utf-8")
    changed = []
    for library, (declared, installed) in versions(root).items():
        if declared == installed:
            continue
        if installed == "nothing":
            raise MachineError(f"{library} is not installed; `pip install -r requirements.lock`.")
        line = re.compile(rf"^({re.escape(library)}:\s*)(\"[^\"]*\"|'[^']*'|[^\s#]+)", re.MULTILINE)
        text, count = line.subn(rf'\g<1>"{installed}"', text)
        if count != 1:
            raise InputError(f"{path}: cannot rewrite the line of {library}; edit it by hand.")
        changed.append(f"{library}: {declared} -> {installed}")
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
    return changed


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _output(command: list[str]) -> str:
    return subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip()
