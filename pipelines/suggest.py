"""Answer a misspelt name with the ones that exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Sentence about a name that does not exist, with the closest ones that do."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    listed = f"Known: {', '.join(known) or 'none'}."
    hint = f"Did you mean {' or '.join(close)}?" if close else listed
    return f"unknown {kind} {name!r}. {hint}"
