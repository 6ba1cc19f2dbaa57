"""Episodes of LeRobot data sets, v2.x and v3.0: pictures of a camera, and the robot's table.

Layouts (LeRobot documentation, "LeRobotDataset v3.0", and the files that LeRobot 0.3.3 and 0.4.4
write): ``meta/info.json`` holds the rate, the columns and the templates of paths.  v2 keeps one
Parquet file and one video per episode; v3 keeps many episodes in each, and ``meta/episodes`` says
where each begins.  A row's picture is the frame whose stamp is the row's time (in v3 plus the
episode's begin in the video), never row / rate: real recordings miss frames.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import inside, list_files, read_json, read_text
from twinloop.capture.formats.export_checks import nearest
from twinloop.capture.formats.parquet_rows import column_numbers, rows_where
from twinloop.capture.formats.video_frames import VideoFrames
from twinloop.capture.video import frame_times
from twinloop.errors import InputError

Array = NDArray[np.float64]

MOST_CHUNKS = 10_000
"""Most chunk folders of episode descriptions."""
_BOOKKEEPING = ("frame_index", "episode_index", "index", "task_index")


@dataclass(frozen=True)
class EpisodeTable:
    """What the robot recorded in one episode."""

    columns: dict[str, Array]
    """Columns of numbers, ``observation.state`` and ``action`` among them, (n, k) each."""
    names: dict[str, tuple[str, ...]]
    """Names of the k numbers of each column: the joints, as the data set calls them."""
    time: Array
    """Times of the rows (n,) s from the episode's begin, strictly increasing."""
    rate: float
    """Nominal rate that the data set states, Hz."""
    robot: str
    """Type of robot by the data set; empty when it does not say."""
    path: Path
    """The Parquet file."""
    notes: tuple[str, ...]
    """What was worked around, one sentence each."""


@dataclass(frozen=True)
class _Info:
    path: Path
    version: int
    rate: float
    robot: str
    episodes: int
    chunk: int
    features: dict[str, dict[str, Any]]
    data: str
    video: str | None


def detects(folder: Path) -> bool:
    """Whether a folder is a LeRobot data set: it holds ``meta/info.json`` with a version."""
    path = folder / "meta" / "info.json"
    if not path.is_file():
        return False
    try:
        content = read_json(path)
    except InputError:
        return False
    return isinstance(content, dict) and "codebase_version" in content


def read_lerobot_episode(folder: Path, episode: int, camera: str | None = None) -> VideoFrames:
    """Open the pictures that a camera took in one episode.

    Args:
        folder: The data set.
        episode: Number of the episode, from 0.
        camera: Key of the camera (``observation.images.front``), or its last word; None when the
            data set has one camera only.

    Returns:
        Pictures, one per row of :func:`episode_table`, with the rows' times.

    Raises:
        InputError: No such episode or camera, a file is missing or damaged, or rows and frames do
            not fit together in time.
        MachineError: pyarrow is not installed.
    """
    info = _read_info(folder)
    key = _camera_key(info, camera)
    table = _table(folder, info, episode)
    described = _described(folder, info, episode)
    if info.version == 2:
        begin = 0.0
        place = _fill(info, info.video, episode=episode, camera=key)
    else:
        begin = _number(described, f"videos/{key}/from_timestamp", info)
        place = _fill(
            info,
            info.video,
            chunk=int(_number(described, f"videos/{key}/chunk_index", info)),
            file=int(_number(described, f"videos/{key}/file_index", info)),
            camera=key,
        )
    video = inside(folder, place, info.path)
    stamps = frame_times(video)
    chosen = nearest(stamps, table.time + begin)
    away = np.abs(stamps[chosen] - table.time - begin)
    worst = float(away.max())
    step = float(np.median(np.diff(stamps))) if len(stamps) > 1 else 1.0 / info.rate
    if worst > 0.5 * step:
        row = int(np.argmax(away))
        raise InputError(
            f"{video}: row {row} of episode {episode} has the time {table.time[row]:.4f} s, so "
            f"{table.time[row] + begin:.4f} s in the video, whose nearest frame is at "
            f"{stamps[chosen[row]]:.4f} s (frames from {stamps[0]:.3f} to {stamps[-1]:.3f} s, "
            f"{step:.4f} s apart). The video or the table is truncated, or they belong to "
            "different recordings; download the episode again."
        )
    notes = list(table.notes)
    repeats = int(np.sum(np.diff(chosen) == 0))
    if repeats:
        notes.append(f"{repeats} of {len(chosen)} rows show the same frame as the row before.")
    if worst > 0.05 * step:
        notes.append(
            f"Rows and frames of {key} differ by up to {1e3 * worst:.1f} ms; the rows' times count."
        )
    return VideoFrames(video, stamps, chosen, table.time, tuple(notes))


def episode_table(folder: Path, episode: int) -> EpisodeTable:
    """Read the robot's table of one episode: all columns that hold numbers.

    Args:
        folder: The data set.
        episode: Number of the episode, from 0.

    Raises:
        InputError: No such episode, a file is missing or damaged, or times do not increase.
        MachineError: pyarrow is not installed.
    """
    return _table(folder, _read_info(folder), episode)


def _read_info(folder: Path) -> _Info:
    path = inside(folder, "meta/info.json")
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: a JSON object is expected, this is {type(content).__name__}.")
    stated = str(content.get("codebase_version", ""))
    version = re.match(r"v?([23])(\.\d+)*$", stated)
    if not version:
        raise InputError(
            f"{path}: codebase_version is {stated!r}; v2.0, v2.1 and v3.0 are read. Convert the "
            "data set with LeRobot's own scripts."
        )
    features = content.get("features")
    if not isinstance(features, dict) or not all(isinstance(f, dict) for f in features.values()):
        raise InputError(f"{path}: `features` must map column names to descriptions.")
    rate = content.get("fps")
    if not isinstance(rate, int | float) or not 0 < rate < 1e5:
        raise InputError(f"{path}: fps is {rate!r}; a rate in Hz is expected.")
    if not isinstance(content.get("data_path"), str):
        raise InputError(f"{path}: `data_path`, the template of the tables' names, is missing.")
    video = content.get("video_path")
    chunk, episodes = content.get("chunks_size", 1000), content.get("total_episodes", 0)
    if not (isinstance(chunk, int) and chunk > 0 and isinstance(episodes, int)):
        raise InputError(f"{path}: chunks_size {chunk!r}, total_episodes {episodes!r}: integers.")
    return _Info(
        path=path,
        version=int(version[1]),
        rate=float(rate),
        robot=str(content.get("robot_type") or ""),
        episodes=episodes,
        chunk=chunk,
        features=features,
        data=content["data_path"],
        video=video if isinstance(video, str) else None,
    )


def _camera_key(info: _Info, camera: str | None) -> str:
    videos = sorted(k for k, f in info.features.items() if f.get("dtype") == "video")
    inline = sorted(k for k, f in info.features.items() if f.get("dtype") == "image")
    fitting = [k for k in videos if camera in (None, k, k.rsplit(".", 1)[-1])]
    if len(fitting) == 1:
        return fitting[0]
    if not videos and inline:
        raise InputError(
            f"{info.path}: the cameras {inline} are stored as single pictures inside the table, "
            "which is not read. Convert the data set to videos with LeRobot's own tools."
        )
    wanted = "of its cameras one must be named" if camera is None else f"no camera {camera!r}"
    raise InputError(f"{info.path}: {wanted}; it has {videos or 'none'}.")


def _fill(
    info: _Info,
    template: str | None,
    *,
    episode: int = 0,
    chunk: int = 0,
    file: int = 0,
    camera: str = "",
) -> str:
    """Fill a path template; only plain fields are understood, because the template is foreign."""
    if template is None:
        raise InputError(f"{info.path}: `video_path`, the template of the videos' names, is null.")
    values: dict[str, int | str] = {
        "episode_chunk": episode // info.chunk,
        "episode_index": episode,
        "chunk_index": chunk,
        "file_index": file,
        "video_key": camera,
    }

    def replace(field: re.Match[str]) -> str:
        plain = re.fullmatch(r"([a-z_]+)(?::0([1-9])d)?", field[1])
        value = values.get(plain[1]) if plain else None
        if plain is None or value is None or (plain[2] and isinstance(value, str)):
            raise InputError(
                f"{info.path}: the template {template!r} has the unknown field {field[0]}; "
                f"{sorted(values)} are known."
            )
        return f"{value:0{plain[2]}d}" if plain[2] else str(value)

    return re.sub(r"\{([^{}]*)\}", replace, template)


def _described(folder: Path, info: _Info, episode: int) -> Mapping[str, Any]:
    """What the data set says about an episode."""
    if info.version == 2:
        path = inside(folder, "meta/episodes.jsonl", info.path)
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            if line.strip():
                found = _json_line(path, number, line)
                if found.get("episode_index") == episode:
                    return found
    else:
        base = inside(folder, "meta/episodes", info.path)
        chunks = sorted(base.iterdir()) if base.is_dir() else []
        if len(chunks) > MOST_CHUNKS:
            raise InputError(f"{base}: {len(chunks)} chunks, {MOST_CHUNKS} are accepted.")
        for chunk in chunks:
            inside(folder, f"meta/episodes/{chunk.name}", info.path)
            for path in list_files(chunk, {".parquet"}) if chunk.is_dir() else []:
                rows = rows_where(
                    path, "episode_index", episode, lambda name: not name.startswith("stats/")
                )
                if rows.num_rows:
                    return dict(rows.slice(0, 1).to_pylist()[0])
    raise InputError(
        f"{folder}: holds no episode {episode}; {info.path.name} says there are {info.episodes}, "
        "numbered from 0."
    )


def _json_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: line {number} is no JSON ({error}); download it again."
        ) from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: line {number} is no JSON object.")
    return found


def _number(described: Mapping[str, Any], name: str, info: _Info) -> float:
    value = described.get(name)
    if not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise InputError(
            f"{info.path.parent / 'episodes'}: {name} of the episode is {value!r}; a number from 0 "
            "is expected."
        )
    return float(value)


def _table(folder: Path, info: _Info, episode: int) -> EpisodeTable:
    described = _described(folder, info, episode)
    if info.version == 2:
        place = _fill(info, info.data, episode=episode)
    else:
        place = _fill(
            info,
            info.data,
            chunk=int(_number(described, "data/chunk_index", info)),
            file=int(_number(described, "data/file_index", info)),
        )
    path = inside(folder, place, info.path)
    video = {k for k, f in info.features.items() if f.get("dtype") in ("video", "image", "string")}
    rows = rows_where(path, "episode_index", episode, lambda name: name not in video)
    columns = {
        name: numbers
        for name in rows.column_names
        if name not in _BOOKKEEPING
        and (numbers := column_numbers(rows[name], name, path)) is not None
    }
    if not rows.num_rows:
        raise InputError(f"{path}: holds no row of episode {episode}; download it again.")
    if "timestamp" not in columns:
        raise InputError(f"{path}: has no column timestamp, but {rows.column_names}.")
    time = columns.pop("timestamp").reshape(-1)
    late = ~(np.diff(time, prepend=-np.inf) > 0) | ~np.isfinite(time)
    if late.any():
        row = int(np.argmax(late))
        raise InputError(
            f"{path}: row {row} of episode {episode} has the timestamp {time[row]} s, the row "
            f"before {time[row - 1] if row else float('nan')} s; finite stamps that increase are "
            "expected."
        )
    notes = []
    length = described.get("length")
    if length != len(time):
        notes.append(
            f"Episode {episode} has {len(time)} rows, its description says {length}; the rows "
            "count."
        )
    return EpisodeTable(
        columns=columns,
        names={k: _names(info, k, v.shape[1]) for k, v in columns.items()},
        time=time,
        rate=info.rate,
        robot=info.robot,
        path=path,
        notes=tuple(notes),
    )


def _names(info: _Info, column: str, size: int) -> tuple[str, ...]:
    """Names of a column's numbers: a list, or a mapping to lists (``{"motors": [...]}``)."""
    said = info.features.get(column, {}).get("names")
    if isinstance(said, dict):
        values = [n for v in said.values() for n in (v if isinstance(v, list) else [])]
        said = values or list(said)
    if isinstance(said, list) and len(said) == size and all(isinstance(n, str) for n in said):
        return tuple(said)
    return tuple(f"{column}[{i}]" for i in range(size))
