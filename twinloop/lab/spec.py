"""The recipe of a lab object: ``lab.yaml``, a dozen lines, checked with errors that teach.

A recipe names a shape (or a mesh file), its size, mass, filling, friction, texture, the pushes, the
noise of the sensors and one seed.  ``preset: spam`` starts from a recipe that ships with Twinloop
and changes only what is given.  The file holds the hidden truth: only the lab and the evaluation
read it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from twinloop.errors import InputError

DATA_FILES = ("presets/*.yaml",)

MESH_NAME = re.compile(r"[\w-][\w .-]*\.(obj|ply|stl|off|glb)", re.ASCII | re.IGNORECASE)
"""A file name without folders, of a format that holds its whole surface itself."""
PRESETS = Path(__file__).parent / "presets"
SHAPES = (
    "rounded_box",
    "cylinder",
    "bottle",
    "jar",
    "spray",
    "bulb",
    "letter_a",
    "letter_u",
    "lego",
    "screwdriver",
)
Vector = tuple[float, float, float]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LumpSpec(_Model):
    """A solid ball inside the object, for a mass that is not spread evenly."""

    share: Annotated[float, Field(gt=0.0, lt=1.0, description="share of the whole mass")]
    at: Annotated[
        Vector,
        Field(description="centre as fractions of the bounding box: 0 low side, 1 high side"),
    ]
    radius: Annotated[float, Field(gt=0.0, description="m")] = 0.01


class FillingSpec(_Model):
    """How the mass is spread: a thin shell, contents up to a plane level, and solid lumps."""

    shell: Annotated[Fraction, Field(description="share of the mass in the thin outer wall")] = 0.25
    level: Annotated[
        float,
        Field(gt=0.0, le=1.0, description="share of the inner volume that the contents fill"),
    ] = 0.8
    direction: Annotated[
        Vector, Field(description="direction in which the contents settle, object frame")
    ] = (0.3, 0.2, -1.0)
    lumps: tuple[LumpSpec, ...] = ()

    @model_validator(mode="after")
    def _shares(self) -> Self:
        total = self.shell + sum(lump.share for lump in self.lumps)
        if total > 1.0 + 1e-9:
            raise ValueError(
                f"shell and lumps together hold {total:.3f} of the mass; they must leave room: "
                "lower shell or the lumps' share so that the sum is at most 1"
            )
        if sum(x * x for x in self.direction) < 1e-12:
            raise ValueError("direction is the zero vector; give a direction such as [0, 0, -1]")
        return self


class TextureSpec(_Model):
    """A procedural print: colours of ground and ink, how much of it, and a word to print."""

    ground: Annotated[tuple[int, int, int], Field(description="RGB 0..255")] = (196, 178, 142)
    ink: Annotated[tuple[int, int, int], Field(description="RGB 0..255")] = (40, 52, 92)
    accent: Annotated[tuple[int, int, int], Field(description="RGB 0..255")] = (190, 60, 40)
    word: Annotated[str, Field(max_length=12)] = "TWIN"
    density: Annotated[
        float, Field(ge=0.0, le=3.0, description="features per unit of area, 1 is rich")
    ] = 1.0


class PushSpec(_Model):
    """One push: what the finger does, where on the object and how fast."""

    action: Annotated[
        Literal["flick", "tap", "slide", "tilt", "lift"],
        Field(
            description=(
                "flick: a finger's swing that topples; tap: short and fast, the object coasts; "
                "slide: slow; tilt: push about a virtual pivot, the far bottom edge, and let it "
                "come back; lift: grasp and weigh"
            )
        ),
    ]
    direction: Annotated[float, Field(description="direction of the push in the plane, deg")] = 0.0
    height: Annotated[
        float, Field(gt=0.0, lt=1.0, description="contact height, fraction of the object's height")
    ] = 0.5
    offset: Annotated[
        float,
        Field(ge=-1.0, le=1.0, description="sideways offset, fraction of the half width"),
    ] = 0.0
    speed: Annotated[float, Field(gt=0.0, le=2.0, description="fingertip speed, m/s")] = 0.1
    distance: Annotated[float, Field(gt=0.0, le=0.5, description="path after contact, m")] = 0.05
    held_out: Annotated[bool, Field(description="kept from identification, for prediction")] = False


class NoiseSpec(_Model):
    """Noise of the sensors. The defaults are mild consumer hardware."""

    image: Annotated[float, Field(ge=0.0, description="pixel noise sd, grey levels of 255")] = 1.5
    exposure: Annotated[float, Field(ge=0.0, lt=0.5, description="slow gain drift, +- share")] = (
        0.04
    )
    position: Annotated[float, Field(ge=0.0, description="joint position noise sd, rad or m")] = (
        2e-5
    )
    effort: Annotated[
        float, Field(ge=0.0, description="effort noise sd, share of each joint's limit")
    ] = 0.004
    hand: Annotated[float, Field(ge=0.0, description="hand keypoint noise sd, m")] = 0.002
    tracker_position: Annotated[
        float, Field(ge=0.0, description="noise sd of the demonstrated object's position, m")
    ] = 0.0005
    tracker_rotation: Annotated[
        float, Field(ge=0.0, le=0.5, description="noise sd of its rotation about each axis, rad")
    ] = 0.005
    clock_offset: Annotated[float, Field(description="robot clock - camera clock, s")] = 0.043
    dropped: Annotated[float, Field(ge=0.0, lt=0.5, description="share of frames dropped")] = 0.02


class LabSpec(_Model):
    """A lab object's recipe (``lab.yaml``). Lengths in m, mass in kg."""

    shape: Annotated[str, Field(description=f"one of {', '.join(SHAPES)}, or mesh")]
    mesh: Annotated[
        str | None, Field(description="mesh file beside lab.yaml, for shape: mesh; z is up")
    ] = None
    sha256: Annotated[
        str | None,
        Field(
            pattern="^[0-9a-f]{64}$",
            description="of the mesh file, so that an edit of it is an edit of the recipe",
        ),
    ] = None
    size: Annotated[
        Vector | None, Field(description="bounding box x, y, z at rest, m; needed but for a mesh")
    ] = None
    mass: Annotated[float, Field(gt=0.0, lt=50.0, description="kg")]
    filling: FillingSpec = FillingSpec()
    friction: Annotated[float, Field(gt=0.0, lt=2.0, description="Coulomb coefficient")] = 0.3
    texture: TextureSpec = TextureSpec()
    pushes: Annotated[
        Literal["auto"] | tuple[PushSpec, ...],
        Field(description="list of pushes, or auto: chosen from the object's shape"),
    ] = "auto"
    noise: NoiseSpec = NoiseSpec()
    seed: Annotated[int, Field(ge=0, description="reproduces everything")] = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.shape == "mesh":
            if self.mesh is None:
                raise ValueError("shape: mesh needs `mesh: FILE` beside lab.yaml")
            if not MESH_NAME.fullmatch(self.mesh):
                raise ValueError(
                    f"mesh: {self.mesh!r} is not the plain name of an obj, ply, stl, off or glb "
                    "file; put the file beside lab.yaml and give its name alone"
                )
        elif self.shape not in SHAPES:
            raise ValueError(
                f"unknown shape {self.shape!r}; known: {', '.join(SHAPES)}, mesh (a file of yours)"
            )
        elif self.mesh is not None or self.sha256 is not None:
            raise ValueError(
                f"mesh or sha256 is given but shape is {self.shape!r}; set shape: mesh"
            )
        elif self.size is None:
            raise ValueError("size is missing; give [x, y, z] of the bounding box in metres")
        if self.size is not None and not all(0.005 <= s <= 1.0 for s in self.size):
            raise ValueError(
                f"size {list(self.size)} is outside 0.005..1 m; sizes are metres, not millimetres"
            )
        return self


def presets() -> tuple[str, ...]:
    """Names of the recipes that ship with Twinloop, sorted."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.yaml")))


def parse_lab_spec(data: Any, where: str = "lab.yaml") -> LabSpec:
    """Recipe from a parsed YAML mapping; ``preset: NAME`` fills in what is not given.

    Raises InputError naming every wrong field at once, with its value and what is expected.
    """
    if not isinstance(data, dict):
        raise InputError(f"{where}: expected a mapping of fields, got {type(data).__name__}")
    data = dict(data)
    name = data.pop("preset", None)
    if name is not None:
        if name not in presets():
            raise InputError(
                f"{where}: preset: {name!r} is not known; known: {', '.join(presets())}"
            )
        base = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
        data = _merge(base, data)
    try:
        return LabSpec.model_validate(data)
    except ValidationError as error:
        lines = [_explain(item) for item in error.errors()]
        raise InputError(f"{where}: {len(lines)} wrong: " + "; ".join(lines)) from None


def load_lab_spec(path: Path) -> LabSpec:
    """Read and check ``lab.yaml``. Raises InputError (missing, not YAML, wrong fields)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; a lab object needs a recipe, e.g. the one line `preset: spam`"
        ) from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}") from None
    return parse_lab_spec(data, str(path))


def load_preset(name: str) -> LabSpec:
    """A recipe that ships with Twinloop, by name."""
    return parse_lab_spec({"preset": name}, f"preset {name}")


def dump_lab_spec(spec: LabSpec) -> str:
    """The recipe as YAML with every field, keys in declared order (the same bytes each time)."""
    return yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Overlay ``over`` on ``base``; nested mappings are merged, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _explain(item: Any) -> str:
    """One pydantic fault as `field: message (got value)`."""
    where = ".".join(str(part) for part in item["loc"]) or "recipe"
    message = item["msg"].removeprefix("Value error, ")
    known = ", ".join(LabSpec.model_fields)
    if item["type"] == "extra_forbidden":
        message = f"unknown field; fields of a recipe are {known}, preset"
    got = "" if item["type"] == "missing" or not item["loc"] else f" (got {item['input']!r})"
    return f"{where}: {message}{got}"
