"""Values of a real object known from elsewhere: ``datasets/<object>/truth/reference.yaml``."""

from __future__ import annotations

import math
from pathlib import Path

from pipelines.graph import read_yaml
from pipelines.suggest import unknown
from twinloop.errors import InputError

UNITS = {
    "mass": "kg",
    "friction": "1",
    **dict.fromkeys(("com_x", "com_y", "com_z"), "m"),
    **dict.fromkeys(
        ("inertia_xx", "inertia_yy", "inertia_zz", "inertia_xy", "inertia_xz", "inertia_yz"),
        "kg m^2",
    ),
}
"""Physical names that ``identify`` gives, each with the unit of its reference."""

REFERENCE = """# What is known of the object from elsewhere (a scale, a data sheet), in SI units.
# Only `evaluate` reads it. Take the # away from a line to give its value.
# mass: 0.365  # kg, kitchen scale
# friction: 0.3  # 1, tilted table
"""

LAB_REFERENCE = """# A lab object: its truth is truth/lab, made by stage `lab`.
# Only `evaluate` reads it.
{}
"""


def reference_text(path: Path) -> str:
    """Text of a file of reference values, checked: physical names to numbers in SI.

    Raises:
        InputError: No YAML mapping, a name that is not known, or a value that is no number.
    """
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise InputError(
            f"--reference {path}: expected a mapping of names to numbers in SI units, "
            f"for example `mass: 0.365`, got {content!r:.80}."
        )
    for name, value in content.items():
        if name not in UNITS:
            known = unknown("physical value", str(name), UNITS)
            raise InputError(f"--reference {path}: {known} All: {', '.join(UNITS)}.")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise InputError(
                f"--reference {path}: {name} is {value!r}, expected a number in "
                f"{UNITS[name]} (write 1.0e-5, not 1e-5)."
            )
    return path.read_text(encoding="utf-8")
