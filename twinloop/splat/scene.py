"""Several splatted things in one world: what each Gaussian is part of, and how to merge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from twinloop.errors import InputError
from twinloop.splat.encoding import flat_gaussians
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.surfels import Surfels
from twinloop.splat.transform import transformed

Splats = Gaussians | Surfels
NAMES = ("means", "quaternions", "scales", "opacities", "sh")


@dataclass(frozen=True)
class SplatScene:
    """Splats in the world's frame, and what each is part of.

    splats: n Gaussians or surfels. label (n,) int32: index into `names`, one name per part.
    """

    splats: Splats
    label: NDArray[np.int32]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        n = len(self.splats)
        if self.label.shape != (n,):
            raise InputError(f"scene: labels have shape {self.label.shape}, expected ({n},)")
        if n and not 0 <= self.label.min() <= self.label.max() < len(self.names):
            raise InputError(
                f"scene: labels run from {self.label.min()} to {self.label.max()}, expected 0 to "
                f"{len(self.names) - 1}: one for each of {list(self.names)}"
            )

    @classmethod
    def of(cls, splats: Splats, name: str = "object") -> SplatScene:
        """A scene of one thing alone, where it is."""
        return cls(splats, np.zeros(len(splats), np.int32), (name,))

    def part(self, name: str) -> Splats:
        """The splats of one part.

        Raises:
            InputError: There is no such part.
        """
        if name not in self.names:
            raise InputError(f"scene: has no part {name!r}, expected one of {list(self.names)}")
        which = self.label == self.names.index(name)
        return type(self.splats)(*(getattr(self.splats, field)[which] for field in NAMES))

    @classmethod
    def from_dataset(cls, group: xr.Dataset | xr.DataTree) -> SplatScene:
        """Read a group that `to_dataset` made.

        Raises:
            InputError: It has no labels or names of parts, or labels without a name.
        """
        names: Any = group.attrs.get("parts")
        listed = isinstance(names, list | tuple)
        if not (listed and all(isinstance(n, str) for n in names) and "label" in group):
            raise InputError(
                f"scene: the attribute parts is {names!r}, expected a list of names, with an array "
                "`label` that says which of them each splat is of; is it a group of a scene?"
            )
        kind = Surfels if "surfel" in group.dims else Gaussians
        label = np.asarray(group["label"].values, np.int32)
        return cls(kind.from_dataset(group), label, tuple(map(str, names)))

    def to_dataset(self) -> xr.Dataset:
        """The splats' arrays, `label`, and the attribute `parts` with the names."""
        dataset = self.splats.to_dataset()
        dim = "surfel" if isinstance(self.splats, Surfels) else "gaussian"
        return dataset.assign(label=((dim,), self.label)).assign_attrs(parts=list(self.names))


def merge(parts: Sequence[tuple[Splats | SplatScene, ArrayLike, str]]) -> SplatScene:
    """Put things into one world.

    Args:
        parts: Each thing's splats in its own frame, its pose T_world_object (4, 4), m, and its
            name. A scene keeps its parts' names, as "name/part" if it has several.

    Lower degrees of colour are filled up with zeros, which changes no colour. Surfels among
    Gaussians become Gaussians of 0.1 um thickness; a scene of surfels alone stays one.

    Raises:
        InputError: Nothing to merge, a name that is there twice, or no rigid transform.
    """
    moved: list[Splats] = []
    labels: list[NDArray[np.int32]] = []
    names: list[str] = []
    for thing, T_world_object, name in parts:
        scene = thing if isinstance(thing, SplatScene) else SplatScene.of(thing, name)
        moved.append(transformed(scene.splats, T_world_object))
        labels.append(scene.label + np.int32(len(names)))
        several = len(scene.names) > 1
        names += [f"{name}/{own}" if several else name for own in scene.names]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise InputError(f"merge: {', '.join(double)} is there twice; give each part its own name")
    return SplatScene(joined(moved), np.concatenate(labels), tuple(map(str, names)))


def joined(things: Sequence[Splats]) -> Splats:
    """All splats of `things`, which are in one frame, in their order; see `merge`.

    Raises:
        InputError: There are none.
    """
    if not things or not any(len(thing) for thing in things):
        raise InputError("merge: no splats, expected at least one part with some")
    if any(isinstance(thing, Gaussians) for thing in things):
        things = [flat_gaussians(t) if isinstance(t, Surfels) else t for t in things]
    bases = max(thing.sh.shape[1] for thing in things)

    def values(thing: Splats, field: str) -> NDArray[np.float32]:
        array: NDArray[np.float32] = getattr(thing, field)
        if field != "sh" or array.shape[1] == bases:
            return array
        return np.pad(array, ((0, 0), (0, bases - array.shape[1]), (0, 0)))

    together = {f: np.concatenate([values(thing, f) for thing in things]) for f in NAMES}
    kind = type(things[0])
    if kind is Gaussians and all(isinstance(t, Gaussians) and t.stored is not None for t in things):
        stored = np.concatenate([t.stored for t in things])  # type: ignore[union-attr,misc]
        return Gaussians(**together, stored=stored)
    return kind(**together)
