"""Rendered views against what geometry says of a ball, a wall and what stands before it."""

import numpy as np
import pytest
import trimesh

from twinloop.errors import InputError, MachineError
from twinloop.geometry import camera as cameras
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.cameras import Camera, bounds, turntable
from twinloop.splat.gaussians import Gaussians, on_surface
from twinloop.splat.render import render
from twinloop.splat.scene import merge
from twinloop.splat.surfels import Surfels

RADIUS = 0.1
K = np.array([150.0, 150.0, 47.0, 35.5])


def ball(count: int = 4000, colour: tuple[int, int, int] = (200, 40, 90)) -> Gaussians:
    """An opaque ball of Gaussians, of one colour."""
    mesh = trimesh.creation.icosphere(4, RADIUS)
    colors = np.tile(np.array(colour, np.uint8), (len(mesh.vertices), 1))
    start = on_surface(mesh.vertices, mesh.faces, colors, count, 1, seed=0)
    opaque = np.full(count, 0.95, np.float32)
    thin = start.scales * np.float32([1, 1, 0.1])
    return Gaussians(start.means, start.quaternions, thin, opaque, start.sh)


def at(eye: list[float], target: tuple[float, float, float] = (0, 0, 0)) -> Camera:
    """A camera of 96 x 72 px at `eye`."""
    return Camera(K, 96, 72, cameras.look_at(eye, target))


def truth(camera: Camera) -> object:
    """What casting rays at the ball gives."""
    mesh = trimesh.creation.icosphere(5, RADIUS)
    T = np.linalg.inv(camera.T_world_camera)
    return MeshRenderer(mesh.vertices, mesh.faces).render(K, camera.width, camera.height, T)


@pytest.mark.parametrize("flat", [False, True])
def test_depth_normal_and_colour_of_a_ball(flat: bool) -> None:
    """Depth within 0.2 mm (Gaussians: a splat's size), normals within degrees, in the world."""
    splats: Gaussians | Surfels = ball()
    if flat:
        pytest.importorskip("twinloop.splat.rasterize_2dgs")
        splats = Surfels(
            splats.means, splats.quaternions, splats.scales[:, :2], splats.opacities, splats.sh
        )
    here = at([0.3, -0.25, 0.2])
    view, exact = render(splats, here), truth(here)
    inside = exact.mask & (np.abs(exact.normal @ here.T_world_camera[:3, 2]) > 0.4)
    assert view.alpha[inside].min() > 0.75
    assert np.median(view.alpha[inside]) > 0.98
    error = view.depth[inside] - exact.depth[inside]
    assert np.median(np.abs(error)) < (2e-4 if flat else 4e-3)
    angle = np.degrees(np.arccos(np.einsum("yxc,yxc->yx", view.normal, exact.normal).clip(-1, 1)))
    assert np.median(angle[inside]) < 4
    np.testing.assert_allclose(np.linalg.norm(view.normal[inside], axis=1), 1, atol=1e-5)
    colour = view.rgb[inside] / view.alpha[inside][:, None]
    np.testing.assert_allclose(np.median(colour, axis=0) * 255, [200, 40, 90], atol=2)
    overlap = ((view.alpha > 0.5) & exact.mask).sum() / ((view.alpha > 0.5) | exact.mask).sum()
    assert overlap > 0.93
    nothing = view.alpha < 0.5
    assert (view.depth[nothing] == 0).all()
    assert (view.segmentation[nothing] == -1).all()
    if flat:
        # Five per cent shine through from the ball's far side.
        mean = render(splats, here, depth="expected", layers=["depth"]).depth[inside]
        assert 1e-3 < np.median(mean - exact.depth[inside]) < 8e-3
    else:
        with pytest.raises(InputError, match="no median depth"):
            render(splats, here, depth="median")


def test_segmentation_follows_what_is_in_front() -> None:
    """Two balls one behind the other: the near one hides the far one, from either side."""
    red, green = ball(1500), ball(1500, (10, 180, 30))
    near, far = np.eye(4), np.eye(4)
    near[1, 3], far[1, 3] = -0.15, 0.15
    scene = merge([(red, near, "red"), (green, far, "green"), (red, np.eye(4) * 1.0, "middle")])
    front, back = render(scene, [at([0, -0.6, 0]), at([0, 0.6, 0])])
    assert front.segmentation[36, 47] == 0
    assert back.segmentation[36, 47] == 1
    assert front.depth[36, 47] == pytest.approx(0.35, abs=0.015)
    side = render(scene, at([0.9, 0, 0]))
    assert set(np.unique(side.segmentation)) == {-1, 0, 1, 2}
    # Seen from +x with z up, +y is right.
    assert np.argwhere(side.segmentation == 1)[:, 1].mean() > 47
    alone = render(ball(1500), at([0, 0.6, 0])).alpha
    assert alone.max() > 0.9


def test_background_layers_and_crops() -> None:
    """The background shines through; unwanted layers are None; a crop is a part of the picture."""
    red, here = ball(1500), at([0.0, -0.5, 0.1])
    black, white = (render(red, here, background=(c, c, c), layers=()) for c in (0.0, 1.0))
    assert black.depth is None
    assert black.normal is None
    assert black.segmentation is None
    np.testing.assert_allclose(
        white.rgb - black.rgb, (1 - black.alpha)[..., None] + 0 * white.rgb, atol=1e-6
    )
    crop = Camera(K - [0, 0, 60, 20], 30, 40, here.T_world_camera)
    part = render(red, crop, layers=())
    np.testing.assert_allclose(part.rgb, black.rgb[20:60, 60:90], atol=1e-5)
    assert black.picture().dtype == np.uint8
    nothing = render(red, at([0, -0.5, 0], (0, -1, 0)))
    assert nothing.alpha.max() == 0
    assert nothing.depth.max() == 0


def test_turntable_sees_the_whole() -> None:
    """Every splat is in every picture, from all sides, and stray ones do not move the cameras."""
    red = ball(800)
    walk = turntable(red, 8, width=64, height=48)
    for camera in walk:
        pixel = cameras.project(red.means, camera.intrinsics, np.linalg.inv(camera.T_world_camera))
        assert (pixel > 0).all()
        assert (pixel < [63, 47]).all()
    centres = np.stack([camera.T_world_camera[:3, 3] for camera in walk])
    np.testing.assert_allclose(centres[:, :2].mean(axis=0), 0, atol=5e-3)
    assert np.ptp(centres[:, 2]) < 1e-9
    strays = red.means.copy()
    strays[:3] += 50
    low, high = bounds(Gaussians(strays, *list(vars(red).values())[1:5]))
    np.testing.assert_allclose(high - low, 2 * RADIUS, rtol=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intrinsics": np.array([0.0, 1, 0, 0])}, "fx, fy > 0"),
        ({"T_world_camera": np.full((4, 4), np.nan)}, "finite numbers"),
        ({"T_world_camera": np.diag([2.0, 2, 2, 1])}, "no rotation"),
        ({"width": 0}, "expected 1 to 16384"),
    ],
)
def test_wrong_cameras(changes: dict[str, object], message: str) -> None:
    """NaN poses, scaled poses and empty pictures are refused."""
    good = {"intrinsics": K, "width": 8, "height": 8, "T_world_camera": np.eye(4)}
    with pytest.raises(InputError, match=message):
        Camera(**{**good, **changes})


def test_unknown_layers() -> None:
    """A layer that there is not is named."""
    with pytest.raises(InputError, match="layers \\['flow'\\]"):
        render(ball(50), at([0, -0.5, 0]), layers=["flow"])


def test_unknown_devices() -> None:
    """A device that torch does not know, or that is not here, is refused with the way out."""
    with pytest.raises(InputError, match="device 'tpu', expected 'cpu'"):
        render(ball(10), at([0, -1, 0]), device="tpu")
    with pytest.raises(InputError, match="device 'meta'"):
        render(ball(10), at([0, -1, 0]), device="meta")
    with pytest.raises(MachineError, match="CUDA devices here"):
        render(ball(10), at([0, -1, 0]), device="cuda:99")
