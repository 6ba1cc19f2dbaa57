"""Shape from surfels on clean lab scenes, against the true mesh: figures of meshes and biases.

All of one scene: what true depth would give (the floor of the fusion), the hull, the hull moved to
photometric agreement, and the surfels' mesh by depth mode, with and without the measured sinkage.
Published figures on DTU (2DGS 0.80, GOF 0.74, PGSR 0.53 mm) are means over scans of 1600 x 1200
pictures, masked by observed points, trained on a GPU: not comparable with 200 x 200 pictures here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import Figure
from benchmarks.splat_scenes import LabScene, lab_scene
from twinloop.geometry.distance import MeshDistance
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.color import vertex_colors
from twinloop.splat.extract import ExtractSettings, render_depth, sinkage
from twinloop.splat.hull import Silhouettes, hull_mesh, silhouettes
from twinloop.splat.inferred import unseen_points
from twinloop.splat.refine import RefineSettings, refine
from twinloop.splat.surface import Faces, smooth
from twinloop.splat.surfel_losses import SurfelObjective, SurfelSettings
from twinloop.splat.surfel_mesh import surfel_training
from twinloop.splat.surfels import Surfels, on_surface
from twinloop.splat.train import train
from twinloop.splat.train_settings import TrainSettings
from twinloop.splat.tsdf import fuse

Array = NDArray[np.float64]
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


def floor(preset: str) -> list[Figure]:
    """The mesh that true depth gives: what fusion and marching cubes lose at these pictures."""
    scene = lab_scene(preset)
    shapes = silhouettes(scene.views.mask)
    fusion = fuse(scene.views, shapes, _truth_on_crops(scene, shapes))
    return _figures(preset, "true depth", score(*fusion.field().mesh(), scene))


def hulls(preset: str) -> list[Figure]:
    """The hull alone, and the hull moved to photometric agreement."""
    scene = lab_scene(preset)
    vertices, faces = hull_mesh(scene.views, 96, 0, None)
    vertices = smooth(vertices, faces, 4)
    moved = refine(vertices, faces, scene.views, RefineSettings(inward=8.0))
    return [
        *_figures(preset, "hull", score(vertices, faces, scene)),
        *_figures(preset, "refined hull", score(smooth(moved, faces, 4), faces, scene)),
    ]


def trained(
    scene: LabScene,
    settings: TrainSettings,
    losses: SurfelSettings | None = None,
    start: tuple[Array, Faces] | None = None,
) -> Surfels:
    """Surfels of a scene, from its hull or another start."""
    if start is None:
        vertices, faces = hull_mesh(scene.views, 96, 0, None)
        start = smooth(vertices, faces, 4), faces
    made = on_surface(*start, vertex_colors(*start, scene.views), 8000, 1, settings.seed)
    objective = SurfelObjective(losses or SurfelSettings())
    return train(made, scene.views, settings, objective=objective)


def surfels(preset: str) -> list[Figure]:
    """The surfels' mesh by depth mode, before and after the measured sinkage is taken away."""
    scene = lab_scene(preset)
    began = time.process_time()
    made = trained(scene, surfel_training())
    figures = [
        Figure(
            f"{preset}, hull and surfels: time of one core",
            time.process_time() - began,
            "s",
            None,
            "lower",
            40,
        ),
        _centres(preset, "factor 32 from the start", made, scene),
    ]
    shapes = silhouettes(scene.views.mask)
    for depth, mode in MODES:
        began = time.process_time()
        chosen = ExtractSettings(depth=depth, depth_mode=mode)  # type: ignore[arg-type]
        maps = render_depth(made, scene.views, shapes, chosen)
        fusion = fuse(scene.views, shapes, maps, chosen.fusion)
        raw = score(*fusion.field().mesh(), scene)
        figures += _figures(preset, f"surfels, {depth} {mode} as rendered", raw)
        sunk = sinkage(fusion)
        plain = score(*fusion.field(sunk).mesh(), scene)
        figures += _figures(preset, f"surfels, {depth} {mode}, unsunk", plain)
        mesh = fusion.field(sunk, chosen.agree).mesh()
        spent = time.process_time() - began
        chief = (depth, mode) == MODES[0]
        figures += _figures(
            preset, f"surfels, {depth} {mode}, unsunk and hull", score(*mesh, scene), judged=chief
        )
        figures.append(
            Figure(
                f"{preset}, {depth} {mode}: sinkage measured without truth",
                1e3 * sunk,
                "mm",
                None,
                "lower",
                40,
            )
        )
        if chief:
            figures.append(
                Figure(f"{preset}, depth to mesh: time of one core", spent, "s", None, "lower", 40)
            )
    return figures


def _centres(preset: str, what: str, made: Surfels, scene: LabScene) -> Figure:
    shown = made.opacities > 0.5
    signed, _, _ = _nearest(scene.vertices, scene.faces, made.means[shown].astype(np.float64))
    return Figure(
        f"{preset}, {what}: median signed distance of surfel centres",
        1e3 * float(np.median(signed)),
        "mm",
        None,
        "higher",
        int(shown.sum()),
    )


def ablations(preset: str = "ketchup") -> list[Figure]:
    """The known trap (gsplat's constant filter), annealing, and the refined hull as a start."""
    scene = lab_scene(preset)
    shapes = silhouettes(scene.views.mask)
    vertices, faces = hull_mesh(scene.views, 96, 0, None)
    vertices = smooth(vertices, faces, 4)
    moved = smooth(refine(vertices, faces, scene.views, RefineSettings(inward=8.0)), faces, 4)
    plain = surfel_training()
    cases: list[tuple[str, TrainSettings, SurfelSettings, tuple[Array, Faces] | None]] = [
        ("factor 2 throughout", plain.with_(filter_last=2.0), SurfelSettings(), None),
        ("factor 1 to 32 over 30 %", plain.with_(filter_until=0.3), SurfelSettings(), None),
        ("no surfel losses", plain, SurfelSettings(0.0, 0.0, 0.0, 0.0), None),
        ("start on the refined hull", plain, SurfelSettings(), (moved, faces)),
    ]
    figures = []
    for what, settings, losses, start in cases:
        made = trained(scene, settings, losses, start)
        figures.append(_centres(preset, what, made, scene))
        chosen = ExtractSettings(filter_inv_square=settings.filter_last)
        fusion = fuse(scene.views, shapes, render_depth(made, scene.views, shapes, chosen))
        raw = score(*fusion.field().mesh(), scene)
        done = score(*fusion.field(sinkage(fusion), chosen.agree).mesh(), scene)
        figures += _figures(preset, f"{what}, as rendered", raw)[:1]
        figures += _figures(preset, what, done)
    return figures
