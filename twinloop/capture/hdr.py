"""Tone mapping of HLG and PQ video (ITU-R BT.2100) to sRGB by a look-up table.

Signal -> light of a display of 1000 cd/m2 -> compression of highlights with the curve of Report
ITU-R BT.2390 (section 5.4.1), such that the white of sRGB is the 203 cd/m2 that Report ITU-R
BT.2408 gives diffuse white -> primaries of BT.709 (Recommendation ITU-R BT.2087, inverted) ->
sRGB.  The curve acts on the largest of R, G, B and scales all three, so the chromaticity stays.
"""

from __future__ import annotations

from typing import Any

import av
import cv2
import numpy as np
from av.filter import Graph
from numpy.typing import NDArray

Array = NDArray[np.float64]

PQ, HLG = 16, 18
"""FFmpeg's numbers (ITU-T H.273) of the transfer functions."""
NAMES = {PQ: "PQ", HLG: "HLG"}
PEAK = 1000.0
"""Brightest light of the display that HLG and PQ are rendered for, cd/m2."""
WHITE = 203.0
"""Light that becomes the white of sRGB, cd/m2 (HDR reference white of BT.2408)."""
LEVEL = 8
"""Size of the table: LEVEL**2 nodes along each of R, G, B."""
BT2020_TO_709 = np.array(
    [[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]]
)
"""Linear R, G, B of BT.2020 to BT.709, both with white D65."""
LUMA_2020 = np.array([0.2627, 0.6780, 0.0593])
BT2020 = 9
"""FFmpeg's number of the matrix of BT.2020 with non-constant luminance."""


def pq_to_light(signal: Array) -> Array:
    """EOTF of PQ: signal 0..1 to light, cd/m2 (BT.2100 table 4)."""
    m1, m2 = 2610 / 16384, 2523 / 4096 * 128
    c1, c2, c3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
    root = np.power(np.clip(signal, 0, 1), 1 / m2)
    return np.asarray(10000 * np.power(np.maximum(root - c1, 0) / (c2 - c3 * root), 1 / m1))


def light_to_pq(light: Array) -> Array:
    """Inverse EOTF of PQ: light, cd/m2, to signal 0..1 (BT.2100 table 4)."""
    m1, m2 = 2610 / 16384, 2523 / 4096 * 128
    c1, c2, c3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
    power = np.power(np.clip(light, 0, 10000) / 10000, m1)
    return np.asarray(np.power((c1 + c2 * power) / (1 + c3 * power), m2))


def hlg_to_light(signal: Array) -> Array:
    """Signal (..., 3) of HLG to light, cd/m2, on a display of ``PEAK`` (BT.2100 table 5).

    Inverse OETF, then the OOTF with the gamma of 1.2 that holds for 1000 cd/m2.
    """
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    e = np.clip(signal, 0, 1)
    scene = np.where(e <= 0.5, e**2 / 3, (np.exp((e - c) / a) + b) / 12)
    luminance = scene @ LUMA_2020
    return np.asarray(PEAK * np.power(np.maximum(luminance, 1e-12), 0.2)[..., None] * scene)


def compress(light: Array) -> Array:
    """EETF of BT.2390: light up to ``PEAK`` to light up to ``WHITE``, cd/m2; black stays black."""
    top = light_to_pq(np.array(PEAK))
    e1 = light_to_pq(np.minimum(light, PEAK)) / top
    largest = float(light_to_pq(np.array(WHITE)) / top)
    knee = 1.5 * largest - 0.5
    t = (e1 - knee) / (1 - knee)
    # Hermite spline from the knee to the largest light.
    spline = (
        (2 * t**3 - 3 * t**2 + 1) * knee
        + (t**3 - 2 * t**2 + t) * (1 - knee)
        + (-2 * t**3 + 3 * t**2) * largest
    )
    return pq_to_light(np.where(e1 < knee, e1, spline) * top)


def tone_map(signal: Array, transfer: int) -> Array:
    """Return sRGB (..., 3), 0..1, of an HDR signal, by the formulas.

    Args:
        signal: R', G', B' (..., 3), 0..1, primaries of BT.2020.
        transfer: ``PQ`` or ``HLG``.
    """
    light = hlg_to_light(signal) if transfer == HLG else pq_to_light(signal)
    brightest = np.maximum(light.max(axis=-1, keepdims=True), 1e-9)
    linear = light * (compress(brightest) / brightest) / WHITE
    linear = np.clip(linear @ BT2020_TO_709.T, 0, 1)
    # IEC 61966-2-1
    curve = 1.055 * np.power(linear, 1 / 2.4) - 0.055
    return np.asarray(np.where(linear <= 0.0031308, 12.92 * linear, curve), np.float64)


class ToneMapper:
    """Turns the HDR frames of one video into 8-bit sRGB."""

    def __init__(self, transfer: int) -> None:
        """Take ``PQ`` or ``HLG``; tables are made when they are needed."""
        self.transfer = transfer
        self._graph: Any = None
        self._size = (0, 0)
        self._count = 0
        self._luma: dict[tuple[int, bool], NDArray[np.uint8]] = {}

    def rgb(self, frame: Any) -> NDArray[np.uint8]:
        """Picture (height, width, 3) sRGB of a decoded frame, by the three-dimensional table."""
        if frame.colorspace == 2:
            frame.colorspace = BT2020
        signal = frame.reformat(format="gbrpf32le")
        if self._size != (signal.width, signal.height):
            self._build(signal.width, signal.height)
        # The graph wants increasing stamps; it keeps no frame.
        signal.pts = self._count
        self._source.push(signal)
        if self._count == 0:
            self._table.push(None)
        self._count += 1
        mapped: Any = self._sink.pull()
        return np.asarray(mapped.to_ndarray(), np.uint8)

    def grey(self, frame: Any) -> NDArray[np.uint8]:
        """Picture (height, width): luma through the curve of neutral colours.

        Equals the grey of :meth:`rgb` for neutral colours; saturated ones differ by some levels.
        """
        name = frame.format.name
        if not name.startswith(("yuv4", "yuvj4", "gray")) or name.endswith("be"):
            frame = frame.reformat(format="yuv420p10le")
        bits = frame.format.components[0].bits
        full = frame.color_range == 2
        key = (bits, full)
        if key not in self._luma:
            self._luma[key] = _luma_table(bits, full, self.transfer)
        plane = frame.planes[0]
        kind = np.uint8 if bits == 8 else np.uint16
        stored = np.frombuffer(plane, kind).reshape(frame.height, -1)[:, : frame.width]
        return np.asarray(cv2.LUT(stored, self._luma[key][None]), np.uint8)

    def _build(self, width: int, height: int) -> None:
        graph = Graph()
        kind = "pix_fmt=gbrpf32le:time_base=1/30:colorspace=gbr:range=pc"
        self._source = graph.add("buffer", f"video_size={width}x{height}:{kind}")
        self._table = graph.add("buffer", f"video_size={LEVEL**3}x{LEVEL**3}:{kind}")
        # One table for all frames, between whose nodes is interpolated.
        lookup = graph.add("haldclut", "interp=tetrahedral:clut=first")
        eight = graph.add("format", "pix_fmts=rgb24")
        self._sink = graph.add("buffersink")
        self._source.link_to(lookup, 0, 0)
        self._table.link_to(lookup, 0, 1)
        lookup.link_to(eight)
        eight.link_to(self._sink)
        graph.configure()
        self._graph, self._size, self._count = graph, (width, height), 0
        self._table.push(_cube(self.transfer))


def _cube(transfer: int) -> Any:
    """Table of sRGB over HDR signals as the picture that FFmpeg's filter haldclut reads."""
    nodes = np.linspace(0, 1, LEVEL**2)
    blue, green, red = np.meshgrid(nodes, nodes, nodes, indexing="ij")
    mapped = tone_map(np.stack([red, green, blue], axis=-1), transfer)
    table = np.round(mapped.reshape(LEVEL**3, LEVEL**3, 3) * 65535).astype(np.uint16)
    cube = av.VideoFrame.from_ndarray(table, format="rgb48le").reformat(format="gbrpf32le")
    cube.pts = 0
    return cube


def _luma_table(bits: int, full: bool, transfer: int) -> NDArray[np.uint8]:
    """Grey level of every code of luma, (256,) or (65536,) (levels of BT.2100 table 9)."""
    code = np.arange(256 if bits == 8 else 65536, dtype=np.float64)
    unit = 2.0 ** (bits - 8)
    signal = code / (2.0**bits - 1) if full else (code / unit - 16) / 219
    neutral = np.repeat(np.clip(signal, 0, 1)[:, None], 3, axis=1)
    return np.round(255 * tone_map(neutral, transfer)[:, 1]).astype(np.uint8)
