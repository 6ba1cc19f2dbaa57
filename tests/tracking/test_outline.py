"""Outline, edges, colours and depth of a plain box against closed forms and drawn images."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from scipy.spatial import ConvexHull

from tests.tracking.box_scene import BoxScene, look_at, pose, rotation
from twinloop.tracking.appearance import Shape
from twinloop.tracking.colours import ColourModel
from twinloop.tracking.contour import contour
from twinloop.tracking.depth import depth_term
from twinloop.tracking.edge import END, HALF, EdgeTerm, edge_offsets
from twinloop.tracking.fitter import Fitter
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.model import build_model
from twinloop.tracking.modes import Modes, choose_modes
from twinloop.tracking.priors import motion
from twinloop.tracking.region import OddsImage, RegionTerm
from twinloop.tracking.resting import resting_faces, solid_angle
from twinloop.tracking.settings import Settings
from twinloop.tracking.shortlist import shortlist
from twinloop.tracking.sight import Eye, colours_at, glance
from twinloop.tracking.solver import WorldCamera, perturb, project, solve_pose

EYE = look_at(np.array([0.1, -0.4, 0.3]), np.array([0.0, 0.0, 0.03]))
CAMERA = WorldCamera(np.array([500.0, 500.0, 199.5, 149.5]), np.linalg.inv(EYE), 400, 300)
TRUE = pose(rotation("z", 0.5) @ rotation("x", 0.1), np.array([0.01, 0.0, 0.05]))
SIZE = np.array([0.10, 0.055, 0.085])
INSIDE, AROUND = np.array([200, 60, 50]), np.array([120, 130, 140])


@pytest.fixture(scope="module")
def shape() -> Shape:
    """The box's mesh."""
    vertices, faces, _ = BoxScene(size=SIZE).mesh()
    return Shape(vertices, faces)


def corners(where: np.ndarray) -> np.ndarray:
    """Pixels of the box's eight corners."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return project(CAMERA, where, signs * SIZE / 2)[0]


def draw(where: np.ndarray, rng: np.random.Generator, fine: int = 8) -> np.ndarray:
    """The plain box on a plain ground, each pixel its exact share of colour, with noise."""
    hull = ConvexHull(corners(where))
    at = (np.arange(fine) + 0.5) / fine - 0.5
    x = (np.arange(400)[:, None] + at).ravel()
    y = (np.arange(300)[:, None] + at).ravel()
    inside = np.ones((len(y), len(x)), bool)
    for a, b, c in hull.equations:
        inside &= a * x[None] + b * y[:, None] + c <= 0
    share = inside.reshape(300, fine, 400, fine).mean(axis=(1, 3))[..., None]
    image = cv2.GaussianBlur(share * INSIDE + (1 - share) * AROUND, (0, 0), 0.8)
    return np.clip(np.rint(image + rng.normal(0, 2, image.shape)), 0, 255).astype(np.uint8)


def test_contour_lies_on_the_silhouette(shape: Shape) -> None:
    """Every point projects onto the convex outline of the corners within a tenth of a pixel."""
    view = shape.view(CAMERA, TRUE, margin=20)
    assert view is not None
    found = contour(shape.renderer, CAMERA, TRUE, view.window, view.hits, view.step)
    assert len(found.points) > 100
    pixels = project(CAMERA, TRUE, found.points)[0]
    distance = (ConvexHull(corners(TRUE)).equations @ np.c_[pixels, np.ones(len(pixels))].T).max(0)
    assert np.abs(distance).max() < 0.1
    outward = project(CAMERA, TRUE, found.points + 0.002 * found.normals)[0]
    moved = (ConvexHull(corners(TRUE)).equations @ np.c_[outward, np.ones(len(pixels))].T).max(0)
    assert (moved > 0.5).all()


@pytest.mark.parametrize("blur", [0.5, 1.0, 1.8])
@pytest.mark.parametrize("offset", [-1.7, -0.3, 0.0, 0.45, 1.6])
def test_edge_of_a_blurred_step_is_found(blur: float, offset: float) -> None:
    """The share of colour along a line gives the place of the step to 0.03 px.

    To 0.1 px where the blur reaches the ends of the line, whose colours are the measure.
    """
    fine = 64
    s = (np.arange(-HALF * fine - fine // 2, HALF * fine + fine // 2) + 0.5) / fine
    step = (s < offset).astype(np.float64)
    radius = int(5 * blur * fine)
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / (blur * fine)) ** 2)
    soft = np.convolve(np.pad(step, radius, mode="edge"), kernel / kernel.sum(), mode="valid")
    share = soft.reshape(2 * HALF + 1, fine).mean(1)
    line = share[:, None] * INSIDE + (1 - share[:, None]) * AROUND
    found, contrast = edge_offsets(line[None].astype(np.float32))
    clear = abs(offset) + 2.5 * blur < HALF - END
    assert found[0] == pytest.approx(offset, abs=0.03 if clear else 0.1)
    assert contrast[0] > 80


def test_outline_alone_gives_the_pose_of_a_plain_box(shape: Shape) -> None:
    """From 8 mm and 0.1 rad away: statistics within 2 mm, edges then within 0.6 mm and 0.6 deg."""
    rng = np.random.default_rng(0)
    image = draw(TRUE, rng)
    view = shape.view(CAMERA, TRUE, margin=40)
    assert view is not None
    x0, y0, x1, y1 = view.window
    core = cv2.erode(view.mask.astype(np.uint8), np.ones((7, 7))) > 0
    ring = cv2.dilate(view.mask.astype(np.uint8), np.ones((9, 9))) == 0
    crop = image[y0:y1, x0:x1]
    colours = ColourModel.of(crop[core], crop[ring])
    found = perturb(TRUE, np.array([0.005, -0.005, 0.004, 0.05, -0.06, 0.08]))
    for turn in range(3):
        view = shape.view(CAMERA, found, margin=40)
        assert view is not None
        line = contour(shape.renderer, CAMERA, found, view.window, view.hits, view.step)
        known = np.ones(view.mask.shape, bool)
        odds = OddsImage.of(image, view.window, colours, known)
        scales = (4, 2, 1, 1) if turn == 0 else (1,)
        found = solve_pose(found, [RegionTerm(CAMERA, line, odds, scales)], 6).pose
    first = motion(found, TRUE)
    assert np.linalg.norm(first[:3]) < 0.002
    for _ in range(2):
        view = shape.view(CAMERA, found, margin=40)
        assert view is not None
        line = contour(shape.renderer, CAMERA, found, view.window, view.hits, view.step)
        x0, y0, x1, y1 = view.window
        rgb = np.ascontiguousarray(image[y0:y1, x0:x1])
        known = np.ones(view.mask.shape, np.float32)
        solution = solve_pose(found, [EdgeTerm(CAMERA, line, view.window, rgb, known)], 6)
        found = solution.pose
    last = motion(found, TRUE)
    assert np.linalg.norm(last[:3]) < 0.0006
    assert np.linalg.norm(last[3:]) < np.radians(0.6)
    assert last @ np.linalg.solve(solution.covariance, last) < 22.5  # chi square, 6 dof, 0.1 %


def test_a_glance_tells_the_pose_from_others_and_what_hides_it(shape: Shape) -> None:
    """The true pose scores near one, another yaw less; a cover of half the object shows."""
    model = build_model(*BoxScene(size=SIZE).mesh()[:2])
    image = draw(TRUE, np.random.default_rng(1))
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    frame = CameraFrame(CAMERA, image, grey)
    eye = Eye(colours=colours_at(model, frame, TRUE))
    true = glance(model, frame, TRUE, eye)
    turned = glance(model, frame, pose(rotation("z", 0.7), np.zeros(3)) @ TRUE, eye)
    assert true is not None
    assert turned is not None
    assert true.score > 0.9
    assert true.visible > 0.97
    assert turned.score < true.score - 0.1
    view = shape.view(CAMERA, TRUE, margin=0)
    assert view is not None
    ignore = np.zeros(grey.shape, bool)
    ignore[:, : int(corners(TRUE)[:, 0].mean())] = True
    share = view.mask[:, : int(corners(TRUE)[:, 0].mean()) - view.window[0]].sum() / view.mask.sum()
    half = glance(model, CameraFrame(CAMERA, image, grey, ignore=ignore), TRUE, eye)
    assert half is not None
    assert half.visible == pytest.approx(1 - share, abs=0.05)


def test_only_starts_that_differ_and_are_seen_are_fitted() -> None:
    """Of starts about the true pose one is left, on it; one hidden and one found are left out."""
    model = build_model(*BoxScene(size=SIZE).mesh()[:2])
    image = draw(TRUE, np.random.default_rng(1))
    frame = CameraFrame(CAMERA, image, cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))
    eye = Eye(colours=colours_at(model, frame, TRUE), score=1.0)
    fitter = Fitter(model, Modes(True, False, False, False, 0.0, 0.0), Settings(), [eye], [])
    around = [perturb(TRUE, np.array([x, 0.0, 0.0, 0.0, 0.0, 0.0])) for x in (0.004, 0.0, -0.003)]
    beside = perturb(TRUE, np.array([-0.12, 0.1, 0.0, 0.0, 0.0, 0.0]))
    left = shortlist(fitter, Frame(0.0, (frame,)), [*around, beside], [])
    assert len(left) == 1
    assert np.linalg.norm(motion(left[0], TRUE)[:3]) < 0.003
    assert shortlist(fitter, Frame(0.0, (frame,)), around, left) == []


def test_depth_gives_all_but_the_slide_along_two_faces(shape: Shape) -> None:
    """On an exact depth image 10 mm come down to 0.1 mm.

    But along the edge of the two faces in view nothing is known, and said to be.
    """
    depth = shape.reference(
        np.zeros((300, 400), np.uint8), CAMERA.intrinsics, CAMERA.T_camera_world @ TRUE
    ).depth
    found = perturb(TRUE, np.array([0.006, -0.006, 0.005, 0.03, 0.03, -0.03]))
    for _ in range(4):
        view = shape.view(CAMERA, found, margin=8)
        assert view is not None
        term = depth_term(CAMERA, view, found, depth)
        assert term is not None
        found = solve_pose(found, [term], 6).pose
    error = TRUE[:3, :3].T @ motion(found, TRUE)[:3]
    assert np.abs(error[1:]).max() < 0.0001
    assert np.linalg.norm(motion(found, TRUE)[3:]) < 0.001
    edge = TRUE[:3, 0]
    spread = solve_pose(found, [term], 1).covariance[:3, :3]
    assert edge @ spread @ edge > 0.5
    assert TRUE[:3, 1] @ spread @ TRUE[:3, 1] < 0.001**2


def test_a_box_rests_on_six_faces() -> None:
    """Heights are the half sizes, likelihoods the solid angles; the scan's way comes first."""
    hull = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * SIZE / 2
    rests = resting_faces(hull)
    assert len(rests) == 6
    assert sum(r.share for r in rests) == pytest.approx(1.0)
    assert rests[0].height == pytest.approx(SIZE[1] / 2)
    assert rests[-1].height == pytest.approx(SIZE[0] / 2)
    scan = resting_faces(hull, pose(rotation("z", 0.3), np.array([0.1, 0.0, SIZE[2] / 2])))
    assert scan[0].up == pytest.approx([0, 0, 1])
    assert solid_angle(np.eye(3)) == pytest.approx(np.pi / 2)  # an octant


def test_modes_follow_texture_and_colours() -> None:
    """Texture needs cells, the outline colours that differ, and something is always in use."""
    rng = np.random.default_rng(1)
    red = np.clip(rng.normal(INSIDE, 3, (500, 3)), 0, 255).astype(np.uint8)
    grey = np.clip(rng.normal(AROUND, 3, (500, 3)), 0, 255).astype(np.uint8)
    assert ColourModel.of(red, grey).overlap < 0.05
    assert ColourModel.of(red, red).overlap == pytest.approx(1.0, abs=1e-3)
    assert choose_modes(40, 0.1, depth=False, plane=True).names == "region+texture+plane"
    assert choose_modes(40, 0.95, depth=False, plane=True).names == "texture+plane"
    assert choose_modes(0, 0.95, depth=False, plane=False).names == "region"
    assert choose_modes(0, 0.95, depth=True, plane=False).names == "depth"
