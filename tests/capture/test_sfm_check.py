"""Pictures that cannot give a model are refused before time is spent; turntables are found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.capture.sfm_scene import CAMERA, box, draw, ground, orbit, texture, turn_errors
from twinloop.capture.sfm import SfmSettings, structure_from_motion
from twinloop.capture.sfm_check import check_matches, check_texture, find_turntable
from twinloop.capture.sfm_features import choose_pairs, extract, likeness
from twinloop.errors import InputError
from twinloop.geometry import se3

pytest.importorskip("pycolmap", reason="the extra 'sfm' is not installed")

SETTINGS = SfmSettings(max_side=320, features=500)
RICH = SfmSettings(max_side=320, features=1000)


def test_a_good_orbit_passes_with_its_numbers() -> None:
    """Overlap, matches and angle are those of the orbit."""
    poses = orbit(5, 40)
    images = [draw([*box(1), ground(9)], T, seed=i) for i, T in enumerate(se3.inverse(poses))]
    features = extract(images, None, SETTINGS, "orbit")
    check_texture(features, "orbit")
    assert find_turntable(features) is None
    pairs = choose_pairs(likeness(features), SETTINGS, True)
    finding = check_matches(features, pairs, 330.0, "orbit")
    assert finding.linked > 0.6
    assert finding.matches > 50
    assert 8 < finding.angle < 60
    assert f"{finding.angle:.1f} degrees" in finding.text


def test_blank_pictures_are_refused() -> None:
    """Noise on grey is no texture."""
    rng = np.random.default_rng(0)
    images = [np.clip(rng.normal(128, 1, (240, 320)), 0, 255).astype(np.uint8) for _ in range(4)]
    with pytest.raises(InputError, match="blank: too little texture: 4 of 4 pictures"):
        structure_from_motion(images, settings=SETTINGS, where="blank")


def test_masks_that_are_empty_leave_no_texture() -> None:
    """The message names masks as a possible cause."""
    images = [draw([ground(9)], T) for T in se3.inverse(orbit(3, 20))]
    masks = [np.zeros((240, 320), np.uint8)] * 3
    with pytest.raises(InputError, match="masks are not empty"):
        structure_from_motion(images, masks=masks, settings=SETTINGS)


def test_a_camera_that_only_turns_is_refused() -> None:
    """Eight degrees of panning per picture, nothing but rotation."""
    start = orbit(1, 0)[0]
    poses = np.stack(
        [start @ se3.exp(np.array([0, 0, 0, 0.01 * i, 0.06 * (i - 1.5), 0])) for i in range(4)]
    )
    images = [draw([*box(1), ground(9, 3.0)], T, seed=i) for i, T in enumerate(se3.inverse(poses))]
    with pytest.raises(InputError, match="only turned on the spot"):
        structure_from_motion(images, settings=SETTINGS, where="pan")


def test_pictures_that_are_all_alike_are_refused() -> None:
    """A camera on a tripod before a still scene."""
    T = se3.inverse(orbit(1, 0)[0])
    images = [draw([*box(1), ground(9)], T, seed=i) for i in range(3)]
    with pytest.raises(InputError, match="neither camera nor object moves"):
        structure_from_motion(images, settings=SETTINGS)


def test_pictures_of_different_things_do_not_overlap() -> None:
    """Four pictures of four scenes."""
    T = se3.inverse(orbit(1, 0)[0])
    images = [draw([*box(20 * i), ground(20 * i + 9)], T, seed=i) for i in range(4)]
    with pytest.raises(InputError, match="too little overlap: 0 of"):
        structure_from_motion(images, settings=SETTINGS)


def turntable_pictures(count: int, degrees: float) -> tuple[list[np.ndarray], np.ndarray]:
    """A box on a mat turns before a textured wall; poses are relative to the box."""
    wall = np.clip(texture(77, 512)[:240, :320], 0, 255).astype(np.uint8)
    camera = orbit(1, 0)[0]
    turns = np.radians(np.linspace(0, degrees, count))
    poses = np.stack([se3.exp(np.array([0, 0, 0, 0, 0, -a])) @ camera for a in turns])
    quads = [*box(1), ground(9, 0.3)]
    drawn = [draw(quads, T, under=wall, seed=i) for i, T in enumerate(se3.inverse(poses))]
    return drawn, poses


def test_a_turntable_before_a_still_background() -> None:
    """With the wall the camera seems to stand still; without it the turns are right."""
    images, poses = turntable_pictures(8, 56)
    features = extract(images, None, RICH, "table")
    found = find_turntable(features)
    assert found is not None
    assert 0.2 < found.still < 0.9
    assert found.mask.shape == (240, 320)
    # The box is inside the mask, the picture's rim outside.
    middle = CAMERA.project(se3.apply(se3.inverse(poses[0]), np.array([[0.0, 0.0, 0.06]])))[0]
    assert found.mask[round(middle[1]), round(middle[0])] == 255
    assert found.mask[:10].max() == 0
    pairs = choose_pairs(likeness(features), RICH, True)
    with pytest.raises(InputError, match="neither camera nor object moves"):
        check_matches(features, pairs, 330.0, "table")
    model = structure_from_motion(images, focal_prior=330.0, settings=RICH)
    assert model.registered.all()
    assert turn_errors(model.T_world_camera, poses).max() < 2.0
    assert any("turntable" in note for note in model.notes)


def test_a_turning_object_without_texture_is_refused() -> None:
    """The message asks for a board that turns with the object."""
    wall = np.clip(texture(77, 512)[:240, :320], 0, 255).astype(np.uint8)
    pictures = []
    for i in range(6):
        picture = wall.copy()
        picture[80:150, 120:190] = texture(5)[100:170, 90 + 6 * i : 160 + 6 * i]
        pictures.append(picture)
    features = extract(pictures, None, SETTINGS, "plain")
    with pytest.raises(InputError, match="what turns has a median of"):
        find_turntable(features)
