"""The commands ``twinloop splat``: files of Gaussians seen, turned, joined, shown and converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinloop.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from twinloop.splat.render import RenderedView

splat = typer.Typer(
    name="splat",
    help="Gaussian splats in files: look at, convert, move, merge and render them.",
    epilog="""
[bold]Files[/bold]  .ply (exact, every viewer) and .spz (a fifth of the size, lossy; needs
`pip install 'twinloop\\[splat]'`). Lengths are metres and z is up.

[bold]Examples[/bold]

  twinloop splat info mug.ply

  twinloop splat convert mug.ply mug.spz

  twinloop splat transform scan.ply mug.ply --scale 0.001 --rotate 90 0 0

  twinloop splat merge table.ply mug.ply@0.1,0,0.05 --to scene.ply

  twinloop splat render scene.ply scene.png --azimuth 30

  twinloop splat render scene.ply scene.mp4
""",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Source = Annotated[Path, typer.Argument(help="Splats: .ply or .spz.", show_default=False)]
Target = Annotated[Path, typer.Argument(help="File to write: .ply or .spz.", show_default=False)]


@splat.command()
def info(
    source: Source,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For another program.")] = False,
) -> None:
    """Count, kind, degree, extents, sizes and opacities of a file of splats."""
    import numpy as np

    from twinloop.splat.cameras import bounds
    from twinloop.splat.imported import load_splats

    splats = load_splats(source)
    low, high = bounds(splats)
    largest = splats.scales.max(axis=1)
    facts = {
        "count": len(splats),
        "kind": type(splats).__name__.lower(),
        "degree": splats.degree,
        "low_m": np.round(low, 6).tolist(),
        "high_m": np.round(high, 6).tolist(),
        "median_scale_m": float(f"{np.median(largest):.4g}"),
        "median_opacity": float(f"{np.median(splats.opacities):.4g}"),
        "bytes": source.stat().st_size,
    }
    if as_json:
        typer.echo(json.dumps(facts, sort_keys=True))
        return
    size = " x ".join(f"{1e3 * side:.4g}" for side in high - low)
    typer.echo(f"{source}: {facts['count']} {facts['kind']} of degree {facts['degree']}")
    typer.echo(f"extent  {size} mm, from {facts['low_m']} to {facts['high_m']} m (99 % of them)")
    typer.echo(
        f"median  scale {1e3 * float(np.median(largest)):.3g} mm, opacity "
        f"{facts['median_opacity']}; {facts['bytes']} bytes"
    )


@splat.command()
def convert(source: Source, target: Target) -> None:
    """Write a file of splats in another format, by the names' endings.

    From .ply to .ply nothing is lost, only put in the usual order; .spz loses what its bits do not
    hold: scales 3 %, opacities and colours 1/255, rotations 0.3 degrees.
    """
    from twinloop.splat.imported import load_splats, save_splats

    splats = load_splats(source)
    save_splats(splats, target)
    _report(target, len(splats))


@splat.command()
def transform(
    source: Source,
    target: Target,
    *,
    scale: Annotated[float, typer.Option(help="First, about the origin: 0.001 for mm to m.")] = 1.0,
    rotate: Annotated[
        tuple[float, float, float],
        typer.Option(help="Then, deg about x, then y, then z, which stay where they are."),
    ] = (0.0, 0.0, 0.0),
    move: Annotated[tuple[float, float, float], typer.Option(help="Last, m.")] = (0.0, 0.0, 0.0),
) -> None:
    """Scale, turn and move splats; colours by direction turn along."""
    from twinloop.splat.imported import load_splats, save_splats
    from twinloop.splat.transform import transformed

    splats = transformed(load_splats(source), _pose((*move, *rotate)), scale)
    save_splats(splats, target)
    _report(target, len(splats))


@splat.command()
def merge(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Splats, each FILE or FILE@x,y,z or FILE@x,y,z,a,b,c: m, then deg about x, y, z.",
            show_default=False,
        ),
    ],
    *,
    to: Annotated[Path, typer.Option(help="File to write: .ply or .spz.", show_default=False)],
) -> None:
    """Put several files into one scene, each where it is said to be."""
    import numpy as np

    from twinloop.splat import scene
    from twinloop.splat.imported import load_splats, save_splats

    parts = []
    for number, text in enumerate(sources):
        path, T = _placed(text)
        parts.append((load_splats(path), np.eye(4) if T is None else T, f"{number}_{path.stem}"))
    merged = scene.merge(parts)
    save_splats(merged.splats, to)
    _report(to, len(merged.splats))


@splat.command()
def render(
    source: Source,
    target: Annotated[
        Path, typer.Argument(help="Picture (.png) or film around it (.mp4).", show_default=False)
    ],
    *,
    size: Annotated[
        tuple[int, int], typer.Option(help="Width and height, px.", show_default="640 480")
    ] = (640, 480),
    azimuth: Annotated[float, typer.Option(help="Where from, deg from +x to +y.")] = -90.0,
    elevation: Annotated[float, typer.Option(help="How high above the horizon, deg.")] = 25.0,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="Length of a film.")] = 4.0,
    rate: Annotated[float, typer.Option(min=1, max=120, help="Pictures a second.")] = 30.0,
    layer: Annotated[str, typer.Option(help="rgb, alpha, depth or normal.")] = "rgb",
    white: Annotated[bool, typer.Option("--white", help="On white instead of black.")] = False,
    device: Annotated[str, typer.Option(help="cpu, or cuda for gsplat.")] = "cpu",
    antialiased: Annotated[
        bool, typer.Option("--antialiased", help="For Gaussians trained so (Mip-Splatting).")
    ] = False,
    eps2d: Annotated[
        float, typer.Option(min=0, max=100, help="Low-pass filter of Gaussians, px^2.")
    ] = 0.3,
) -> None:
    """Render a picture, or a turn around the splats as a film."""
    from twinloop.progress import track
    from twinloop.splat.cameras import turntable
    from twinloop.splat.imported import load_splats
    from twinloop.splat.low_pass import LowPass
    from twinloop.splat.render import render as view_of
    from twinloop.splat.replay import write_film
    from twinloop.threads import torch_on_one_thread

    film = target.suffix.lower() == ".mp4"
    if not film and target.suffix.lower() != ".png":
        raise InputError(f"{target}: expected a name that ends in .png or .mp4")
    if layer not in ("rgb", "alpha", "depth", "normal"):
        raise InputError(f"--layer {layer!r}, expected rgb, alpha, depth or normal")
    splats = load_splats(source)
    cameras = turntable(
        splats,
        max(1, round(seconds * rate)) if film else 1,
        width=size[0],
        height=size[1],
        elevation=elevation,
        start=azimuth,
    )
    level = 1.0 if white else 0.0
    wanted = [layer] if layer in ("depth", "normal") else []

    def shown(number: int) -> RenderedView:
        found = view_of(
            splats,
            cameras[number],
            layers=wanted,  # type: ignore[arg-type]
            background=(level, level, level),
            device=device,
            low_pass=LowPass(antialiased, eps2d),
        )
        return _as_colours(found, layer)

    with torch_on_one_thread():
        if film:
            views = (shown(i) for i in track(range(len(cameras)), "render"))
            write_film(target, views, rate)
        else:
            _write_png(target, shown(0))
    typer.echo(f"{target}: {len(cameras)} view{'s' if film else ''} of {len(splats)} splats")


def _as_colours(view: RenderedView, layer: str) -> RenderedView:
    """The view with `layer` in place of its colours: near is bright, normals as usual."""
    from dataclasses import replace

    import numpy as np

    if layer == "rgb":
        return view
    grey = view.alpha
    if layer == "normal" and view.normal is not None:
        return replace(view, rgb=np.where(view.normal == 0, 0, 0.5 + 0.5 * view.normal))
    if layer == "depth" and view.depth is not None:
        near = view.depth[view.depth > 0]
        low, high = (near.min(), near.max()) if len(near) else (0.0, 1.0)
        grey = np.where(view.depth > 0, 1 - 0.8 * (view.depth - low) / max(high - low, 1e-9), 0)
    return replace(view, rgb=np.repeat(grey[..., None], 3, axis=-1).astype(np.float32))


def _write_png(path: Path, view: RenderedView) -> None:
    from PIL import Image

    from twinloop.capture.files import write_whole

    picture = Image.fromarray(view.picture())
    write_whole(path, lambda fresh: picture.save(fresh, format="PNG"))


def _pose(numbers: tuple[float, ...]) -> NDArray[np.float64]:
    """Transform (4, 4) of x, y, z in m, then degrees about x, y and z of the fixed frame."""
    import numpy as np

    from twinloop.geometry import quaternion, se3

    turns = np.radians(np.asarray(numbers[3:], float))
    x, y, z = (quaternion.from_rotvec(turns[i] * np.eye(3)[i]) for i in range(3))
    turn = quaternion.multiply(z, quaternion.multiply(y, x))
    return se3.from_position_quaternion(numbers[:3], turn)


def _placed(text: str) -> tuple[Path, NDArray[np.float64] | None]:
    """A file, and its pose if one is given."""
    name, at, place = text.rpartition("@")
    if not at or _there(Path(text)):
        return Path(text), None
    try:
        numbers = tuple(float(part) for part in place.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (3, 6) or not all(abs(number) < 1e30 for number in numbers):
        raise InputError(
            f"{text}: expected 3 or 6 numbers after the @, like {name}@0.1,0,0.05 (m) or "
            f"{name}@0.1,0,0.05,0,0,90 (then deg about x, y, z)"
        )
    return Path(name), _pose((*numbers, 0.0, 0.0, 0.0)[:6])


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # say, a name that is too long; who reads it says so
        return False


def _report(path: Path, count: int) -> None:
    typer.echo(f"{path}: {count} splats, {path.stat().st_size} bytes")
