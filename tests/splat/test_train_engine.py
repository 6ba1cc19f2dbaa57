"""What the training engine does beside fitting: exposure, poses, schedules, refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.splat.little import DISTANCE, RADIUS, ball, little, poses, same, start
from twinloop.errors import InputError, ParamsError
from twinloop.splat.exposure import Exposure
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.model import NAMES
from twinloop.splat.pictures import crops, halved
from twinloop.splat.pose_refine import PoseRefinement, exponential
from twinloop.splat.quality import psnr_white
from twinloop.splat.start import from_masks
from twinloop.splat.train import Step, TrainSettings, scene_settings, train
from twinloop.splat.trainer import Trainer
from twinloop.splat.views import Views

SHORT = TrainSettings(iterations=60, densify_times=2, most=300, largest=1.0)


def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One, two and three threads give the same set."""
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("TWINLOOP_THREADS", threads)
        results.append(train(start(), little()[1], replace(SHORT, iterations=12)))
    assert same(results[0], results[1])
    assert same(results[0], results[2])


def test_exposure_is_found_and_means_nothing_on_average() -> None:
    """Pictures of two exposures: with compensation unseen pictures in the mean one gain 2 dB."""
    truth, views, unseen = little()
    gain = np.where(np.arange(len(views)) % 2, 0.75, 1.25)[:, None, None, None]
    dimmed = Views(
        np.rint(views.image * 0.7 * gain).astype(np.uint8),
        views.mask,
        views.intrinsics,
        views.T_camera_world,
        True,
    )
    mean = replace(unseen, image=np.rint(unseen.image * 0.7).astype(np.uint8))
    chosen = replace(SHORT, iterations=200, densify_times=0)
    without = np.mean(psnr_white(train(truth, dimmed, chosen), mean))
    trainer = Trainer(truth, dimmed, replace(chosen, exposure=True, step_exposure=3e-2))
    for i in range(chosen.iterations):
        trainer.step(i / chosen.iterations)
    assert np.mean(psnr_white(trainer.finish(), mean)) > without + 1
    assert trainer.exposure is not None
    trainer.exposure.fix_gauge()
    matrices = torch.stack([trainer.exposure.matrix(i) for i in range(len(views))])
    np.testing.assert_allclose(matrices.mean(dim=0), np.eye(3, 4), atol=1e-6)
    green = matrices[:, 1, 1] + matrices[:, 1, 3]
    assert green[1::2].max() < 1 < green[0::2].min()


def test_exposure_is_affine_in_the_straight_colour() -> None:
    """The change applies to colour, not to coverage: shown = (I + A) colour + b, times alpha."""
    exposure = Exposure(2)
    exposure.rows.values[1] = torch.linspace(-0.1, 0.12, 12)
    colour, alpha = torch.rand(4, 5, 3), torch.rand(4, 5)
    shown = exposure.apply(1, colour * alpha[..., None], alpha)
    m = exposure.matrix(1)
    expected = (colour @ m[:, :3].T + m[:, 3]) * alpha[..., None]
    np.testing.assert_allclose(shown.detach(), expected, atol=1e-6)


def test_poses_are_refined_and_the_world_stays() -> None:
    """Cameras turned by 10 mrad see the points where they should to within half of it."""
    truth, views, _ = little()
    random = np.random.default_rng(0)
    twist = np.zeros((len(views), 6))
    twist[:, 3:] = 0.01 * random.normal(size=(len(views), 3))
    twist[:, 3:] -= twist[:, 3:].mean(axis=0)
    off = exponential(torch.from_numpy(twist)).numpy()
    wrong = replace(views, T_camera_world=off @ views.T_camera_world)
    chosen = replace(
        SHORT,
        iterations=150,
        densify_times=0,
        refine_poses=True,
        step_poses=3e-3,
        step_means=1e-5,
    )
    trainer = Trainer(truth, wrong, chosen)
    for i in range(chosen.iterations):
        trainer.step(i / chosen.iterations)
    assert trainer.poses is not None
    found = trainer.poses.now.numpy()

    def error(T: np.ndarray) -> float:
        p = np.einsum("vij,nj->vni", T[:, :3, :3], truth.means) + T[:, None, :3, 3]
        true = views.T_camera_world
        q = np.einsum("vij,nj->vni", true[:, :3, :3], truth.means) + true[:, None, :3, 3]
        return float(np.abs(p[..., :2] / p[..., 2:] - q[..., :2] / q[..., 2:]).mean())

    assert error(found) < 0.5 * error(wrong.T_camera_world)
    np.testing.assert_allclose(
        found[:, :3, :3] @ found[:, :3, :3].transpose(0, 2, 1), [np.eye(3)] * len(views), atol=1e-6
    )


def test_gauge_takes_out_a_similarity_of_the_world() -> None:
    """All cameras turned, moved and scaled together come back exactly."""
    T = torch.from_numpy(poses(7))
    refinement = PoseRefinement(list(T), DISTANCE)
    world = exponential(torch.tensor([0.02, -0.01, 0.03, 0.1, -0.2, 0.05]))
    moved = T @ world
    moved[:, :3, 3] *= 1.1
    refinement.now = moved.clone()
    refinement.fix_gauge()
    np.testing.assert_allclose(refinement.now, T, atol=1e-9)


class _Flatten:
    """An objective that asks for depth and pulls the opacities down."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def keywords(self, iteration: int, progress: float) -> dict[str, Any]:
        return {"render_mode": "RGB+ED"}

    def loss(self, step: Step) -> Tensor | None:
        assert step.drawn.depth is not None
        assert step.drawn.depth.shape == step.crop.mask.shape
        self.seen.append((step.iteration, step.progress))
        return 10 * torch.sigmoid(step.model.free["opacities"]).mean()


def test_objectives_see_each_step_and_add_to_the_loss() -> None:
    """Its keywords reach the rasteriser and its loss the parameters."""
    objective = _Flatten()
    chosen = replace(SHORT, iterations=20, densify_times=0)
    plain = train(start(), little()[1], chosen)
    pulled = train(start(), little()[1], chosen, objective=objective)
    assert pulled.opacities.mean() < plain.opacities.mean() - 0.005
    assert objective.seen == [(i, i / 20) for i in range(20)]


def test_regularisers_thin_and_shrink() -> None:
    """Weights on opacity and scale lower both."""
    chosen = replace(SHORT, iterations=40, densify_times=0)
    plain = train(start(), little()[1], chosen)
    thin = train(start(), little()[1], replace(chosen, opacity_weight=1.0))
    small = train(start(), little()[1], replace(chosen, scale_weight=10.0))
    assert thin.opacities.mean() < plain.opacities.mean()
    assert small.scales.mean() < plain.scales.mean()


def test_training_ends_when_watched_pictures_get_no_better() -> None:
    """Started at the truth nothing can be gained: it ends at once and keeps the best."""
    truth, views, unseen = little()
    chosen = replace(SHORT, iterations=400, validate=2, patience=2, densify_times=0)
    seen: list[int] = []
    out = train(truth, views, chosen, watch=lambda i, _: seen.append(i))
    assert max(seen, default=0) < 400
    assert np.mean(psnr_white(out, unseen)) > 30
    with pytest.raises(InputError, match="lower `validate`"):
        train(truth, views, replace(chosen, validate=9))


def test_whole_scenes_need_no_masks() -> None:
    """Pictures without masks over black train as well, coarse to fine."""
    _, views, unseen = little()
    flat = replace(
        views,
        image=np.rint(views.image * (views.mask[..., None] / 255)).astype(np.uint8),
        mask=np.zeros_like(views.mask),
    )
    out = train(start(), flat, scene_settings(iterations=80, densify_times=1, coarse=0.5))
    assert np.mean(psnr_white(out, unseen)) > np.mean(psnr_white(start(), unseen)) + 1


def test_half_size_pictures_keep_their_place() -> None:
    """A 3D point falls on the same part of a halved picture; means weigh colour by coverage."""
    crop = crops(little()[1])[0]
    half = halved(crop)
    height, width = (n // 2 for n in crop.mask.shape)
    assert half.mask.shape == (height, width)
    point = torch.tensor([0.01, -0.02, 0.3])
    p, q = crop.K @ point, half.K @ point
    np.testing.assert_allclose(p[:2] / p[2] / 2, q[:2] / q[2], rtol=1e-6)
    cover = crop.mask[: 2 * height, : 2 * width]
    total = (crop.image[: 2 * height, : 2 * width] * cover[..., None]).sum(dim=(0, 1))
    np.testing.assert_allclose(
        (half.image * half.mask[..., None]).sum(dim=(0, 1)) * 4, total, rtol=1e-4
    )


def _broken(**changes: Any) -> Views:
    views = little()[1]
    copies = {k: v(getattr(views, k).copy()) for k, v in changes.items()}
    return replace(views, **copies)


def _put(index: tuple[Any, ...], value: float) -> Any:
    def put(values: np.ndarray) -> np.ndarray:
        values[index] = value
        return values

    return put


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"T_camera_world": _put((3, 0, 3), np.nan)}, "T_camera_world of picture 3"),
        ({"T_camera_world": _put((2, slice(3), slice(3)), 0.0)}, "picture 2.*rotation"),
        ({"intrinsics": _put((4, 0), 0.0)}, "intrinsics of picture 4.*focal"),
        ({"intrinsics": _put((4, 2), np.inf)}, "intrinsics of picture 4.*finite"),
        ({"mask": _put((), 0)}, "0 of 10 masks"),
        ({"mask": lambda m: m[:, :0]}, "mask has shape"),
        ({"T_camera_world": lambda T: np.repeat(T[:1], 10, axis=0)}, "one place"),
        ({}, "outside the masks"),
        ({"mask": _put((), 255)}, "fill the whole picture"),
    ],
)
def test_views_that_cannot_be_fitted_are_refused(changes: dict[str, Any], message: str) -> None:
    """Each fault is named with its picture; none runs into the training."""
    begin = start()
    if message.startswith("outside"):
        begin = replace(begin, means=begin.means + np.float32(0.2))
    with pytest.raises(InputError, match=message):
        train(begin, _broken(**changes), SHORT)


def test_starts_and_settings_that_make_no_sense_are_refused() -> None:
    """One picture, no Gaussians, NaN, unknown names."""
    views = little()[1]
    one = Views(views.image[:1], views.mask[:1], views.intrinsics[:1], views.T_camera_world[:1])
    with pytest.raises(InputError, match=r"1 picture.*at least 2"):
        train(start(), one, SHORT)
    none = Gaussians(*(getattr(ball(5), n)[:0] for n in NAMES))
    with pytest.raises(InputError, match="no Gaussians"):
        train(none, views, SHORT)
    bad = start()
    bad.means[7, 1] = np.nan
    with pytest.raises(InputError, match="means of Gaussian 7"):
        train(bad, views, SHORT)
    with pytest.raises(ParamsError, match="densify is 'often'"):
        TrainSettings(densify="often")  # type: ignore[arg-type]
    with pytest.raises(ParamsError, match="ssim_weight is 2"):
        TrainSettings(ssim_weight=2)


def test_units_do_not_matter() -> None:
    """A capture a thousandth as large (metres read as millimetres) gives the same pictures."""
    views = little()[1]
    T = views.T_camera_world.copy()
    T[:, :3, 3] /= 1000
    small = replace(views, T_camera_world=T)
    begin = start()
    tiny = replace(begin, means=begin.means / 1000, scales=begin.scales / 1000)
    chosen = replace(SHORT, iterations=30, densify_times=1)
    a, b = train(begin, views, chosen), train(tiny, small, chosen)
    assert abs(len(a) - len(b)) <= 0.1 * len(a)
    score = np.mean(psnr_white(a, views))
    assert np.mean(psnr_white(b, small)) == pytest.approx(score, abs=0.5)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"scales": -1.0}, "logarithms"),
        ({"opacities": 1.5}, "logits"),
        ({"opacities": -2.0}, "logits"),
        ({"sh": np.zeros((60, 5, 3), np.float32)}, "1, 4, 9 or 16 bases"),
        ({"sh": np.zeros((60, 4, 2), np.float32)}, "1, 4, 9 or 16 bases"),
    ],
)
def test_a_start_of_a_files_raw_numbers_is_refused(wrong: dict[str, Any], match: str) -> None:
    """Logarithms and logits, or colours of no degree, were clamped and trained on in silence."""
    begin = start(60)
    name, value = next(iter(wrong.items()))
    if isinstance(value, float):
        value = np.full_like(getattr(begin, name), value)
    with pytest.raises(InputError, match=match):
        train(replace(begin, **{name: value}), little()[1], TrainSettings(iterations=1))


def test_a_start_of_few_large_gaussians_is_trained() -> None:
    """Fifty cover the ball with a width of two fifths of its radius: none of them is huge."""
    _, views, _ = little()
    few = from_masks(views, 50, 1)
    assert np.median(few.scales.max(axis=1)) > 0.3 * RADIUS
    found = train(few, views, TrainSettings(iterations=60, densify_times=4))
    assert len(found) > 50


def test_the_progress_bar_says_how_good_and_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of all steps, and beside them the PSNR of training and the count."""
    said = []

    def bar(steps: Any, title: str, total: int, *, done: int, note: Any) -> Any:
        for step in steps:
            yield step
            said.append((title, total, done, note()))

    monkeypatch.setattr("twinloop.splat.train.track", bar)
    train(start(), little()[1], replace(SHORT, iterations=5, densify_times=0))
    assert len(said) == 5
    title, total, done, note = said[-1]
    assert (title, total, done) == ("train Gaussians", 5, 0)
    assert note.endswith(" dB, 150 Gaussians")
    assert 5 < float(note.split()[0]) < 60
