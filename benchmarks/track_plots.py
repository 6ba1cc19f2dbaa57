"""ADD over time, with the frames' status and where the object was hidden."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.track_scores import Scores
from benchmarks.track_sequence import Array
from twinloop.tracking.pose_track import LOST, OK, UNCERTAIN

STATES = ((OK, "ok", "#0a7d38"), (UNCERTAIN, "uncertain", "#e08700"), (LOST, "lost", "#b3261e"))


def draw(path: Path, clips: list[tuple[str, Array, Scores, Scores]], limit: float) -> None:
    """One panel for each clip: name, times (n,) s, scores raw and smoothed; limit: mm, a line."""
    size = (9, 2.3 * len(clips) + 0.4)
    drawing, panels = plt.subplots(len(clips), figsize=size, squeeze=False)
    for panel, (name, times, raw, smooth) in zip(panels[:, 0], clips, strict=True):
        hidden = np.nan_to_num(raw.occluded)
        shade = panel.twinx()
        shade.fill_between(times, 0, 100 * hidden, color="#9aa5b1", alpha=0.35, linewidth=0)
        shade.set_ylim(0, 100)
        shade.set_ylabel("hidden, %")
        panel.set_zorder(shade.get_zorder() + 1)
        panel.patch.set_visible(False)
        panel.plot(times, 1e3 * raw.add, color="#b7c3d0", linewidth=1, label="frame by frame")
        panel.plot(times, 1e3 * smooth.add, color="#37474f", linewidth=1, label="smoothed")
        for code, word, colour in STATES:
            chosen = smooth.status == code
            panel.scatter(times[chosen], 1e3 * smooth.add[chosen], s=9, color=colour, label=word)
        panel.axhline(limit, color="black", linewidth=0.8, linestyle=":")
        panel.set_yscale("log")
        panel.set_ylim(0.05, max(20.0, 1.2e3 * float(np.max(raw.add))))
        panel.set_ylabel("ADD, mm")
        panel.set_title(name, fontsize=9, loc="left")
    panels[0, 0].legend(fontsize=7, ncol=5, loc="upper right")
    panels[-1, 0].set_xlabel("time, s")
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(drawing)
