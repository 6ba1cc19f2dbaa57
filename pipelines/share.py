"""Give results to others through the DVC remote, so that nobody has to build them again.

``dvc push --run-cache`` leaves out what metrics and plots with ``cache: false`` need: the run-cache
entry arrives, but DVC cannot restore the stage from it and runs it. So those objects follow here.
"""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.graph import read_graph
from pipelines.lock import LOCK_FILE, outputs, read_entries
from pipelines.process import dvc


def push(root: Path) -> int:
    """Push outputs, run-cache, and the objects of metrics and plots; returns how many of these."""
    dvc(root, "push", "--run-cache")
    hashes = kept_hashes(root)
    if not hashes:
        return 0
    from dvc.repo import Repo
    from dvc_data.hashfile.hash_info import HashInfo

    with Repo(str(root)) as repo:
        store = Path(repo.cache.local.path)
        everything = {child for value in hashes for child in with_children(store, value)}
        repo.cloud.push({HashInfo("md5", value) for value in everything})
    return len(everything)


def kept_hashes(root: Path) -> set[str]:
    """Hashes of the metrics and plots of all stages in ``dvc.lock``."""
    graph = read_graph(root)
    found: set[str] = set()
    for key, text in read_entries(root / LOCK_FILE).items():
        stage, _, name = key.partition("@")
        if stage in graph.stages:
            kept = {path.replace("${item}", name) for path in graph.stages[stage].kept}
            found |= {value for path, value in outputs(text).items() if path in kept}
    return found


def with_children(store: Path, value: str) -> list[str]:
    """A hash and, for a folder, the hashes of its files; [] when the cache does not hold it."""
    path = store / value[:2] / value[2:]
    if not path.is_file():
        return []
    children = json.loads(path.read_text()) if value.endswith(".dir") else []
    return [value, *(str(child["md5"]) for child in children)]
