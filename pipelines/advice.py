"""What to do about errors that DVC, git or the system word in their own way."""

from __future__ import annotations

import re

ADVICE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (
            r"no space left on device|ENOSPC|disk quota exceeded",
            "The disk is full: free space (`dvc gc --workspace` drops cached results that no "
            "current object needs), then run again. Finished stages are kept.",
        ),
        (
            r"missing data 'source'|missing-files|failed to pull data|missing cache files",
            "An input is neither in the workspace nor in the cache: `dvc pull` fetches it from "
            "the remote, `twinloop add` replaces a capture.",
        ),
        (
            r"Parameters? '.*' (is|are) missing|missing from '.*yaml'",
            "`twinloop check` lists every key that params.yaml or object.yaml lacks.",
        ),
        (
            r"No module named '?(twinloop|stages)\b",
            "The project's own code does not import: see the log, and `twinloop check`.",
        ),
        (
            r"No module named",
            "A package is missing: `twinloop doctor` says which extra brings it.",
        ),
        (
            r"libEGL|libOSMesa|OSMesa|gladLoadGL|no GL|EGL.*(fail|error)|GLError",
            "Headless rendering does not work: install the packages of apt.txt "
            "(`xargs -a apt.txt sudo apt-get install -y`); `twinloop doctor` tests it.",
        ),
        (
            r"Unable to acquire lock|Cannot acquire lock",
            "Another DVC command holds the project; wait for it and run again.",
        ),
        (
            r"dvc\.lock.*(corrupt|conflict|invalid)|YAMLFileCorruptedError.*dvc\.lock",
            "dvc.lock is damaged: `git checkout dvc.lock` restores the last committed one; "
            "results come back from the cache.",
        ),
        (
            r"MemoryError|Killed|exit code -9\b|exited with -9\b|exited with 137\b",
            "A stage was killed, most likely for memory: use fewer `--jobs`.",
        ),
    )
)


def advise(message: str) -> str:
    """Return ``message`` with the first advice that fits it on a line of its own."""
    for pattern, text in ADVICE:
        if pattern.search(message):
            return f"{message.rstrip()}\n{text}"
    return message.rstrip()


_TRANSIENT = re.compile(
    r"exited with -(9|15)\b|exit code -(9|15)\b|Unable to acquire lock|Connection (reset|refused)"
    r"|timed out|Temporary failure in name resolution|Resource temporarily unavailable",
    re.IGNORECASE,
)


def is_transient(message: str) -> bool:
    """Tell whether a failure may pass by itself, so that trying again makes sense."""
    return bool(_TRANSIENT.search(message))
