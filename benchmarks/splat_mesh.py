"""Shape from surfels on clean lab scenes, against the true mesh: figures of meshes and biases.

Of each scene: what true depth would give (the floor of the fusion), the hull, the hull moved to
photometric agreement, the mesh that surfels start on, and the surfels' mesh by depth mode, with and
without the measured sinkage, beside a plain projective fusion of the same depth. Two scenes are
hollow. Then what was tried otherwise: filters, losses, starts, one set of splats or two.
Published figures on DTU (2DGS 0.80, GOF 0.74, PGSR 0.53 mm) are means over scans of 1600 x 1200
pictures, masked by observed points, trained on a GPU: not comparable with 200 x 200 pictures here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.rows import Figure
from benchmarks.splat_scenes import PIXEL, LabScene, lab_scene
from twinloop.geometry.distance import MeshDistance
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.color import vertex_colors
from twinloop.splat.extract import ExtractSettings, render_depth, sinkage
from twinloop.splat.gaussians import on_surface as gaussians_on_surface
from twinloop.splat.hull import Silhouettes, bounds, hull_mesh, silhouettes
from twinloop.splat.inferred import unseen_points
from twinloop.splat.low_pass import PLAIN
from twinloop.splat.quality import psnr_white
from twinloop.splat.rasterize import camera_matrix
from twinloop.splat.rasterize_2dgs import rasterization_2dgs
from twinloop.splat.refine import RefineSettings, refine
from twinloop.splat.surface import Faces, mesh_of_field, smooth
from twinloop.splat.surfel_losses import SurfelObjective, SurfelSettings
from twinloop.splat.surfel_mesh import SurfelMeshSettings, first_mesh, surfel_training
from twinloop.splat.surfels import Surfels, on_surface
from twinloop.splat.train import train
from twinloop.splat.train_sets import train_sets
from twinloop.splat.train_settings import TrainSettings
from twinloop.splat.tsdf import Fusion, fuse
from twinloop.splat.views import Views, signed_distance

Array = NDArray[np.float64]
Fused = tuple[Array, Faces]
SAMPLES = 20_000
CLOSE = 2e-3
"""Distance (m) within which F1 counts a point as found."""
MODES = (("intersection", "median"), ("intersection", "expected"), ("center", "median"))


@dataclass(frozen=True)
class Score:
    """A mesh against the truth, over the surface that cameras see; m.

    accuracy: mean distance mesh to truth; completeness: truth to mesh; chamfer: their mean; bias:
    mean signed distance, positive outside; f1 at `CLOSE`; normals: mean |cosine| of the normals of
    nearest points, both ways.
    """

    accuracy: float
    completeness: float
    chamfer: float
    bias: float
    f1: float
    normals: float


def score(vertices: Array, faces: Faces, scene: LabScene) -> Score:
    """Compare a mesh with the scene's truth."""
    found, found_normal = _sample(vertices, faces, 0)
    true, true_normal = _sample(scene.vertices, scene.faces, 1)
    renderer = MeshRenderer(scene.vertices, scene.faces)
    hidden = unseen_points(true, true_normal, renderer, scene.views)
    true, true_normal = true[~hidden], true_normal[~hidden]
    near, at, normal = _nearest(scene.vertices, scene.faces, found)
    hidden = unseen_points(at, normal, renderer, scene.views)
    near, normal, found_normal = near[~hidden], normal[~hidden], found_normal[~hidden]
    back, _, back_normal = _nearest(vertices, faces, true)
    accuracy, completeness = float(np.abs(near).mean()), float(np.abs(back).mean())
    precision, recall = float((np.abs(near) < CLOSE).mean()), float((np.abs(back) < CLOSE).mean())
    cosine = [
        float(np.abs(np.einsum("nk,nk->n", a, b)).mean())
        for a, b in ((found_normal, normal), (true_normal, back_normal))
    ]
    return Score(
        accuracy,
        completeness,
        0.5 * (accuracy + completeness),
        float(near.mean()),
        2 * precision * recall / max(precision + recall, 1e-9),
        0.5 * (cosine[0] + cosine[1]),
    )


def _nearest(
    vertices: Array, faces: NDArray[np.integer], points: Array
) -> tuple[Array, Array, Array]:
    """Signed distance (n,) of points to a mesh, positive outside, nearest points and normals."""
    at, face = MeshDistance(vertices, faces).closest(points)
    corner = np.asarray(vertices, np.float64)[np.asarray(faces)[face]]
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-30)
    # Near the surface the nearest face's side decides, and no sample lies far from it.
    side = np.where(np.einsum("nk,nk->n", points - at, normal) < 0, -1.0, 1.0)
    return side * np.linalg.norm(points - at, axis=1), at, normal


def _sample(vertices: Array, faces: NDArray[np.integer], seed: int) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    corner = np.asarray(vertices, np.float64)[faces]
    cross = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    area = np.linalg.norm(cross, axis=1)
    chosen = random.choice(len(faces), SAMPLES, p=area / area.sum())
    u, v = random.uniform(size=(2, SAMPLES))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    weights = np.stack([1 - u - v, u, v], axis=1)
    points = np.einsum("nk,nkc->nc", weights, corner[chosen])
    return points, cross[chosen] / area[chosen, None]


def _figures(name: str, method: str, s: Score, judged: bool = False) -> list[Figure]:
    views = 40

    def one(what: str, value: float, unit: str, target: float | None, lower: bool = True) -> Figure:
        return Figure(
            f"{name}, {method}: {what}",
            value,
            unit,
            target if judged else None,
            "lower" if lower else "higher",
            views,
        )

    return [
        one("Chamfer", 1e3 * s.chamfer, "mm", 0.35),
        one("accuracy", 1e3 * s.accuracy, "mm", None),
        one("completeness", 1e3 * s.completeness, "mm", None),
        one("signed bias", 1e3 * s.bias, "mm", None),
        one("F1 at 2 mm", s.f1, "", 0.99, lower=False),
        one("normal consistency", s.normals, "", 0.95, lower=False),
    ]


def _truth_on_crops(scene: LabScene, shapes: Silhouettes) -> NDArray[np.float32]:
    out = np.zeros_like(shapes.distance)
    height, width = out.shape[1:]
    for i, (x, y) in enumerate(shapes.corner.astype(int)):
        part = scene.depth[i, max(y, 0) : y + height, max(x, 0) : x + width]
        out[i, max(-y, 0) :, max(-x, 0) :][: part.shape[0], : part.shape[1]] = part
    return out


def projective(scene: LabScene, shapes: Silhouettes, depth: NDArray[np.float32]) -> Fused:
    """The peer: a plain projective fusion, distance along the axis at the nearest pixel, mean."""
    low, high = bounds(scene.views, shapes)
    step = float((high - low).max()) / 120
    low = low - 3 * step
    count = np.ceil((high + 3 * step - low) / step).astype(int) + 1
    points = low + step * np.stack(np.indices(count), axis=-1).reshape(-1, 3)
    total, weight, reach = np.zeros(len(points)), np.zeros(len(points)), 4 * step
    height, width = depth.shape[1:]
    for i, (T, k) in enumerate(
        zip(scene.views.T_camera_world, scene.views.intrinsics, strict=True)
    ):
        p = points @ T[:3, :3].T + T[:3, 3]
        x = np.rint(k[0] * p[:, 0] / p[:, 2] + k[2] - shapes.corner[i, 0]).astype(int)
        y = np.rint(k[1] * p[:, 1] / p[:, 2] + k[3] - shapes.corner[i, 1]).astype(int)
        inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
        d = np.where(inside, depth[i, y.clip(0, height - 1), x.clip(0, width - 1)], 0)
        s = np.where(d > 0, p[:, 2] - d, -reach)  # a pixel without depth is free
        near = s < reach
        total += np.where(near, np.maximum(s, -reach), 0)
        weight += near
    value = np.where(weight > 0, total / np.maximum(weight, 1), reach).reshape(count)
    return mesh_of_field(value.astype(np.float32), low, step)


def trained(
    scene: LabScene,
    settings: TrainSettings,
    losses: SurfelSettings | None,
    start: Fused,
) -> Surfels:
    """Surfels of a scene that start on a mesh."""
    made = on_surface(*start, vertex_colors(*start, scene.views), 8000, 1, settings.seed)
    objective = SurfelObjective(losses or SurfelSettings())
    return train(made, scene.views, settings, objective=objective)


def fused(scene: LabScene, made: Surfels, settings: ExtractSettings) -> Fusion:
    """Depth of surfels, fused."""
    shapes = silhouettes(scene.views.mask)
    return fuse(scene.views, shapes, render_depth(made, scene.views, shapes, settings))


def scene_figures(preset: str) -> list[Figure]:
    """Floor, hull, refined hull, start and surfels of one scene, with the time of one core."""
    scene = lab_scene(preset)
    shapes = silhouettes(scene.views.mask)
    truth = _truth_on_crops(scene, shapes)
    floor = fuse(scene.views, shapes, truth).field().mesh()
    figures = _figures(preset, "true depth", score(*floor, scene))
    peer = projective(scene, shapes, truth)
    figures += _figures(preset, "true depth, plain projective fusion", score(*peer, scene))
    hull = _hull(scene)
    figures += _figures(preset, "hull", score(*hull, scene))
    refined = refine(*hull, scene.views, RefineSettings(inward=8.0)), hull[1]
    refined = smooth(*refined, 4), hull[1]
    figures += _figures(preset, "refined hull", score(*refined, scene))
    began = time.process_time()
    start = first_mesh(scene.views, SurfelMeshSettings())
    figures.append(_seconds(preset, "pictures to start", began))
    figures += _figures(preset, "start: hull, stereo, refined", score(*start, scene))
    began = time.process_time()
    made = trained(scene, surfel_training(), None, start)
    figures.append(_seconds(preset, "training of surfels", began))
    figures.append(_centres(preset, "surfels", made, scene))
    figures += outlines(preset, scene, made)
    for depth, mode in MODES:
        began = time.process_time()
        chosen = ExtractSettings(depth=depth, depth_mode=mode)  # type: ignore[arg-type]
        maps = render_depth(made, scene.views, shapes, chosen)
        fusion = fuse(scene.views, shapes, maps, chosen.fusion)
        sunk = sinkage(fusion)
        mesh = fusion.field(sunk, chosen.agree).mesh()
        chief = (depth, mode) == MODES[0]
        name = f"surfels, {depth} {mode}"
        if chief:
            figures.append(_seconds(preset, "depth to mesh", began))
            peer = projective(scene, shapes, maps)
            figures += _figures(preset, f"{name}, plain projective fusion", score(*peer, scene))
        figures += _figures(preset, f"{name}, as rendered", score(*fusion.field().mesh(), scene))
        figures += _figures(preset, f"{name}, unsunk", score(*fusion.field(sunk).mesh(), scene))
        figures += _figures(preset, f"{name}, unsunk and hull", score(*mesh, scene), judged=chief)
        figures.append(_plain(f"{preset}, {name}: sinkage, measured without truth", sunk))
    return figures


def outlines(preset: str, scene: LabScene, made: Surfels) -> list[Figure]:
    """Median distance to the true outline of that which surfels render, and of their sheet's."""
    chosen = ExtractSettings()
    fusion = fused(scene, made, chosen)
    sheet = MeshRenderer(*fusion.field().mesh())
    height, width = scene.views.mask.shape[1:]
    found: dict[str, list[Array]] = {"rendered": [], "sheet's": []}
    for i in range(0, len(scene.views), 4):
        k, T = scene.views.intrinsics[i], scene.views.T_camera_world[i]
        fine = np.r_[4 * k[:2], 4 * (k[2:] + 0.5) - 0.5]
        cover = sheet.render(fine, 4 * width, 4 * height, T).mask
        cover = cover.reshape(height, 4, width, 4).mean(axis=(1, 3))
        alpha = coverage(made, scene.views, i, chosen.filter_inv_square)
        true = signed_distance(scene.views.mask[i])
        for name, picture in (("rendered", alpha), ("sheet's", cover)):
            distance = signed_distance(np.rint(255 * picture).astype(np.uint8))
            found[name].append((distance - true)[np.abs(true) < 1])
    return [
        _plain(
            f"{preset}, surfels: {name} outline, out of the true one",
            fusion.pixel * float(np.median(np.concatenate(values))),
        )
        for name, values in found.items()
    ]


def coverage(made: Surfels, views: Views, index: int, factor: float) -> Array:
    """Rendered coverage (y, x) of a view."""
    arrays = [made.means, made.quaternions, made.scales, made.opacities]
    height, width = views.mask.shape[1:]
    with torch.no_grad():
        alpha = rasterization_2dgs(
            *(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays),
            torch.zeros(len(made), 1),
            torch.from_numpy(views.T_camera_world[index].astype(np.float32))[None],
            camera_matrix(torch.from_numpy(views.intrinsics[index].astype(np.float32)))[None],
            width,
            height,
            filter_inv_square=factor,
            surface_normals=False,
        )[1]
    return np.asarray(alpha[0, ..., 0].numpy(), np.float64)


def _hull(scene: LabScene) -> Fused:
    vertices, faces = hull_mesh(scene.views, 96, 0, None)
    return smooth(vertices, faces, 4), faces


def _plain(name: str, value: float) -> Figure:
    return Figure(name, 1e3 * value, "mm", None, "lower", 40)


def _seconds(preset: str, what: str, began: float) -> Figure:
    spent = time.process_time() - began
    return Figure(f"{preset}, {what}: time of one core", spent, "s", None, "lower", 40)


def _centres(preset: str, what: str, made: Surfels, scene: LabScene) -> Figure:
    shown = made.opacities > 0.5
    signed, _, _ = _nearest(scene.vertices, scene.faces, made.means[shown].astype(np.float64))
    name = f"{preset}, {what}: median signed distance of surfel centres"
    return replace(_plain(name, float(np.median(signed))), n=int(shown.sum()))


def _case(
    preset: str,
    what: str,
    scene: LabScene,
    start: Fused,
    settings: TrainSettings,
    losses: SurfelSettings | None = None,
) -> list[Figure]:
    """Figures of surfels trained in one way."""
    made = trained(scene, settings, losses, start)
    chosen = ExtractSettings(filter_inv_square=settings.filter_last)
    fusion = fused(scene, made, chosen)
    done = score(*fusion.field(sinkage(fusion), chosen.agree).mesh(), scene)
    return [
        _centres(preset, what, made, scene),
        *_figures(preset, f"{what}, as rendered", score(*fusion.field().mesh(), scene))[:1],
        *_figures(preset, what, done),
    ]


def filters(preset: str = "ketchup") -> list[Figure]:
    """The known trap (gsplat's constant filter), annealing, and the losses."""
    scene = lab_scene(preset)
    start = _hull(scene)
    plain = surfel_training()
    figures = []
    for what, settings, losses in (
        ("from the hull, factor 32 throughout", plain, None),
        ("from the hull, factor 2 throughout", plain.with_(filter_last=2.0), None),
        ("from the hull, factor 1 to 32 over 30 %", plain.with_(filter_until=0.3), None),
        ("from the hull, no surfel losses", plain, SurfelSettings(0.0, 0.0, 0.0, 0.0)),
    ):
        figures += _case(preset, what, scene, start, settings, losses)
    return figures


def starts(preset: str = "bowl") -> list[Figure]:
    """What surfels of a hollow object make of each start."""
    scene = lab_scene(preset)
    hull = _hull(scene)
    refined = smooth(refine(*hull, scene.views, RefineSettings(inward=14.0)), hull[1], 4), hull[1]
    stereo = first_mesh(scene.views, SurfelMeshSettings(refine=None))
    figures = _figures(preset, "start: hull, stereo", score(*stereo, scene))
    for what, start in (("hull", hull), ("refined hull", refined), ("stereo", stereo)):
        figures += _case(preset, f"from the {what}", scene, start, surfel_training())
    return figures


def sets(preset: str = "ketchup", iterations: int = 600) -> list[Figure]:
    """Two sets against one: unseen PSNR of what is drawn, Chamfer of the mesh.

    One set for both is trained once with the settings for shape, once with those for appearance.
    Appearance of its own is trained once with the filter of a pixel and once with that of viewers.
    """
    scene = lab_scene(preset)
    start = first_mesh(scene.views, SurfelMeshSettings())
    colors = vertex_colors(*start, scene.views)
    flat = on_surface(*start, colors, 8000, 1, 0)
    solid = gaussians_on_surface(*start, colors, 8000, 1, 0)
    shape, look = surfel_training(iterations=iterations), TrainSettings(iterations=iterations)
    losses = SurfelObjective()
    sharp = look.with_(low_pass=PIXEL)
    disjoint = train_sets(solid, flat, scene.views, sharp, losses, "disjoint", shape)
    blurred = train(solid, scene.views, look)
    psnr = float(np.mean(psnr_white(blurred, scene.unseen)))
    name = f"{preset}, disjoint sets, viewers' filter, {iterations} steps each"
    figures = [Figure(f"{name}: unseen PSNR, white", psnr, "dB", None, "higher", len(scene.unseen))]
    for what, low_pass, made in (
        ("disjoint", PIXEL, disjoint),
        (
            "joint, trained as shape",
            PLAIN,
            train_sets(solid, flat, scene.views, shape, losses, "joint"),
        ),
        (
            "joint, trained as look",
            PLAIN,
            train_sets(solid, flat, scene.views, look, losses, "joint"),
        ),
    ):
        psnr = float(np.mean(psnr_white(made.appearance, scene.unseen, low_pass=low_pass)))
        name = f"{preset}, {what} sets, {iterations} steps each"
        figures.append(
            Figure(f"{name}: unseen PSNR, white", psnr, "dB", None, "higher", len(scene.unseen))
        )
        chosen = ExtractSettings()
        fusion = fused(scene, made.shape, chosen)
        mesh = fusion.field(sinkage(fusion), chosen.agree).mesh()
        figures += _figures(preset, name[len(preset) + 2 :], score(*mesh, scene))
    return figures
