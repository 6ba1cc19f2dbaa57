"""``twinloop hand-eye``: pictures and poses become the camera's place, or a message."""

from __future__ import annotations

import resource
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from tests.capture.robot_views import robot_views
from tests.capture.scene import grid_board
from twinloop.capture.board import print_image
from twinloop.capture.board_print import write_board
from twinloop.cli.main import main
from twinloop.geometry import se3

K = np.array([[620.0, 0, 319.5], [0, 620.0, 239.5], [0, 0, 1]])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Eight pictures of a board by a camera on a hand, and where the camera truly sits."""
    folder = tmp_path_factory.mktemp("wrist")
    board = grid_board(4, 3)
    write_board(folder / "board.yaml", board)
    camera = {"width": 640, "height": 480, "intrinsics": [620.0, 620.0, 319.5, 239.5]}
    (folder / "camera.yaml").write_text(yaml.safe_dump(camera))
    (folder / "images").mkdir()
    texel = 0.00025
    print_ = print_image(board, texel, np.array([-0.1, -0.1]), (800, 800))
    to_board = np.array([[texel, 0, -0.1], [0, texel, -0.1], [0, 0, 1]])
    case = robot_views(3, 8, pixel_std=0)
    lines = ["image,x,y,z,qw,qx,qy,qz"]
    for i, T in enumerate(case.T_base_flange):
        C = se3.inverse(T @ case.T_mount_camera) @ case.T_target_board
        H = K @ C[:3, [0, 1, 3]] @ to_board
        image = cv2.warpPerspective(print_, H, (640, 480), flags=cv2.INTER_AREA, borderValue=200)
        cv2.imwrite(str(folder / "images" / f"{i}.png"), image)
        position, wxyz = se3.to_position_quaternion(T)
        lines.append(f"{i}.png," + ",".join(f"{x:.8f}" for x in [*position, *wxyz]))
    (folder / "poses.csv").write_text("\n".join(lines) + "\n")
    return folder, case.T_mount_camera


def twinloop(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr("sys.argv", ["twinloop", "hand-eye", *args])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_the_camera_is_found(
    session: tuple[Path, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Within 3 mm and 0.3 deg of the truth from eight real pictures; the file says so."""
    folder, truth = session
    out = tmp_path / "found.yaml"
    assert twinloop(monkeypatch, str(folder), "--out", str(out)) == 0
    assert "from 8 pictures" in capsys.readouterr().out
    found = yaml.safe_load(out.read_text())
    pose = found["T_flange_camera"]
    T = se3.from_position_quaternion(pose["position"], pose["quaternion_wxyz"])
    off = se3.inverse(truth) @ T
    assert np.linalg.norm(off[:3, 3]) < 3e-3
    assert np.linalg.norm(se3.log(off)[3:]) < np.radians(0.3)
    assert 0 < found["position_95"] < 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("0.png,", "00.png,"), "without a picture: ['00.png'], without a pose: ['0.png']"),
        (("image,x", "image,u"), "the columns x are missing"),
        (("1.png,", "1.png,nan"), "line 3"),
        (("1.png,", "0.png,"), "line 3: the picture '0.png' is not named, or stands twice"),
        (("1.png,", "1.png,7,7,7,"), "norm"),
    ],
)
def test_faults_of_the_poses_are_named(
    session: tuple[Path, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    message: str,
) -> None:
    """Missing pictures, columns and numbers; nothing is written."""
    for path in session[0].iterdir():
        (tmp_path / path.name).symlink_to(path)
    text = (session[0] / "poses.csv").read_text().replace(*change)
    (tmp_path / "poses.csv").unlink()
    (tmp_path / "poses.csv").write_text(text)
    assert twinloop(monkeypatch, str(tmp_path)) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "hand_eye.yaml").exists()


def test_other_faults(
    session: tuple[Path, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The camera does not stand still; the lens is for another size; nothing is there."""
    folder, _ = session
    assert twinloop(monkeypatch, str(folder), "--beside", "--out", str(tmp_path / "x.yaml")) == 2
    assert "Does the camera stand still?" in capsys.readouterr().err
    assert twinloop(monkeypatch, str(tmp_path)) == 2
    assert "no such file" in capsys.readouterr().err
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "camera.yaml").unlink()
    camera = {"width": 480, "height": 640, "intrinsics": [620.0, 620.0, 239.5, 319.5]}
    (tmp_path / "camera.yaml").write_text(yaml.safe_dump(camera))
    assert twinloop(monkeypatch, str(tmp_path)) == 2
    assert "640 x 480 px upright, camera.yaml is for 480 x 640" in capsys.readouterr().err


def test_poses_that_are_all_alike_are_refused(
    session: tuple[Path, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The wrist did not turn, or one pose was written eight times."""
    for path in session[0].iterdir():
        (tmp_path / path.name).symlink_to(path)
    header, first, *rest = (session[0] / "poses.csv").read_text().splitlines()
    alike = [f"{line.split(',')[0]},{first.split(',', 1)[1]}" for line in (first, *rest)]
    (tmp_path / "poses.csv").unlink()
    (tmp_path / "poses.csv").write_text("\n".join([header, *alike]) + "\n")
    assert twinloop(monkeypatch, str(tmp_path)) == 2
    assert "hand-eye" in capsys.readouterr().err
    assert not (tmp_path / "hand_eye.yaml").exists()


def test_a_result_is_written_whole_or_not_at_all(
    session: tuple[Path, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a full disk an earlier result stays."""
    out = tmp_path / "found.yaml"
    out.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        code = twinloop(monkeypatch, str(session[0]), "--out", str(out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 3
    assert f"{out}: cannot be written" in " ".join(capsys.readouterr().err.split())
    assert [p.name for p in tmp_path.iterdir()] == ["found.yaml"]
    assert out.read_text() == "old"
