"""Rewrite the tables that commands make: figures in README.md, parameters in docs/parameters.md.

Run `python -m docs.tables` (or `make docs`); `--check` says whether they are up to date.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from benchmarks.rows import RESULTS, table
from twinloop.card import STAGES

ROOT = Path(__file__).parents[1]
START, END = "<!-- figures: made by `make docs` -->", "<!-- end of figures -->"


def figures() -> str:
    """Return README.md with the tables of all benchmark results."""
    text = (ROOT / "README.md").read_text()
    head, rest = text.split(START)
    tail = rest.split(END)[1]
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        rows = table(json.loads(path.read_text()))
        parts.append(f"`python -m benchmarks.{path.stem}`\n\n{rows}")
    return head + START + "\n\n" + "\n\n".join(parts) + "\n\n" + END + tail


def parameters() -> str:
    """Return docs/parameters.md: every parameter of every stage with default and meaning."""
    lines = [
        "# Parameters",
        "",
        "Made by `make docs` from `stages/<stage>/params.py`. Set them in `params.yaml`, or for "
        "one object under `overrides` in its `object.yaml`.",
    ]
    for stage in STAGES:
        model = importlib.import_module(f"stages.{stage}.params").Params
        lines += ["", f"## {stage}", "", "| parameter | default | meaning |", "|---|---|---|"]
        for name, field in model.model_fields.items():
            default = field.get_default(call_default_factory=True)
            meaning = " ".join((field.description or "").split())
            lines.append(f"| `{name}` | `{default}` | {meaning} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write or check both files."""
    parser = argparse.ArgumentParser(prog="python -m docs.tables", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    check = parser.parse_args().check
    for path, text in (
        (ROOT / "README.md", figures()),
        (ROOT / "docs" / "parameters.md", parameters()),
    ):
        if check:
            if not path.is_file() or path.read_text() != text:
                sys.exit(f"{path.relative_to(ROOT)} is stale; run `make docs`.")
        else:
            path.write_text(text)


if __name__ == "__main__":
    main()
