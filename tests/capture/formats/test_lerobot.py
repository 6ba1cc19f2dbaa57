"""LeRobot data sets that LeRobot itself wrote (0.4.4: v3.0; 0.3.3: v2.1), and broken copies."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from twinloop.capture.formats.lerobot import detects, episode_table, read_lerobot_episode
from twinloop.errors import InputError

pa = pytest.importorskip("pyarrow", reason="LeRobot's tables are Parquet: needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

DATA = Path(__file__).parents[2] / "data"
NAMES = ("shoulder.pos", "elbow.pos", "gripper.pos")
CAMERA = "observation.images.front"
LENGTHS = (8, 10)
VERSIONS = ("lerobot_v2", "lerobot_v3")


@pytest.fixture
def copy(tmp_path):
    """A function that copies a data set to where it may be broken."""

    def make(name):
        return Path(shutil.copytree(DATA / name, tmp_path / name))

    return make


def table_of(folder):
    """The file that holds episode 1."""
    v3 = folder / "data" / "chunk-000" / "file-000.parquet"
    return v3 if v3.exists() else folder / "data" / "chunk-000" / "episode_000001.parquet"


def change_info(folder, **fields):
    """Change fields of the description."""
    path = folder / "meta" / "info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("episode", [0, 1])
def test_the_table_is_what_was_recorded(name, episode):
    """States, actions, times and names equal what was given to LeRobot."""
    table = episode_table(DATA / name, episode)
    steps = np.arange(LENGTHS[episode])
    expected = np.stack([0.1 * steps, -0.05 * steps, np.full(len(steps), episode)], axis=1)
    np.testing.assert_allclose(table.columns["observation.state"], expected, atol=1e-6)
    np.testing.assert_allclose(table.columns["action"], expected + 0.01, atol=1e-6)
    np.testing.assert_allclose(table.time, 0.1 * steps, atol=1e-6)
    assert table.names["observation.state"] == NAMES
    assert table.rate == 10
    assert table.robot == "arm"
    assert table.notes == ()


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("episode", [0, 1])
def test_each_row_has_the_picture_of_its_time(name, episode):
    """The recorded pictures tell their row (left half) and episode (right half) by brightness."""
    pictures = read_lerobot_episode(DATA / name, episode, "front")
    assert pictures.sizes.tolist() == [[64, 48]] * LENGTHS[episode]
    seen = list(pictures.read())
    assert [p.index for p in seen] == list(range(LENGTHS[episode]))
    for picture in seen:
        assert picture.time == pytest.approx(0.1 * picture.index, abs=1e-6)
        assert picture.image[:, 2:30].mean() == pytest.approx(20 + 12 * picture.index, abs=4)
        assert picture.image[:, 34:62].mean() == pytest.approx(60 + 120 * episode, abs=4)
    (only,) = pictures.read([3], "grey")
    assert only.index == 3
    assert only.image.shape == (48, 64)


def test_rows_find_their_frames_by_time_though_rows_are_missing(copy):
    """A row without its picture shifts every later one in a reader that counts."""
    folder = copy("lerobot_v2")
    path = table_of(folder)
    rows = pq.read_table(path)
    pq.write_table(rows.take([0, 1, 2, 5, 6, 9]), path)
    pictures = read_lerobot_episode(folder, 1)
    assert [p.image[:, 2:30].mean() for p in pictures.read()] == pytest.approx(
        [20 + 12 * i for i in (0, 1, 2, 5, 6, 9)], abs=4
    )
    assert any("6 rows" in note and "10" in note for note in pictures.notes)


def test_two_rows_may_show_one_frame(copy):
    """A robot faster than its camera sees each frame more than once."""
    folder = copy("lerobot_v2")
    path = table_of(folder)
    rows = pq.read_table(path)
    time = np.array([0.0, 0.1, 0.14, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], np.float32)
    pq.write_table(rows.set_column(rows.column_names.index("timestamp"), "timestamp", [time]), path)
    pictures = read_lerobot_episode(folder, 1)
    assert pictures.names[1] == pictures.names[2] == "frame 1"
    assert [p.index for p in pictures.read([1, 2])] == [1, 2]
    assert any("same frame" in note for note in pictures.notes)


@pytest.mark.parametrize("name", VERSIONS)
def test_detected_by_its_description(name, tmp_path):
    """A data set is known by its description; a broken one is none."""
    assert detects(DATA / name)
    assert not detects(tmp_path)
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text('{"codebase')
    assert not detects(tmp_path)


@pytest.mark.parametrize("name", VERSIONS)
def test_an_episode_or_camera_that_is_not_there(name):
    """The message lists what there is."""
    with pytest.raises(InputError, match=r"no episode 7.*there are 2"):
        episode_table(DATA / name, 7)
    with pytest.raises(InputError, match=r"no camera 'wrist'.*observation.images.front"):
        read_lerobot_episode(DATA / name, 0, "wrist")


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("keep", [0, 100, -40])
def test_a_truncated_table_is_refused(copy, name, keep):
    """A Parquet file without its end, as after a crash, is refused."""
    folder = copy(name)
    path = table_of(folder)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=rf"{path.name}.*truncated"):
        episode_table(folder, 1)


@pytest.mark.parametrize("name", VERSIONS)
def test_a_missing_table_or_video_is_named(copy, name):
    """Partly downloaded data sets are common."""
    folder = copy(name)
    video = next(folder.glob("videos/**/*1.mp4"), next(folder.glob("videos/**/*.mp4")))
    video.unlink()
    with pytest.raises(InputError, match=video.name):
        read_lerobot_episode(folder, 1)
    table_of(folder).unlink()
    with pytest.raises(InputError, match="no such file"):
        episode_table(folder, 1)


def test_a_video_of_another_recording_is_refused(copy):
    """A video that ends before the table does is refused with both times."""
    folder = copy("lerobot_v2")
    videos = sorted((folder / "videos" / "chunk-000" / CAMERA).iterdir())
    shutil.copy(videos[0], videos[1])
    with pytest.raises(InputError, match=r"row 9 of episode 1.*0\.9000 s.*0\.7000 s.*truncated"):
        read_lerobot_episode(folder, 1)


@pytest.mark.parametrize("bad", [np.nan, 0.0])
def test_stamps_that_do_not_increase_are_refused(copy, bad):
    """The row is named."""
    folder = copy("lerobot_v2")
    path = table_of(folder)
    rows = pq.read_table(path)
    time = rows["timestamp"].to_numpy().copy()
    time[4] = bad
    pq.write_table(rows.set_column(rows.column_names.index("timestamp"), "timestamp", [time]), path)
    with pytest.raises(InputError, match=r"row 4 of episode 1"):
        episode_table(folder, 1)


@pytest.mark.parametrize(
    "template",
    [
        "../{episode_index:06d}.parquet",
        "/etc/{episode_index}",
        "{episode_index.__class__}",
        "{episode_index:0999999999d}",
        "{0}",
    ],
)
def test_path_templates_cannot_leave_the_folder_or_run_code(copy, template):
    """Templates come from the file and are not trusted."""
    folder = copy("lerobot_v2")
    change_info(folder, data_path=template)
    with pytest.raises(InputError, match=r"info\.json"):
        episode_table(folder, 1)


def test_a_link_out_of_the_folder_is_refused(copy, tmp_path):
    """A table may be a link inside the data set only."""
    folder = copy("lerobot_v2")
    outside = tmp_path / "outside.parquet"
    shutil.move(table_of(folder), outside)
    table_of(folder).symlink_to(outside)
    with pytest.raises(InputError, match="leads out"):
        episode_table(folder, 1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"codebase_version": "v1.6"}, "v1.6"),
        ({"fps": 0}, "fps is 0"),
        ({"features": None}, "features"),
        ({"data_path": None}, "data_path"),
        ({"chunks_size": 0}, "chunks_size 0"),
    ],
)
def test_a_broken_description_is_refused(copy, fields, said):
    """Each field that is used is checked."""
    folder = copy("lerobot_v3")
    change_info(folder, **fields)
    with pytest.raises(InputError, match=said):
        episode_table(folder, 0)


def test_pictures_inside_the_table_are_refused_clearly(copy):
    """The message says what to do."""
    folder = copy("lerobot_v2")
    info = json.loads((folder / "meta" / "info.json").read_text())
    info["features"][CAMERA]["dtype"] = "image"
    change_info(folder, features=info["features"])
    with pytest.raises(InputError, match="single pictures inside the table"):
        read_lerobot_episode(folder, 0)


def test_columns_of_lists_and_names_in_a_mapping(tmp_path):
    """Data sets of v2.0 name motors in a mapping, and store lists of variable length type."""
    folder = tmp_path / "set"
    (folder / "meta").mkdir(parents=True)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    info = {
        "codebase_version": "v2.0",
        "fps": 50,
        "chunks_size": 1000,
        "total_episodes": 1,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": None,
        "features": {"action": {"dtype": "float32", "shape": [2], "names": {"motors": ["a", "b"]}}},
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    (folder / "meta" / "episodes.jsonl").write_text('{"episode_index": 0, "length": 3}\n')
    table = pa.table(
        {
            "action": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32())),
            "timestamp": pa.array([0.0, 0.02, 0.05]),
            "next.done": [False, False, True],
            "task": ["x", "x", "x"],
            "episode_index": [0, 0, 0],
        }
    )
    path = folder / "data" / "chunk-000" / "episode_000000.parquet"
    pq.write_table(table, path)
    read = episode_table(folder, 0)
    assert read.names["action"] == ("a", "b")
    np.testing.assert_array_equal(read.columns["action"], [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(read.columns["next.done"], [[0], [0], [1]])
    assert set(read.columns) == {"action", "next.done"}
    ragged = pa.array([[1.0, 2.0], [3.0], [5.0, 6.0]], pa.list_(pa.float32()))
    pq.write_table(table.set_column(0, "action", ragged), path)
    with pytest.raises(InputError, match="equal length"):
        episode_table(folder, 0)
