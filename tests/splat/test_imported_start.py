"""Training goes on from a splat or a mesh that was made elsewhere."""

from pathlib import Path

import numpy as np
import pytest
import trimesh

from tests.splat.little import RADIUS, ball, little
from twinloop.errors import InputError
from twinloop.geometry import quaternion
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.imported import load_start, save_splats
from twinloop.splat.imported_start import gaussians_of, surfels_of
from twinloop.splat.quality import psnr_white
from twinloop.splat.surfels import Surfels
from twinloop.splat.train import TrainSettings, train

SHORT = TrainSettings(iterations=60, densify_times=0, largest=1.0)


def test_training_goes_on_from_a_file_of_gaussians(tmp_path: Path) -> None:
    """The file's Gaussians, none lost on the way, and better on unseen pictures afterwards."""
    _, views, unseen = little()
    rough = ball(150, seed=0)
    save_splats(rough, tmp_path / "elsewhere.ply")
    start = gaussians_of(load_start(tmp_path / "elsewhere.ply"), views)
    np.testing.assert_array_equal(start.means, rough.means)
    done = train(start, views, SHORT)
    assert np.mean(psnr_white(done, unseen)) > np.mean(psnr_white(start, unseen)) + 2
    assert len(done) > 100


def test_training_goes_on_from_a_mesh_elsewhere_and_in_millimetres(tmp_path: Path) -> None:
    """Scaled, moved to where the pictures show it, in their colours; as Gaussians or surfels."""
    _, views, unseen = little()
    sphere = trimesh.creation.icosphere(3, 1e3 * RADIUS)
    sphere.apply_translation([0, 0, 150.0])
    sphere.export(tmp_path / "sphere.stl")
    mesh = load_start(tmp_path / "sphere.stl", scale=1e-3)
    T = np.eye(4)
    T[2, 3] = -0.15
    for of in (gaussians_of, surfels_of):
        start = of(mesh, views, count=200, T_world_mesh=T)
        assert np.linalg.norm(start.means, axis=1) == pytest.approx(RADIUS, rel=0.02)
        done = train(start, views, SHORT)
        assert np.mean(psnr_white(done, unseen)) > np.mean(psnr_white(start, unseen)) + 2
        with pytest.raises(InputError, match="outside the masks"):
            train(of(mesh, views, count=200), views, SHORT)


def test_gaussians_become_discs_that_face_the_cameras() -> None:
    """The shortest axis is the normal, outward; the two others keep their scales and directions."""
    _, views, _ = little()
    flat = surfels_of(gaussians_of(_thin(), views), views)
    outward = flat.means / np.linalg.norm(flat.means, axis=1, keepdims=True)
    assert (np.einsum("ni,ni->n", flat.normals, outward) > 0.999).all()
    np.testing.assert_allclose(flat.scales, np.tile([4e-3, 2e-3], (len(flat), 1)), rtol=1e-6)
    again = gaussians_of(flat, views, degree=0)
    assert again.sh.shape == (len(flat), 1, 3)
    np.testing.assert_allclose(again.scales[:, 2], 2e-4, rtol=1e-6)
    higher = surfels_of(flat, views, degree=3)
    assert isinstance(higher, Surfels)
    np.testing.assert_array_equal(higher.sh[:, :4], flat.sh)
    assert not higher.sh[:, 4:].any()


def _thin() -> Gaussians:
    """Gaussians on the ball, the second axis short and along the radius, inward for some."""
    plain = ball(60)
    normal = plain.means / np.linalg.norm(plain.means, axis=1, keepdims=True)
    normal = normal.astype(np.float64) * np.where(np.arange(60) % 2, 1, -1)[:, None]
    first = np.cross(normal, [0.3, 0.5, 0.8])
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    axes = np.stack([first, normal, np.cross(first, normal)], axis=2)
    return Gaussians(
        plain.means,
        quaternion.from_matrix(axes).astype(np.float32),
        np.tile(np.float32([2e-3, 1e-3, 4e-3]), (60, 1)),
        plain.opacities,
        plain.sh,
    )


def test_what_makes_no_start() -> None:
    """A pose for splats, a mirror, a degree that is none."""
    _, views, _ = little()
    with pytest.raises(InputError, match="for meshes"):
        gaussians_of(ball(10), views, T_world_mesh=np.eye(4))
    with pytest.raises(InputError, match="expected 0 to 3"):
        surfels_of(ball(10), views, degree=4)
