"""Twinloop: captures in, digital twin out.

What a program needs of it outside a project stands here: ``twinloop.track(video, twin)``. Names
come from their modules when they are asked for, so that ``import twinloop`` loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinloop.tracking.api import track

__all__ = ["track"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562)."""
    if name == "track":
        from twinloop.tracking.api import track

        return track
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names too, loaded or not."""
    return sorted({*globals(), *__all__})
