"""Tone mapping against the formulas of the recommendations, written out once more, slowly."""

from __future__ import annotations

import math

import av
import numpy as np
import pytest

from twinloop.capture import hdr


def hlg_light(rgb: list[float]) -> list[float]:
    """BT.2100 table 5, one colour: inverse OETF, OOTF with gamma 1.2 at 1000 cd/m2."""
    a = 0.17883277
    b, c = 1 - 4 * a, 0.5 - a * math.log(4 * a)
    scene = [e * e / 3 if e <= 0.5 else (math.exp((e - c) / a) + b) / 12 for e in rgb]
    luminance = 0.2627 * scene[0] + 0.6780 * scene[1] + 0.0593 * scene[2]
    return [1000 * luminance**0.2 * s if luminance > 0 else 0.0 for s in scene]


def pq(signal: float) -> float:
    """BT.2100 table 4, one value: signal to cd/m2."""
    root = signal ** (1 / 78.84375)
    return 10000 * (max(root - 0.8359375, 0) / (18.8515625 - 18.6875 * root)) ** (
        1 / 0.1593017578125
    )


def inverse_pq(light: float) -> float:
    """The signal of a light, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if pq(middle) < light else (low, middle)
    return (low + high) / 2


def compressed(light: float) -> float:
    """EETF of BT.2390-11 section 5.4.1 without lifted black: 1000 cd/m2 to 203 cd/m2."""
    top = inverse_pq(1000)
    e = inverse_pq(min(light, 1000)) / top
    most = inverse_pq(203) / top
    knee = 1.5 * most - 0.5
    if e >= knee:
        t = (e - knee) / (1 - knee)
        e = (
            (2 * t**3 - 3 * t**2 + 1) * knee
            + (t**3 - 2 * t**2 + t) * (1 - knee)
            + (-2 * t**3 + 3 * t**2) * most
        )
    return pq(e * top)


def reference(signal: list[float], transfer: int) -> list[float]:
    """The sRGB levels, 0..255, of one colour."""
    light = hlg_light(signal) if transfer == hdr.HLG else [pq(s) for s in signal]
    brightest = max(light)
    if brightest <= 0:
        return [0.0, 0.0, 0.0]
    scale = compressed(brightest) / brightest / 203
    r, g, b = (v * scale for v in light)
    # Report ITU-R BT.2407 section 2: linear BT.2020 to BT.709, then clipped.
    out = [
        1.6605 * r - 0.5876 * g - 0.0728 * b,
        -0.1246 * r + 1.1329 * g - 0.0083 * b,
        -0.0182 * r - 0.1006 * g + 1.1187 * b,
    ]
    levels = []
    for value in out:
        x = min(max(value, 0.0), 1.0)
        levels.append(255 * (12.92 * x if x <= 0.0031308 else 1.055 * x ** (1 / 2.4) - 0.055))
    return levels


def test_known_points() -> None:
    """HDR reference white (BT.2408): 75 % of HLG and 58 % of PQ are 203 cd/m2; PQ is invertible."""
    white = np.full((1, 3), 0.75)
    assert abs(float(hdr.hlg_to_light(white)[0, 0]) - 203) < 1
    assert abs(float(hdr.pq_to_light(np.array(0.58))) - 203) < 3
    assert abs(float(hdr.light_to_pq(np.array(100.0))) - 0.508) < 1e-3
    light = np.geomspace(0.01, 10000, 50)
    np.testing.assert_allclose(hdr.pq_to_light(hdr.light_to_pq(light)), light, rtol=1e-9)


def test_highlights_are_compressed_and_order_kept() -> None:
    """Dark light stays as it is, 1000 cd/m2 becomes 203, and brighter stays brighter."""
    light = np.linspace(0, 1000, 500)
    out = hdr.compress(light)
    np.testing.assert_allclose(out[light < 80], light[light < 80], atol=1e-6)
    assert (np.diff(out) > 0).all()
    assert abs(out[-1] - 203) < 1e-6


@pytest.mark.parametrize("transfer", [hdr.HLG, hdr.PQ])
def test_formulas_agree_with_the_slow_reference(transfer: int) -> None:
    """Colours one at a time and all at once: equal to a hundredth of a level."""
    signal = np.random.default_rng(0).uniform(0, 1, (200, 3))
    fast = 255 * hdr.tone_map(signal, transfer)
    slow = np.array([reference(list(map(float, s)), transfer) for s in signal])
    np.testing.assert_allclose(fast, slow, atol=0.01)


@pytest.mark.parametrize("transfer", [hdr.HLG, hdr.PQ])
def test_table_agrees_with_the_formulas(transfer: int) -> None:
    """Between the nodes: half a level on average, 2 for 99 % of all colours and all neutral ones.

    The rest lies where a saturated colour leaves sRGB, which bends the table.
    """
    signal = np.random.default_rng(1).uniform(0, 1, (96, 96, 3))
    signal[:32] = signal[:32, :, :1]
    stored = np.round(signal * 65535).astype(np.uint16)
    mapper = hdr.ToneMapper(transfer)
    wanted = 255 * hdr.tone_map(signal, transfer)
    for _ in range(2):
        got = mapper.rgb(av.VideoFrame.from_ndarray(stored, format="rgb48le"))
        error = np.abs(got - wanted)
        assert error.mean() < 0.5
        assert np.percentile(error, 99) <= 2
        assert error[:32].max() <= 2


def test_size_may_change_between_videos() -> None:
    """A mapper takes frames of another size after the first."""
    mapper = hdr.ToneMapper(hdr.HLG)
    for width in (32, 64):
        frame = av.VideoFrame.from_ndarray(np.zeros((16, width, 3), np.uint16), format="rgb48le")
        assert mapper.rgb(frame).shape == (16, width, 3)


@pytest.mark.parametrize("name", ["yuv420p", "yuv420p10le", "yuv422p10le", "p010le", "yuv444p12le"])
def test_grey_of_stored_kinds(name: str) -> None:
    """Luma of 8, 10 and 12 bits, planar or not, gives the same grey: a middle grey of HLG."""
    bits = av.VideoFormat(name).components[0].bits
    frame = av.VideoFrame(32, 16, "yuv420p")
    for plane, value in zip(frame.planes, (16 + 219 // 2, 128, 128), strict=True):
        plane.update(bytes([value]) * plane.buffer_size)
    frame.color_range, frame.colorspace = 1, hdr.BT2020
    stored = frame.reformat(format=name)
    stored.color_range, stored.colorspace = 1, hdr.BT2020
    grey = hdr.ToneMapper(hdr.HLG).grey(stored)
    assert grey.shape == (16, 32)
    wanted = 255 * hdr.tone_map(np.full(3, (219 // 2) / 219), hdr.HLG)[0]
    assert np.abs(grey - wanted).max() <= (1.5 if bits == 8 else 2.5)
