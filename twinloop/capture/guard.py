"""Decode the beginning of a foreign file in a child process, with bounds on time and memory.

Decoders are large C libraries: a forged file may crash them, keep them busy for ever, or make them
ask for all memory.  When that happens to the child, the parent says so and lives.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from twinloop.errors import InputError, MachineError, TwinloopError

FIRST_FRAMES = 3
"""Frames of a video that the child decodes."""
SAMPLE = 8
"""Most pictures of a folder whose pixels the child decodes; of all others it reads the header."""
DECODER = "twinloop.capture.guard:decode"
"""Function that the child calls with each path and whether to decode pixels."""


def check_decodes(
    paths: Sequence[Path],
    seconds: float = 60.0,
    memory: int = 4 * 2**30,
    decoder: str = DECODER,
) -> None:
    """Let a child process decode the beginning of each file first.

    Args:
        paths: Videos and photos, in one child.  Of photos, ``SAMPLE`` evenly spread ones are
            decoded.  A photo that is merely damaged passes: its reader says what becomes of it.
        seconds: Longest wall and processor time of the child, s.
        memory: Largest address space of the child, bytes, where the system has such a bound.
        decoder: "module:function" that the child runs.

    Raises:
        InputError: A file cannot be decoded as video, crashes the decoder, or needs too much time
            or memory; names the file and what happened.
        MachineError: An optional package is missing.
    """
    if not paths:
        return
    job = {
        "paths": [os.fsencode(p).hex() for p in paths],
        "seconds": seconds,
        "memory": memory,
        "decoder": decoder,
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        # Threads of libraries that decode nothing would count as memory.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-P", "-m", "twinloop.capture.guard"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(job).encode(),
            capture_output=True,
            timeout=seconds,
            env=environment,
            check=False,
        )
        output, code = done.stdout, done.returncode
        errors = done.stderr.decode(errors="replace").strip().splitlines()
    except subprocess.TimeoutExpired as expired:
        output, code, errors = expired.stdout or b"", None, []
    _judge(paths, output.decode(errors="replace"), code, errors, seconds, memory)


def _judge(
    paths: Sequence[Path],
    output: str,
    code: int | None,
    errors: list[str],
    seconds: float,
    memory: int,
) -> None:
    """Raise what the child's end means."""
    lines = [line.split(" ", 1) for line in output.splitlines() if line]
    begun = [int(rest[0]) for word, *rest in lines if word == "begin"]
    for word, *rest in lines:
        if word in ("InputError", "MachineError"):
            kind = MachineError if word == "MachineError" else InputError
            raise kind(str(json.loads(rest[0])))
    if code == 0:
        return
    if not begun:
        raise MachineError(
            f"The process that tries decoders failed before the first file "
            f"({errors[-1] if errors else f'exit {code}'})."
        )
    if code is None or code == -_signal("SIGXCPU"):
        what = f"its decoder was still busy after {seconds:g} s"
    elif any(word == "memory" for word, *_ in lines):
        what = f"its decoder wants more than {memory / 2**30:.1f} GiB of memory"
    elif code < 0:
        what = f"its decoder crashed ({signal.Signals(-code).name})"
    else:
        what = f"its decoder failed ({errors[-1] if errors else f'exit {code}'})"
    raise InputError(
        f"{paths[begun[-1]]}: {what}. The file is damaged or forged; copy it again from the "
        "camera, or leave it out."
    )


def decode(path: Path, pixels: bool) -> None:
    """Open a file, and decode its first pictures if ``pixels``."""
    from twinloop.capture.photo_file import SUFFIXES, try_photo

    if path.suffix.lower() in SUFFIXES:
        try_photo(path, pixels)
        return
    from twinloop.capture.video_file import opened

    with opened(path) as container:
        # As many threads as cores would reserve memory on large machines.
        container.streams.video[0].codec_context.thread_count = 2
        if not list(itertools.islice(container.decode(video=0), FIRST_FRAMES)):
            raise InputError(f"{path}: no frame can be decoded; the video is empty or truncated.")


def _limit(seconds: float, memory: int) -> None:
    """Bound this process, where the system can."""
    try:
        import resource
    except ImportError:  # not on Windows, where the parent's clock alone bounds the child
        return
    for kind, most in (
        ("RLIMIT_AS", memory),
        ("RLIMIT_CPU", math.ceil(seconds)),
        ("RLIMIT_CORE", 0),
    ):
        if hasattr(resource, kind):
            _, hard = resource.getrlimit(getattr(resource, kind))
            bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(getattr(resource, kind), (bound, hard))


def _signal(name: str) -> int:
    return int(getattr(signal, name, 0))


def main() -> int:
    """Run in the child: decode what standard input lists, say what is begun."""
    job = json.load(sys.stdin)
    paths = [Path(os.fsdecode(bytes.fromhex(text))) for text in job["paths"]]
    decoder = pkgutil.resolve_name(job["decoder"])
    _limit(job["seconds"], job["memory"])
    count = min(SAMPLE, len(paths))
    chosen = {round(i * (len(paths) - 1) / max(count - 1, 1)) for i in range(count)}
    for i, path in enumerate(paths):
        print(f"begin {i}", flush=True)
        try:
            decoder(path, i in chosen)
        except MemoryError:
            print("memory", flush=True)
            return 1
        except TwinloopError as error:
            print(f"{type(error).__name__} {json.dumps(str(error))}", flush=True)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
