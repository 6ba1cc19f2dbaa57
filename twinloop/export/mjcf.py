"""The twin as MJCF: visual mesh in group 2, convex collision pieces in group 3, own inertia."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np

from twinloop.export.properties import Properties

SOLREF, SOLIMP = "0.005 1", "0.95 0.99 0.0005"
"""How stiff contacts with the object are: a time constant of 5 ms, critically damped. A resting
object then lies microns deep in the table whatever its mass (MuJoCo's defaults: 0.1 mm). MuJoCo
wants the time constant to be at least two steps: raise it where a step is longer than 2.5 ms."""


def object_mjcf(name: str, parts: int, properties: Properties, rest_height: float) -> str:
    """Return MJCF of the object alone, for `<include>` or `MjSpec.attach`.

    MuJoCo takes the larger friction of a pair; ``priority`` makes the object's own value count.

    Args:
        name: Name of the object; prefixes all elements.
        parts: Number of files meshes/collision_000.obj, ...
        properties: Mass, friction, centre of mass, inertia.
        rest_height: Height of the object frame's origin above the table when it rests [m].
    """
    root = ElementTree.Element("mujoco", model=name)
    ElementTree.SubElement(root, "compiler", angle="radian", meshdir="../meshes")
    assets = ElementTree.SubElement(root, "asset")
    ElementTree.SubElement(
        assets, "mesh", name=f"{name}_visual", file="visual.obj", inertia="shell"
    )
    for index in range(parts):
        ElementTree.SubElement(
            assets, "mesh", name=f"{name}_part_{index:03d}", file=f"collision_{index:03d}.obj"
        )
    world = ElementTree.SubElement(root, "worldbody")
    body = ElementTree.SubElement(world, "body", name=name, pos=_text([0, 0, rest_height]))
    ElementTree.SubElement(body, "freejoint", name=f"{name}_free")
    i = properties.inertia
    ElementTree.SubElement(
        body,
        "inertial",
        mass=_text([properties.mass]),
        pos=_text(properties.com),
        fullinertia=_text([i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]]),
    )
    ElementTree.SubElement(
        body,
        "geom",
        name=f"{name}_visual",
        type="mesh",
        mesh=f"{name}_visual",
        group="2",
        contype="0",
        conaffinity="0",
        rgba="0.7 0.7 0.7 1",
    )
    for index in range(parts):
        ElementTree.SubElement(
            body,
            "geom",
            name=f"{name}_part_{index:03d}",
            type="mesh",
            mesh=f"{name}_part_{index:03d}",
            group="3",
            condim="4",
            priority="1",
            friction=_text([properties.friction, 0.005, 0.0001]),
            solref=SOLREF,
            solimp=SOLIMP,
        )
    return _pretty(root)


def scene_mjcf(name: str) -> str:
    """Return MJCF of a table with the object on it: `python -m mujoco.viewer --mjcf scene.xml`."""
    root = ElementTree.Element("mujoco", model=f"{name} on a table")
    ElementTree.SubElement(root, "include", file=f"{name}.xml")
    ElementTree.SubElement(root, "option", cone="elliptic", impratio="10", timestep="0.002")
    world = ElementTree.SubElement(root, "worldbody")
    ElementTree.SubElement(world, "light", pos="0 0 1.5", dir="0 0 -1", directional="true")
    ElementTree.SubElement(
        world, "geom", name="table", type="plane", size="1 1 0.05", rgba="0.8 0.8 0.75 1"
    )
    return _pretty(root)


def _text(values: object) -> str:
    return " ".join(f"{float(v):.9g}" for v in np.atleast_1d(np.asarray(values, dtype=np.float64)))


def _pretty(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"
