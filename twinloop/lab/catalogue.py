"""The lab's shapes by name, each built to the bounding box that a recipe asks for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twinloop.lab.shapes import Array, Shape, extrude, grounded, revolve, rounded_box, studded_brick

Size = tuple[float, float, float]


def letter_u(size: Size) -> Shape:
    """A block letter U that stands on its bottom, its plate in the x-z plane, opening upwards."""
    w, depth, h = size
    t = 0.28 * w  # stroke
    c = 0.5 * t  # cut corners
    x = 0.5 * w
    points = np.array(
        [
            (-x + c, 0.0),  # 0
            (x - c, 0.0),  # 1
            (x, c),  # 2
            (x, t),  # 3
            (x, h),  # 4
            (x - t, h),  # 5
            (x - t, t),  # 6
            (-x + t, t),  # 7
            (-x + t, h),  # 8
            (-x, h),  # 9
            (-x, t),  # 10
            (-x, c),  # 11
        ]
    )
    cells = [(0, 1, 2, 3, 6, 7, 10, 11), (3, 4, 5, 6), (7, 8, 9, 10)]
    pieces = [(0, 1, 2, 3, 10, 11), (3, 4, 5, 6), (7, 8, 9, 10)]
    return extrude(points, cells, depth, pieces)


def letter_a(size: Size) -> Shape:
    """A block letter A that stands on its two feet, its plate in the x-z plane."""
    w, depth, h = size
    foot, top = 0.27 * w, 0.17 * w  # width of a foot, half width of the top
    x, tip = 0.5 * w, 0.76 * h
    low, high = 0.22 * h, 0.40 * h  # crossbar

    def inner(z: float) -> float:
        """Half width of the inside at height z: straight from the feet to the tip of the hole."""
        return (x - foot) * (1.0 - z / tip)

    points = np.array(
        [
            (-x, 0.0),  # 0
            (-x + foot, 0.0),  # 1
            (-inner(low), low),  # 2
            (inner(low), low),  # 3
            (x - foot, 0.0),  # 4
            (x, 0.0),  # 5
            (top, h),  # 6
            (-top, h),  # 7
            (-inner(high), high),  # 8
            (inner(high), high),  # 9
            (0.0, tip),  # 10
        ]
    )
    cells = [(0, 1, 2, 8, 10, 7), (5, 6, 10, 9, 3, 4), (2, 3, 9, 8), (10, 6, 7)]
    pieces = [(0, 1, 10, 7), (4, 5, 6, 10), (2, 3, 9, 8), (10, 6, 7)]
    return extrude(points, cells, depth, pieces)


def cylinder(size: Size) -> Shape:
    """A tin: a cylinder with small chamfers."""
    r, h = 0.5 * size[0], size[2]
    c = 0.04 * r
    profile = [(r - c, 0.0), (r, c), (r, h - c), (r - c, h)]
    return revolve(profile, size, segments=40)


def bottle(size: Size) -> Shape:
    """A squeeze bottle standing on its base: oval body, shoulder, neck and cap."""
    profile = [
        *((0.86, 0.0), (0.97, 0.03), (1.0, 0.12), (1.0, 0.52), (0.93, 0.66)),
        *((0.78, 0.75), (0.5, 0.82), (0.36, 0.85), (0.36, 0.98), (0.3, 1.0)),
    ]
    return revolve(profile, size, segments=32, breaks=(7,))


def jar(size: Size) -> Shape:
    """A jar: body, short shoulder, wide lid."""
    profile = [
        *((0.88, 0.0), (1.0, 0.06), (1.0, 0.62), (0.9, 0.76), (0.8, 0.79)),
        *((0.86, 0.8), (0.86, 0.98), (0.82, 1.0)),
    ]
    return revolve(profile, size, segments=32, breaks=(4,))


def spray(size: Size) -> Shape:
    """A spray can: body, domed shoulder, cap."""
    profile = [
        *((0.94, 0.0), (1.0, 0.02), (1.0, 0.72), (0.92, 0.77), (0.7, 0.813)),
        *((0.7, 0.97), (0.62, 1.0)),
    ]
    return revolve(profile, size, segments=32, breaks=(4,))


def bulb(size: Size) -> Shape:
    """A light bulb that stands on its cap."""
    profile = [
        *((0.34, 0.0), (0.42, 0.03), (0.42, 0.22), (0.48, 0.27), (0.72, 0.42)),
        *((0.9, 0.54), (1.0, 0.68), (0.94, 0.82), (0.74, 0.93), (0.4, 0.985), (0.12, 1.0)),
    ]
    return revolve(profile, size, segments=28, breaks=(2, 3))


def screwdriver(size: Size) -> Shape:
    """A screwdriver that lies on a flat of its six-sided handle, its shaft along +x."""
    length, width, _ = size
    r = 0.5 * width
    profile = [
        *((0.78 * r, 0.0), (r, 0.04 * length), (r, 0.40 * length), (0.72 * r, 0.46 * length)),
        *((0.19 * r, 0.47 * length), (0.19 * r, 0.97 * length), (0.14 * r, length)),
    ]
    upright = revolve(profile, None, segments=6, breaks=(4,), phase=0.5)
    return _laid_down(upright, size)


def _laid_down(shape: Shape, size: Size) -> Shape:
    """The shape with its z axis turned to x, stretched to the bounding box ``size``."""

    def turned(v: Array) -> Array:
        return np.stack([v[:, 2], v[:, 1], -v[:, 0]], axis=-1)

    vertices = turned(shape.vertices)
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    scale = np.asarray(size) / (high - low)
    shift = np.array([*(0.5 * (low + high))[:2], low[2]])
    parts = [((turned(v) - shift) * scale, f) for v, f in shape.parts]
    return Shape(grounded(vertices) * scale, shape.faces, parts)


BUILDERS: dict[str, Callable[[Size], Shape]] = {
    "rounded_box": lambda size: rounded_box(size, 0.12 * min(size)),
    "cylinder": cylinder,
    "bottle": bottle,
    "jar": jar,
    "spray": spray,
    "bulb": bulb,
    "letter_a": letter_a,
    "letter_u": letter_u,
    "lego": studded_brick,
    "screwdriver": screwdriver,
}
