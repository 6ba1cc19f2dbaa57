"""The fused Adam against the algorithm, its state, and its moments when Gaussians come and go."""

import numpy as np
import pytest
import torch
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat.adam import Adam

SHAPES = {"means": (523, 3), "opacities": (523,), "sh": (523, 9, 3), "few": (2, 3)}
STEPS = {"means": 1e-3, "opacities": 3e-2, "sh": 6e-3, "few": 0.1}


def parameters(seed: int = 0) -> dict[str, Tensor]:
    """Named tensors of lengths that are no multiple of a vector."""
    g = torch.Generator().manual_seed(seed)
    return {k: torch.randn(s, generator=g).requires_grad_() for k, s in SHAPES.items()}


def gradients(values: dict[str, Tensor], seed: int) -> None:
    """Set gradients over many orders of magnitude, some of them zero."""
    g = torch.Generator().manual_seed(seed)
    for value in values.values():
        size = 10 ** (4 * torch.rand(value.shape, generator=g) - 4)
        value.grad = size * torch.randn(value.shape, generator=g).relu()


def run(adam: Adam, values: dict[str, Tensor], seeds: range) -> list[Tensor]:
    """Some steps; the values after them."""
    for seed in seeds:
        gradients(values, seed)
        adam.step(values, STEPS)
    return [v.detach().clone() for v in values.values()]


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("b2", [0.99, 0.999])
def test_equals_the_algorithm(monkeypatch: pytest.MonkeyPatch, native: str, b2: float) -> None:
    """Fifty steps are those of Kingma and Ba's algorithm 1 in float64, with step sizes by name."""
    monkeypatch.setenv("TWINLOOP_NATIVE", native)
    ours = parameters()
    exact = {k: v.detach().double().numpy() for k, v in ours.items()}
    first, second = ({k: np.zeros(s) for k, s in SHAPES.items()} for _ in range(2))
    adam = Adam(ours, betas=(0.9, b2))
    for seed in range(50):
        gradients(ours, seed)
        t = seed + 1
        for name, value in exact.items():
            gradient = ours[name].grad
            assert gradient is not None
            g = gradient.double().numpy()
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = b2 * second[name] + (1 - b2) * g * g
            root = np.sqrt(second[name] / (1 - b2**t))
            value -= STEPS[name] * first[name] / (1 - 0.9**t) / (root + 1e-15)
        adam.step(ours, STEPS)
    for name, value in exact.items():
        np.testing.assert_allclose(ours[name].detach().numpy(), value, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("bases", [1, 4, 9, 16])
def test_harmonics_follow_slower(monkeypatch: pytest.MonkeyPatch, native: str, bases: int) -> None:
    """With `rest` the first coefficient moves as without, the others by the factor, in all rows."""
    monkeypatch.setenv("TWINLOOP_NATIVE", native)
    g = torch.Generator().manual_seed(1)
    gradient = torch.randn(401, bases, 3, generator=g)
    moved = []
    for rest in (None, {"sh": 0.25}):
        value = torch.zeros(401, bases, 3, requires_grad=True)
        value.grad = gradient
        Adam({"sh": value}, rest=rest).step({"sh": value}, {"sh": 1.0})
        moved.append(value.detach())
    torch.testing.assert_close(moved[1][:, 0], moved[0][:, 0], rtol=0, atol=0)
    torch.testing.assert_close(moved[1][:, 1:], 0.25 * moved[0][:, 1:])
    torch.testing.assert_close(moved[0], -gradient.sign(), rtol=1e-5, atol=1e-6)  # first step


def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that is cut over one, two and five workers ends with the same bits."""
    ends = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("TWINLOOP_THREADS", threads)
        g = torch.Generator().manual_seed(2)
        value = torch.randn(7001, 9, 3, generator=g).requires_grad_()
        adam = Adam({"sh": value}, rest={"sh": 0.25})
        for _ in range(3):
            value.grad = torch.randn(value.shape, generator=g)
            adam.step({"sh": value}, {"sh": 0.01})
        ends.append(value.detach())
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def test_continues_bit_by_bit() -> None:
    """Four steps, state, four steps in a new optimiser: the same bits as eight steps."""
    whole, values = parameters(), parameters()
    expected = run(Adam(whole), whole, range(8))
    first = Adam(values)
    run(first, values, range(4))
    state = {k: v.copy() for k, v in first.state().items()}
    run(first, parameters(), range(3))  # the state is a copy: this changes nothing in it
    second = Adam(parameters())
    second.restore(state)
    for a, b in zip(run(second, values, range(4, 8)), expected, strict=True):
        assert torch.equal(a, b)


def test_moments_go_along_when_gaussians_are_dropped_and_added() -> None:
    """Rows that stay go on as if nothing had happened; new rows start from zero."""
    values = parameters()
    adam = Adam(values)
    run(adam, values, range(3))
    keep = torch.arange(523) % 3 != 1
    names = ["means", "opacities", "sh"]
    before = {k: adam.first[k].clone() for k in names}
    adam.keep_and_append(keep, 40, names)
    for name in names:
        assert torch.equal(adam.first[name][:-40], before[name][keep])
        assert float(adam.first[name][-40:].abs().max()) == 0
        assert adam.second[name].shape == adam.first[name].shape
    assert adam.first["few"].shape == (2, 3)
    with pytest.raises(InputError, match=r"means has shape.*keep_and_append"):
        adam.step(values, STEPS)
    other = Adam(parameters())
    other.restore(adam.state())
    assert all(torch.equal(other.second[k], adam.second[k]) for k in SHAPES)
    adam.forget(torch.tensor([2, 5]), names)
    assert float(adam.second["sh"][5].abs().max()) == 0
    assert float(adam.second["sh"][4].abs().max()) > 0
    adam.forget(names=["means"])
    assert float(adam.second["means"].abs().max()) == 0
    assert float(adam.second["few"].abs().max()) > 0


def test_what_has_no_gradient_stays() -> None:
    """Neither the value nor its moments change."""
    values = parameters()
    adam = Adam(values)
    gradients(values, 0)
    before = values["sh"].detach().clone()
    values["sh"].grad = None
    adam.step(values, STEPS)
    assert torch.equal(values["sh"], before)
    assert float(adam.second["sh"].abs().max()) == 0
    assert float(adam.second["means"].abs().max()) > 0


def test_faults_are_named() -> None:
    """Types, settings and damaged states are refused by name."""
    with pytest.raises(InputError, match=r"x is torch\.float64"):
        Adam({"x": torch.zeros(3, dtype=torch.float64)})
    with pytest.raises(InputError, match="rest names 'y'"):
        Adam({"x": torch.zeros(3)}, rest={"y": 0.1})
    with pytest.raises(InputError, match="betas"):
        Adam({"x": torch.zeros(3)}, betas=(0.9, 1.0))
    adam = Adam(parameters())
    state = adam.state()
    for name, damage in {
        "first/sh": np.zeros((523, 4, 3), np.float32),
        "second/means": np.full((523, 3), -1, np.float32),
        "first/opacities": np.full(523, np.nan, np.float32),
        "first/means": np.zeros((5, 3), np.float32),
        "second/few": np.zeros((2, 3)),
    }.items():
        with pytest.raises(InputError, match=name if name != "first/means" else "means"):
            adam.restore({**state, name: damage})
    with pytest.raises(InputError, match="count"):
        adam.restore({**state, "count": np.array(1.5)})
    with pytest.raises(InputError, match="missing"):
        adam.restore({"count": state["count"]})
