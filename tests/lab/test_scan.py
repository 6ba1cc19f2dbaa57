"""The rendered scan: tag geometry through the lens, determinism, choice of the GL."""

import os
import subprocess
import sys

import cv2
import numpy as np
import pytest
import yaml

from tests.lab.tags import tag_corners
from twinloop.errors import MachineError
from twinloop.geometry import quaternion, se3
from twinloop.geometry.camera import look_at
from twinloop.lab import assets, gl
from twinloop.lab.board import ring_layout
from twinloop.lab.lens import LabCamera, Lens, Sensor, undistort
from twinloop.lab.objects import build_object
from twinloop.lab.render import PhotoCamera
from twinloop.lab.scan import ScanSettings, scan_board, scan_scene, shoot_scan
from twinloop.lab.spec import load_preset

import mujoco  # isort: skip

TINY = ScanSettings(frames=5, width=160, height=208, fill=0.62, elevation=(70.0, 45.0))


def _detect(image, layout):
    """Corners found (n,2) px and where they are on the board (n,3) m."""
    parameters = cv2.aruco.DetectorParameters()
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    quads, ids, _ = cv2.aruco.ArucoDetector(dictionary, parameters).detectMarkers(grey)
    tags = {tag.id: tag for tag in layout.tags}
    found = np.asarray(quads, dtype=np.float64).reshape(-1, 2)
    known = np.concatenate([tag_corners(tags[int(i)]) for i in np.ravel(ids)])
    return found, known


def test_rendered_tags_lie_where_the_camera_model_says():
    """Through lens and off-centre principal point: no bias, within 0.3 px, PnP within 0.5 mm."""
    item = build_object(load_preset("spam"), "spam")
    layout = scan_board(item)
    model = scan_scene(item, layout, np.eye(4), 0, 2048)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    camera = LabCamera(480, 848, (790.0, 785.0, 232.0, 431.0), (-0.09, 0.015, 0.001, -0.0008, 0.0))
    T = look_at([0.19, -0.15, 0.26], [0.0, 0.0, 0.03])
    with PhotoCamera(model, camera) as photo:
        image = np.rint(photo.expose([(data, T)])).astype(np.uint8)
    found, known = _detect(image, layout)
    assert len(found) >= 4 * 8
    error = found - camera.project(known, T)
    assert np.abs(np.median(error, axis=0)).max() < 0.1
    assert np.median(np.linalg.norm(error, axis=1)) < 0.3
    fx, fy, cx, cy = camera.intrinsics
    K = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    _, r, t = cv2.solvePnP(known, found, K, np.array(camera.distortion))
    R = cv2.Rodrigues(r)[0]
    assert np.linalg.norm(-R.T @ t[:, 0] - T[:3, 3]) < 5e-4


@pytest.mark.parametrize("name", ["spam", "ketchup"])
def test_object_is_drawn_where_its_pose_says(name):
    """The silhouette in the picture is that of the true mesh at the true pose (IoU > 0.985)."""
    item = build_object(load_preset(name), name)
    T_object = se3.exp(np.array([0.004, -0.003, 0.0, 0.0, 0.0, 0.7]))
    layout = scan_board(item)
    camera = LabCamera(300, 360, (480.0, 480.0, 141.0, 187.0), (-0.08, 0.01, 0.0, 0.0, 0.0))
    T = look_at(2.2 * np.linalg.norm(item.size) * np.array([0.6, -0.55, 0.58]), [0, 0, 0.06])
    pictures = []
    for shift in (np.eye(4), se3.exp(np.array([0.0, 0.0, 5.0, 0.0, 0.0, 0.0]))):
        model = scan_scene(item, layout, shift @ T_object, 0, 512)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        with PhotoCamera(model, camera) as photo:
            pictures.append(photo.expose([(data, T)]))
    seen = np.abs(pictures[0] - pictures[1]).max(axis=-1) > 6.0
    seen = cv2.morphologyEx(seen.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    pixels = camera.project(se3.apply(T_object, item.vertices), T)
    mask = np.zeros(seen.shape, np.uint8)
    for face in item.faces:
        corners = np.rint(pixels[face] * 16).astype(np.int32)
        cv2.fillConvexPoly(mask, corners, 1, shift=4)
    both, either = (seen & mask).sum(), (seen | mask).sum()
    assert both / either > 0.985


def test_compiled_body_has_the_exact_mass_properties():
    """MuJoCo's body carries the recipe's mass, centre of mass and inertia, not the mesh's."""
    item = build_object(load_preset("lego"), "lego")
    spec = assets.new_scene()
    body = spec.worldbody.add_body(name="lego")
    body.add_freejoint()
    assets.add_object(spec, body, item)
    model = spec.compile()
    k = model.body("lego").id
    R = quaternion.to_matrix(model.body_iquat[k])
    assert model.body_mass[k] == pytest.approx(item.mass, rel=1e-12)
    np.testing.assert_allclose(model.body_ipos[k], item.com, atol=1e-12)
    inertia = R @ np.diag(model.body_inertia[k]) @ R.T
    np.testing.assert_allclose(inertia, item.inertia, atol=1e-6 * np.trace(item.inertia))
    drawn = [g for g in range(model.ngeom) if model.geom_group[g] == assets.VISUAL]
    assert all(model.geom_contype[g] == 0 for g in drawn)
    assert sum(model.geom_group == assets.COLLISION) == len(item.parts)


def test_lens_map_inverts_distortion():
    """Undistorting what was distorted gives the start back."""
    from twinloop.geometry.camera import distort

    rng = np.random.default_rng(0)
    xy = rng.uniform(-0.5, 0.5, (200, 2))
    k = (-0.1, 0.02, 0.001, -0.002, 0.003)
    np.testing.assert_allclose(undistort(distort(xy, k), k), xy, atol=1e-9)


def test_lens_without_distortion_is_a_plain_average():
    """A linear ramp rendered finer comes out as the same ramp, unshifted."""
    camera = LabCamera(40, 30, (50.0, 50.0, 18.3, 15.1))
    lens = Lens(camera, 2)
    wide = lens.pinhole
    x = (np.arange(wide.width) - wide.intrinsics[2]) / wide.intrinsics[0]
    ramp = np.broadcast_to(x[None, :, None], (wide.height, wide.width, 3)).astype(np.float32)
    expected = (np.arange(40) - 18.3) / 50.0
    np.testing.assert_allclose(lens.bend(ramp)[12, :, 1], expected, atol=2e-4)


def test_sensor_noise_and_drift_have_their_size():
    """Noise of the asked sd; gain stays within the asked drift."""
    rng = np.random.default_rng(1)
    sensor = Sensor(noise=1.5, drift=0.04)
    gains = sensor.gains(50, rng)
    assert np.abs(gains - 1).max() < 0.05
    assert np.ptp(gains[:, 1]) > 0.02
    flat = sensor.develop(np.full((80, 80, 3), 120.0, np.float32), np.ones(3), rng)
    assert flat.std() == pytest.approx(1.53, abs=0.06)


def test_board_tags_do_not_overlap_and_leave_the_centre_free():
    """Distinct ids, white margins, an empty square in the middle."""
    ring = ring_layout(0.07, 0.022)
    centres = np.array([t.centre for t in ring.tags])
    assert len({t.id for t in ring.tags}) == len(ring.tags)
    assert np.abs(centres).max(axis=1).min() - 0.011 >= 0.07
    gap = np.abs(centres[:, None] - centres[None]).max(axis=-1) + np.eye(len(centres))
    assert gap.min() > 1.25 * 0.022
    assert (np.abs(centres) + 0.5 * 0.022 < np.array(ring.half)).all()


CHILD = """
import sys
from pathlib import Path
from twinloop.lab.objects import build_object
from twinloop.lab.scan import ScanSettings, shoot_scan
from twinloop.lab.spec import load_preset
spec = load_preset("cube")
settings = ScanSettings.model_validate_json(sys.argv[2])
shoot_scan(build_object(spec, "cube"), Path(sys.argv[1]), settings, spec.noise, spec.seed)
"""


def test_scan_bytes_are_equal_in_fresh_processes_and_thread_counts(tmp_path):
    """Two processes, one and two rendering threads: the same files."""
    for threads in ("1", "2"):
        env = {**os.environ, "LP_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", CHILD, str(tmp_path / threads), TINY.model_dump_json()]
        subprocess.run(command, check=True, env=env, timeout=120)
    for name in ("video.mp4", "board.yaml"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_scan_truth_matches_the_video_and_nothing_leaks(tmp_path):
    """Detected tags fit the returned poses and lens; only the capture's two files are written."""
    import av

    spec = load_preset("spam")
    item = build_object(spec, "spam")
    truth = shoot_scan(item, tmp_path, TINY, spec.noise, seed=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["board.yaml", "video.mp4"]
    board = yaml.safe_load((tmp_path / "board.yaml").read_text())
    assert board["family"] == "36h11"
    assert {t["id"]: tuple(t["centre"]) for t in board["tags"]} == {
        t.id: t.centre for t in truth.board.tags
    }
    with av.open(str(tmp_path / "video.mp4")) as container:
        base = float(container.streams.video[0].time_base)
        frames = list(container.decode(video=0))
    np.testing.assert_allclose([f.pts * base for f in frames], truth.times, atol=1e-5)
    for frame, T in zip(frames, truth.T_world_camera, strict=True):
        image = np.ascontiguousarray(
            np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90)
        )
        assert image.shape == (208, 160, 3)
        found, known = _detect(image, truth.board)
        error = found - truth.camera.project(known, T)
        assert len(found) >= 4 * 4
        assert np.abs(np.median(error, axis=0)).max() < 0.35


def test_no_gl_names_the_packages(monkeypatch):
    """Without EGL and OSMesa the error says what to install."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(gl, "_library", lambda name: None)
    with pytest.raises(MachineError, match=r"apt-get install libegl1.*libosmesa6"):
        gl.choose_backend()
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    with pytest.raises(MachineError, match="needs a screen"):
        gl.choose_backend()
