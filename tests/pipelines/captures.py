"""Capture folders that hold every file by name, for projects that read only the words."""

from __future__ import annotations

from pathlib import Path

from pipelines.objects import REQUIRED


def write_capture(folder: Path, words: str) -> dict[str, Path]:
    """Write ``scan``, ``push`` and ``demo`` below ``folder``; returns them by part."""
    parts = {part: folder / part for part in REQUIRED}
    for part, names in REQUIRED.items():
        parts[part].mkdir(parents=True)
        for name in names:
            (parts[part] / name).write_text(f"{part} {name}\n")
    for name in ("video.mp4", "board.yaml"):
        (parts["scan"] / name).write_text(f"scan {name}\n")
    (parts["scan"] / "words.txt").write_text(words)
    (parts["push"] / "pushes.yaml").write_text("pushes:\n  - {name: push_000, action: tap}\n")
    (parts["push"] / "push_000").mkdir()
    for name in ("video.mp4", "robot.csv"):
        (parts["push"] / "push_000" / name).write_text(name)
    return parts
