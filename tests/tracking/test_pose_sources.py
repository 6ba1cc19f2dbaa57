"""Poses of other trackers: where they belong, what is wrong with them, how far they are trusted."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.capture.logs.mocap_csv import read_mocap_csv, read_motive_csv
from twinloop.errors import InputError
from twinloop.geometry import camera as lens
from twinloop.geometry import quaternion, se3
from twinloop.tracking.frame import CameraFrame
from twinloop.tracking.object_tags import from_object_tags, load_object_tags
from twinloop.tracking.pose_observations import (
    PoseObservations,
    as_track,
    check_on_table,
    observe,
    resample,
)
from twinloop.tracking.pose_sources import (
    Y_UP,
    ClipFrames,
    from_bop_results,
    from_foundationpose,
    from_mocap,
)
from twinloop.tracking.pose_track import LOST, OK, UNCERTAIN
from twinloop.tracking.solver import WorldCamera, rotation_exp, rotation_log

Array = np.ndarray
N = 180
TIME = 0.5 + np.arange(N) / 60
EYE = se3.inverse(lens.look_at([0.1, -0.5, 0.4], [0.0, 0.0, 0.05]))
BOX = np.array([[x, y, z] for x in (-0.05, 0.05) for y in (-0.03, 0.03) for z in (-0.04, 0.04)])


I3 = np.eye(3)


def push(time: Array = TIME) -> Array:
    """T_world_object (n, 4, 4): at rest, hit after 1 s, sliding 0.1 m, at rest."""
    u = np.clip((time - 1.5) / 0.6, 0, 1)
    s = 1 - (1 - u) ** 2
    T = np.tile(np.eye(4), (len(time), 1, 1))
    T[:, :3, 3] = np.stack([0.02 + 0.1 * s, 0.03 * s - 0.01, np.full(len(time), 0.04)], 1)
    T[:, :3, :3] = rotation_exp(np.stack([0 * s, 0 * s, 0.3 + 0.8 * s], 1))
    return T


def noisy(T: Array, sigma: Array, rng: np.random.Generator, axes: Array = I3) -> Array:
    """Poses with white noise of deviations (6,) m, rad along `axes` (3, 3)."""
    e = rng.normal(0, sigma, (len(T), 6))
    out = T.copy()
    out[:, :3, 3] += e[:, :3] @ axes.T
    out[:, :3, :3] = rotation_exp(e[:, 3:] @ axes.T) @ T[:, :3, :3]
    return out


def error(seen: PoseObservations, truth: Array) -> Array:
    """Errors (n, 6) of a left perturbation, m and rad."""
    d = seen.T_world_object[:, :3, 3] - truth[:, :3, 3]
    turn = seen.T_world_object[:, :3, :3] @ np.swapaxes(truth[:, :3, :3], 1, 2)
    return np.concatenate([d, rotation_log(turn)], axis=1)


def nees(seen: PoseObservations, truth: Array) -> float:
    """Mean normalised squared error of the frames that are ok; 6 where covariances are true."""
    assert seen.covariance is not None
    e, good = error(seen, truth), seen.status == OK
    return float(np.einsum("ni,nij,nj->n", e, np.linalg.inv(seen.covariance), e)[good].mean())


SIGMA = np.array([4e-4, 3e-4, 2e-3, 0.004, 0.006, 0.002])


def test_covariance_is_estimated_along_the_sources_axes() -> None:
    """NEES of white noise in camera axes, depth five times as bad, through an impact, is 6."""
    axes = EYE[:3, :3].T
    values = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        seen = observe(TIME, noisy(push(), SIGMA, rng, axes), "a test", axes=axes)
        assert (seen.status == OK).all()
        values.append(nees(seen, push()))
    # Chi square over 8 x 180 x 6 values: +- 0.25; the rest is the estimate's own doubt.
    assert 5.5 < np.mean(values) < 7.0
    assert seen.covariance is not None
    inner = axes.T @ seen.covariance[90][:3, :3] @ axes
    np.testing.assert_allclose(np.sqrt(np.diag(inner)), SIGMA[:3], rtol=0.35)


def test_covariance_follows_noise_that_changes_and_irregular_frames() -> None:
    """Ten times the noise in the second half, a third of the frames dropped: both halves fit."""
    rng = np.random.default_rng(1)
    time = np.sort(rng.choice(np.arange(900) / 60, 600, replace=False))
    time = time[np.concatenate([[True], np.diff(time) > 0])]
    truth = push(time)
    factor = np.where(np.arange(len(time)) < len(time) // 2, 1.0, 10.0)
    T = truth.copy()
    e = rng.normal(0, 1, (len(time), 6)) * SIGMA * 0.3 * factor[:, None]
    T[:, :3, 3] += e[:, :3]
    T[:, :3, :3] = rotation_exp(e[:, 3:]) @ T[:, :3, :3]
    seen = observe(time, T, "a test")
    assert seen.covariance is not None
    whitened = np.einsum("ni,nij,nj->n", error(seen, truth), np.linalg.inv(seen.covariance), e)
    for part in (slice(0, 240), slice(360, None)):
        assert 4.8 < whitened[part].mean() < 7.5


def test_covariance_is_never_below_the_rounding() -> None:
    """Poses written to a tenth of a millimetre are not trusted to a micrometre."""
    T = push()
    T[:, :3, 3] = np.round(T[:, :3, 3], 4)
    seen = observe(TIME, T, "a test")
    assert seen.covariance is not None
    assert np.sqrt(seen.covariance[:, 0, 0]).min() >= 0.99 * 1e-4 / np.sqrt(12)
    assert (seen.status == OK).all()  # at rest it repeats itself, and that is no fault
    one = observe(TIME[:1], T[:1], "a test")
    assert one.covariance is not None
    assert np.sqrt(one.covariance[0, 0, 0]) > 1e-3
    np.testing.assert_array_equal(observe(TIME, T, "a test").covariance, seen.covariance)


def test_jumps_gaps_and_a_stuck_tracker_are_flagged() -> None:
    """Each fault where it is and nowhere else; covariances of lost frames say so."""
    rng = np.random.default_rng(2)
    T = noisy(push(), np.array([3e-4] * 3 + [3e-3] * 3), rng)
    T[20, :3, 3] += [0.0, 0.012, 0.0]  # one frame 12 mm off
    T[40:46, :3, :3] = T[40:46, :3, :3] @ rotation_exp(np.array([0, 0, np.pi]))  # flips, and back
    T[70:75] = np.nan  # out of sight
    T[78:90] = T[77]  # stuck while the object moves
    T[100] = T[99]  # the picture was there twice
    T[150:, :3, 3] += [0.08, 0.0, 0.0]  # another object from here on
    seen = observe(TIME, T, "a test")
    expected = np.zeros(N, int)
    for lost in (slice(20, 21), slice(40, 46), slice(70, 75), slice(78, 90)):
        expected[lost] = LOST
    expected[[100, 149, 150]] = UNCERTAIN
    np.testing.assert_array_equal(seen.status, expected)
    np.testing.assert_array_equal(seen.valid, expected != LOST)
    assert seen.covariance is not None
    assert (seen.covariance[expected == LOST, 0, 0] > 0.05**2).all()
    assert seen.covariance[149, 0, 0] > 0.03**2
    assert seen.covariance[10, 0, 0] < 0.001**2
    np.testing.assert_array_equal(seen.T_world_object[72], T[69])
    text = " ".join(seen.notes)
    for part in ("5 of 180 frames", "stuck", "frames 78-89", "frames 20, 40-45", "149-150", "100"):
        assert part in text


def test_observations_are_smoothed_through_gaps() -> None:
    """The track is better than the stream, knows its velocity, and says how far a gap is known."""
    rng = np.random.default_rng(6)
    T = noisy(push(), SIGMA, rng)
    T[75:80] = np.nan
    seen = observe(TIME, T, "a test")
    track = as_track(seen)
    e = np.linalg.norm(track.pose[:, :3, 3] - push()[:, :3, 3], axis=1)
    raw = np.linalg.norm(error(seen, push())[:, :3], axis=1)
    assert e[seen.valid].mean() < 0.6 * raw[seen.valid].mean()
    assert (track.status[75:80] == LOST).all()
    assert (track.status[seen.valid] == OK).all()
    known = np.sqrt(np.einsum("nii->n", track.covariance[:, :3, :3]))
    assert (e < 4 * known).all()
    assert known[77] > 1.5 * known[60]
    speed = 2 * 0.1 / 0.6 * (1 - (TIME[70] - 1.5) / 0.6)
    assert track.velocity[70, 0] == pytest.approx(speed, abs=4e-2)
    biased = as_track(seen, common=np.diag([1e-6] * 3 + [1e-8] * 3))
    assert (np.diagonal(biased.covariance, 0, 1, 2)[:, :3] > 1e-6).all()


def test_rest_without_noise_is_no_stuck_tracker() -> None:
    """Exact poses stand still before and after a push: all are ok."""
    assert (observe(TIME, push(), "a test").status == OK).all()
    frozen = push()
    frozen[70:80] = frozen[69]
    status = observe(TIME, frozen, "a test").status
    assert (status[70:80] == LOST).all()
    assert (status[:70] == OK).all()


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.floats(-0.4, 0.4), min_size=3, max_size=3),
    st.lists(st.floats(-3, 3), min_size=3, max_size=3),
)
def test_the_frame_of_reference_does_not_matter(shift: list[float], turn: list[float]) -> None:
    """In a world that is turned and moved, poses, flags and covariances are turned along."""
    T = noisy(push(), SIGMA, np.random.default_rng(3))
    T[20, :3, 3] += [0.0, 0.03, 0.0]
    X = se3.from_rotation_position(rotation_exp(np.array(turn)), np.array(shift))
    plain = observe(TIME, T, "a test")
    moved = observe(TIME, X @ T, "a test", measured=T, axes=X[:3, :3])
    np.testing.assert_array_equal(plain.status, moved.status)
    Q = np.kron(np.eye(2), X[:3, :3])
    assert plain.covariance is not None
    assert moved.covariance is not None
    np.testing.assert_allclose(moved.covariance, Q @ plain.covariance @ Q.T, atol=1e-9)


def write_foundationpose(folder: Path, T: Array, names: list[str]) -> None:
    """`ob_in_cam` as FoundationPose's demo writes it."""
    (folder / "ob_in_cam").mkdir(parents=True)
    for name, pose in zip(names, T, strict=True):
        np.savetxt(folder / "ob_in_cam" / f"{name}.txt", pose)


def test_foundationpose_folder(tmp_path: Path) -> None:
    """Frames by name, missing ones lost, a moving camera; another camera's matrix is refused."""
    sway = rotation_exp(np.linspace(0, 0.3, N)[:, None] * np.array([0.0, 0.0, 1.0]))
    cameras = EYE @ se3.from_rotation_position(sway, np.zeros(3))
    names = tuple(f"{1000 + 2 * i:06d}" for i in range(N))
    kept = [i for i in range(N) if i not in (7, 8)]
    write_foundationpose(tmp_path, (cameras @ push())[kept], [names[i] for i in kept])
    (tmp_path / "cam_K.txt").write_text("600 0 320\n0 600 240\n0 0 1\n")
    frames = ClipFrames(TIME, cameras, names, np.array([600.0, 600.0, 320.0, 240.0]))
    seen = from_foundationpose(tmp_path, frames)
    assert (np.flatnonzero(seen.status == LOST) == [7, 8]).all()
    np.testing.assert_allclose(seen.T_world_object[kept], push()[kept], atol=1e-9)
    with pytest.raises(InputError, match=r"fx = 600\.00 px, the clip's camera has 640\.00"):
        from_foundationpose(
            tmp_path, ClipFrames(TIME, cameras, names, np.array([640.0, 640.0, 320.0, 240.0]))
        )
    with pytest.raises(InputError, match=r"frame '001000' is none .* 0 to 179"):
        from_foundationpose(tmp_path, ClipFrames(TIME, cameras))
    with pytest.raises(InputError, match="pictures 'a' to 'a'"):
        from_foundationpose(tmp_path, ClipFrames(TIME[:1], cameras[:1], ("a",)))


def test_foundationpose_in_millimetres(tmp_path: Path) -> None:
    """A translation of 400 "m" is refused with both numbers."""
    T = EYE @ push()[:3]
    T[:, :3, 3] *= 1000
    write_foundationpose(tmp_path, T, ["0", "1", "2"])
    with pytest.raises(InputError, match=r"is \d{3}\.\d+ away .* In millimetres it would be 0\.\d"):
        from_foundationpose(tmp_path, ClipFrames(TIME[:3], EYE))


def test_bop_results(tmp_path: Path) -> None:
    """Millimetres become metres, the best estimate of a picture counts, others are left out."""
    T = EYE @ push()
    lines = ["scene_id,im_id,obj_id,score,R,t,time"]
    for i in range(0, N, 2):
        R, t = (" ".join(f"{v:.6f}" for v in a) for a in (T[i, :3, :3].ravel(), T[i, :3, 3] * 1e3))
        lines.append(f"4,{i},2,0.9,{R},{t},0.1")
        lines.append(f"4,{i},2,0.3,1 0 0 0 1 0 0 0 1,0 0 500,0.1")
        lines.append(f"4,{i},5,1.0,1 0 0 0 1 0 0 0 1,0 0 700,0.1")
    path = tmp_path / "results.csv"
    path.write_text("\n".join(lines))
    seen = from_bop_results(path, ClipFrames(TIME, EYE), thing=2)
    assert (seen.status[::2] == OK).all()
    assert (seen.status[1::2] == LOST).all()
    np.testing.assert_allclose(seen.T_world_object[::2], push()[::2], atol=3e-6)
    with pytest.raises(InputError, match=r"objects \[2, 5\], say which"):
        from_bop_results(path, ClipFrames(TIME, EYE))


def write_motive(path: Path, time: Array, T: Array, unit: str = "Meters", kind: str = "Quaternion"):
    """A take with a rigid body, one of its markers, and a second body; Motive's layout."""
    scale = {"Meters": 1.0, "Millimeters": 1e3}[unit]
    head = f"Format Version,1.23,Take Name,t,Rotation Type,{kind},Length Units,{unit}"
    names = ["box"] * 8 + ["box:Marker1"] * 3 + ["other"] * 8
    kinds = ["Rigid Body"] * 8 + ["Rigid Body Marker"] * 3 + ["Rigid Body"] * 8
    groups = ["Rotation"] * 4 + ["Position"] * 3 + ["Mean Marker Error"]
    letters = ["X", "Y", "Z", "W", "X", "Y", "Z", ""]
    rows = [
        head,
        "",
        ",Type," + ",".join(kinds),
        ",Name," + ",".join(names),
        ",ID," + ",".join("ABC" for _ in names),
        ",," + ",".join([*groups, *["Position"] * 3, *groups]),
        "Frame,Time (Seconds)," + ",".join([*letters, "X", "Y", "Z", *letters]),
    ]
    for i, (t, pose) in enumerate(zip(time, T, strict=True)):
        if np.isnan(pose).any():
            cells = [""] * 8
        else:
            w, x, y, z = quaternion.from_matrix(pose[:3, :3])
            cells = [f"{v:.6f}" for v in (x, y, z, w, *(pose[:3, 3] * scale), 0.0001)]
        rows.append(f"{i},{t:.6f}," + ",".join([*cells, "0", "0", "0", *["0"] * 8]))
    path.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("unit", ["Meters", "Millimeters"])
def test_motive_export(tmp_path: Path, unit: str) -> None:
    """A y-up system, a marker frame, a clock of its own: the object's poses at the frames."""
    T_body_object = se3.exp(np.array([0.01, -0.02, -0.05, 0.3, 0.1, -0.2]))
    fast = 0.5 + np.arange(3 * N) / 180
    T = se3.inverse(Y_UP) @ push(fast) @ se3.inverse(T_body_object)
    T[40:60] = np.nan
    write_motive(tmp_path / "take.csv", fast + 7.0, T, unit)
    body = read_motive_csv(tmp_path / "take.csv", "box")
    seen = from_mocap(body, tmp_path / "take.csv", Y_UP, T_body_object, clock_offset=7.0)
    check_on_table(seen, BOX)
    at_frames = resample(seen, TIME)
    good = at_frames.status == OK
    assert set(np.flatnonzero(~good)) <= set(range(13, 21))
    assert (at_frames.status[15:19] == LOST).all()
    assert np.abs(error(at_frames, push())[good]).max() < 5e-5
    with pytest.raises(InputError, match="holds the rigid bodies"):
        read_motive_csv(tmp_path / "take.csv")
    # Its y axis taken for z: the object would be half a metre below or above the table.
    wrong = from_mocap(body, tmp_path / "take.csv", np.eye(4), T_body_object, clock_offset=7.0)
    with pytest.raises(InputError, match=r"frame read as y up \(x, -z, y\) it would be 0\.000 m"):
        check_on_table(wrong, BOX)


def test_motive_refusals(tmp_path: Path) -> None:
    """Euler angles, missing units, a table of another kind, a mislabelled unit."""
    path = tmp_path / "take.csv"
    write_motive(path, TIME, push(), kind="XYZ")
    with pytest.raises(InputError, match="Rotation Type is 'XYZ'"):
        read_motive_csv(path)
    write_motive(path, TIME, push())
    text = path.read_text()
    path.write_text(text.replace("Length Units,Meters", "Length Units,Feet"))
    with pytest.raises(InputError, match="'Feet'"):
        read_motive_csv(path)
    write_motive(path, TIME, push(), unit="Millimeters")
    path.write_text(path.read_text().replace("Millimeters", "Meters"))
    with pytest.raises(InputError, match=r"is 1\d\d\.\d+ m from the origin.* it would be 0\.1"):
        read_motive_csv(path, "box")
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="Format Version"):
        read_motive_csv(path)


def test_mocap_table_with_named_columns(tmp_path: Path) -> None:
    """Any names, any unit; zeros and blanks mean unseen; disorder in time is refused."""
    path = tmp_path / "poses.csv"
    names = {"time": "t", "x": "tx", "y": "ty", "z": "tz"}
    p, q = se3.to_position_quaternion(push())
    rows = np.column_stack([TIME, p * 1e3, q])
    rows[5, 1:] = 0
    header = "t,tx,ty,tz,qw,qx,qy,qz"
    np.savetxt(path, rows, delimiter=",", header=header, comments="", fmt="%.6f")
    body = read_mocap_csv(path, "mm", names)
    seen = from_mocap(body, path, np.eye(4), np.eye(4))
    assert (np.flatnonzero(~seen.valid) == [5]).all()
    assert np.abs(error(seen, push())[seen.valid]).max() < 2e-6
    with pytest.raises(InputError, match=r"\['time', 'x', 'y', 'z'\] are missing"):
        read_mocap_csv(path, "mm")
    rows[[9, 10]] = rows[[10, 9]]
    np.savetxt(path, rows, delimiter=",", header=header, comments="", fmt="%.6f")
    with pytest.raises(InputError, match="times do not increase at pose 10"):
        read_mocap_csv(path, "mm", names)
    flipped = np.diag([1.0, 1.0, -1.0, 1.0])
    with pytest.raises(InputError, match="T_world_mocap is no rigid motion"):
        from_mocap(body, path, flipped, np.eye(4))


def test_objects_off_the_table_are_refused() -> None:
    """Sunk, floating, a mesh whose y is up; in the air only where that is said."""
    seen = observe(TIME, push(), "a test")
    check_on_table(seen, BOX)
    lifted = push()
    lifted[:, 2, 3] += 0.1
    with pytest.raises(InputError, match=r"lowest point is 0\.100 m above the table"):
        check_on_table(observe(TIME, lifted, "a test"), BOX)
    check_on_table(observe(TIME, lifted, "a test"), BOX, airborne=True)
    lifted[:, 2, 3] -= 0.2
    with pytest.raises(InputError, match=r"0\.100 m below the table"):
        check_on_table(observe(TIME, lifted, "a test"), BOX, airborne=True)
    bottle = BOX * [1, 1, 3] + [0, 0, 0.12 - 0.04]  # stands on its origin's z = -0.04
    check_on_table(seen, bottle)
    y_up = bottle @ np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    with pytest.raises(InputError, match=r"with the mesh read as y up \(x, -z, y\) it would be 0"):
        check_on_table(seen, y_up, nearest=0.005)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, T: (t[:0], T[:0]), "no frames"),
        (lambda t, T: (t, T * np.nan), "none of the 180 frames has a pose"),
        (lambda t, T: (t[::-1], T), "do not increase at frame 1"),
        (lambda t, T: (t, T @ np.diag([1.0, 1.0, -1.0, 1.0])), "mirrored"),
        (lambda t, T: (t, T @ np.diag([1.1, 1.1, 1.1, 1.0])), "deviates from 1 by 0.21"),
        (lambda t, T: (t, T[:5]), "180 times but poses of shape"),
    ],
)
def test_streams_that_are_none(change, message: str) -> None:
    """Each refusal names what was found."""
    with pytest.raises(InputError, match=message):
        observe(*change(TIME, push()), "a test")


def test_tags_on_the_object(tmp_path: Path) -> None:
    """Rendered tags on two faces of a box: poses and covariances are true."""
    size = 0.04
    file = {
        "family": "36h11",
        "tags": [
            {"id": 3, "size": size, "T_object_tag": {"position": [0.0, 0.0, 0.04]}},
            {
                "id": 8,
                "size": size,
                "T_object_tag": {
                    "position": [0.0, -0.03, 0.0],
                    "quaternion_wxyz": quaternion.from_rotvec([np.pi / 2, 0, 0]).tolist(),
                },
            },
        ],
    }
    (tmp_path / "tags.yaml").write_text(yaml.safe_dump(file))
    tags = load_object_tags(tmp_path / "tags.yaml")
    camera = WorldCamera(np.array([500.0, 500.0, 159.5, 119.5]), EYE, 320, 240)
    dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
    rng = np.random.default_rng(4)
    pick = np.arange(0, N, 9)

    def picture(pose: Array) -> Array:
        image = np.full((480, 640), 150.0)
        for tag in tags.tags:
            mark = np.full((100, 100), 255, np.uint8)
            mark[10:90, 10:90] = cv2.aruco.generateImageMarker(dictionary, tag.id, 80)
            corners = np.array([[-1, 1], [1, 1], [1, -1], [-1, -1]]) * 0.5 * size * 100 / 80
            points = se3.apply(pose @ tag.T_object_tag.matrix, np.c_[corners, np.zeros(4)])
            pixels = lens.project(points, camera.intrinsics, EYE) * 2 + 0.5
            flat = np.array([[0, 0], [100, 0], [100, 100], [0, 100]], np.float32) - 0.5
            H = cv2.getPerspectiveTransform(flat, pixels.astype(np.float32))
            cv2.warpPerspective(
                mark.astype(np.float64),
                H,
                (640, 480),
                image,
                cv2.INTER_LINEAR,
                cv2.BORDER_TRANSPARENT,
            )
        small = cv2.resize(image, (320, 240), interpolation=cv2.INTER_AREA)
        return np.clip(small + rng.normal(0, 2, small.shape), 0, 255).astype(np.uint8)

    def frames():
        for t, pose in zip(TIME[pick], push()[pick], strict=True):
            grey = picture(pose) if abs(t - TIME[90]) > 0.01 else np.full((240, 320), 90, np.uint8)
            yield t, CameraFrame(camera, np.repeat(grey[..., None], 3, 2), grey)

    seen = from_object_tags(frames(), tags, "a test")
    assert (np.flatnonzero(~seen.valid) == [10]).all()
    truth = push()[pick]
    assert np.linalg.norm(error(seen, truth)[seen.valid, :3], axis=1).max() < 2e-3
    assert nees(seen, truth) < 9.0
    other = load_object_tags(tmp_path / "tags.yaml").model_copy(
        update={"tags": (tags.tags[0].model_copy(update={"id": 20}),)}
    )
    with pytest.raises(InputError, match="no tag of the object"):
        from_object_tags(list(frames())[:1], other, "a test")
