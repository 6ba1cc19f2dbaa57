"""Clean pictures of lab objects with exact poses, masks and shape, for the splat benchmarks.

Each pixel is the mean of a grid of rays cast at the true, textured mesh under fixed diffuse lights:
no noise, no lens, no outline that two renderers draw differently, and no OpenGL. The object stands
in no scene: around it nothing is, so that its coverage is known exactly.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import CACHE
from twinloop.capture.files import write_whole
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at
from twinloop.geometry.raycast import MeshRenderer
from twinloop.lab.objects import LabObject, build_object
from twinloop.lab.shapes import revolve
from twinloop.lab.spec import TextureSpec, load_preset
from twinloop.lab.texture import paint, unwrap
from twinloop.progress import track
from twinloop.splat.low_pass import LowPass
from twinloop.splat.views import Views

PIXEL = LowPass(antialiased=True, eps2d=1 / 12)
"""What a pixel itself blurs: the variance of a square of one pixel."""
PRESETS = ("ketchup", "wafer_tin", "spray")
"""Objects of 20 to 25 cm: a squeeze bottle, a cylinder with print, a spray can."""
HOLLOW = ("bowl", "letter_u")
"""Objects that are not what their outlines show: `bowl`, and a letter with a deep notch."""
ELEVATIONS = (-20.0, 15.0, 50.0)
"""Rings of cameras, deg."""
_CAST = 1
"""Of the way pictures are cast; a change of it makes the cached ones anew."""
FINE = 4
"""Rays along a pixel's side; half as many in pictures of over 400 px."""
_NAMES = ("image", "mask", "depth")
_AMBIENT = 0.5
_LIGHTS = (((-0.5, -0.35, -1.0), 0.34), ((0.7, 0.2, -0.6), 0.16), ((-0.1, 0.8, -0.5), 0.14))

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LabScene:
    """Pictures to fit, unseen pictures to judge by, and the truth; world frame: object's, z up.

    `views` and `unseen` hold straight colour and exact coverage (`Views.coverage` is True). depth
    (view, y, x) m along z of the pixel's centre ray for the pictures to fit, 0 where it misses.
    vertices (v, 3) m and faces (f, 3): the true mesh. seen (v,) bool: vertices that a camera sees.
    """

    name: str
    views: Views
    unseen: Views
    depth: NDArray[np.float32]
    vertices: Array
    faces: NDArray[np.int64]
    item: LabObject

    @property
    def radius(self) -> float:
        """Half the bounding box's diagonal, m."""
        return 0.5 * float(np.linalg.norm(self.item.size))


def lab_scene(
    preset: str,
    size: int = 200,
    train: int = 40,
    unseen: int = 8,
    elevations: tuple[float, ...] = ELEVATIONS,
) -> LabScene:
    """Pictures of `preset` or `bowl`: `train` to fit, `unseen` others, `size` px square each.

    Cameras look at the object's middle from rings at `elevations` (deg), turned against each other;
    every so-manieth of the whole walk is unseen. The object's ball fills 96 % of the height.
    Pictures are kept in `.cache`: casting them takes half a minute.
    """
    item = bowl() if preset == "bowl" else build_object(load_preset(preset), preset)
    centre = np.array([0.0, 0.0, 0.5 * float(item.size[2])])
    radius = 0.5 * float(np.linalg.norm(item.size))
    focal = 1.4 * size
    distance = radius / np.sin(np.arctan(0.48 * size / focal))
    k = np.array([focal, focal, (size - 1) / 2, (size - 1) / 2])
    poses = np.stack(_ring_poses(train + unseen, centre, distance, elevations))
    image, mask, depth = _pictures(item, k, size, se3.inverse(poses))
    held = np.zeros(len(poses), bool)
    if unseen:
        held[(np.arange(unseen) + 0.5).astype(int) * len(poses) // unseen + 2] = True
    T = se3.inverse(poses)
    K = np.tile(k, (len(poses), 1))

    def pick(flags: NDArray[np.bool_]) -> Views:
        return Views(image[flags], mask[flags], K[flags], T[flags], coverage=True)

    return LabScene(
        preset, pick(~held), pick(held), depth[~held], item.vertices, np.asarray(item.faces), item
    )


def bowl() -> LabObject:
    """A printed bowl, 20 cm wide and 9 cm high with a wall of 7 mm; its inside is in no outline."""
    rise = np.linspace(0.0, 0.5 * np.pi, 9)
    outer = np.column_stack([0.045 + 0.055 * np.sin(rise), 0.09 * (1 - np.cos(rise))])
    inner = np.column_stack([0.040 + 0.053 * np.sin(rise), 0.007 + 0.083 * (1 - np.cos(rise))])
    shape = revolve([*map(tuple, outer), *map(tuple, inner[::-1])], None, 64)
    atlas = unwrap(shape.vertices, shape.faces)
    print_ = TextureSpec(ground=(226, 214, 190), ink=(40, 60, 120), accent=(190, 80, 40))
    return LabObject(
        "bowl",
        shape.vertices,
        shape.faces,
        atlas.uv,
        atlas.face_uv,
        paint(atlas.extent, print_, 11),
        shape.parts,
        0.3,
        shape.vertices.mean(axis=0),
        np.eye(3),
        0.4,
    )


def _ring_poses(
    count: int, centre: Array, distance: float, elevations: tuple[float, ...]
) -> list[Array]:
    rings = len(elevations)
    share = [count // rings + (i < count % rings) for i in range(rings)]
    poses = []
    for ring, (number, elevation) in enumerate(zip(share, elevations, strict=True)):
        e = np.radians(elevation)
        for i in range(number):
            a = 2 * np.pi * (i + ring / rings) / number
            out = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
            poses.append(look_at(centre + distance * out, centre))
    return poses


def _pictures(
    item: LabObject, k: Array, size: int, T_camera_world: Array
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """All pictures, from the cache where the object, the cameras and the light are the same."""
    key = hashlib.sha256(f"{_CAST} {FINE} {_AMBIENT} {_LIGHTS}".encode())
    for part in (item.vertices, item.faces, item.uv, item.texture, k, T_camera_world):
        key.update(np.ascontiguousarray(part).tobytes())
    kept = CACHE / "scenes" / f"{item.name}-{size}-{key.hexdigest()[:16]}.npz"
    if not kept.is_file():
        done = [
            _picture(item, k, size, T) for T in track(list(T_camera_world), f"cast {item.name}")
        ]
        kept.parent.mkdir(parents=True, exist_ok=True)
        arrays = {n: np.stack([p[i] for p in done]) for i, n in enumerate(_NAMES)}
        write_whole(kept, lambda fresh: np.savez_compressed(fresh, **arrays))
    with np.load(kept, allow_pickle=False) as stored:
        image, mask, depth = (stored[n] for n in _NAMES)
    return image, mask, depth


def _picture(
    item: LabObject, k: Array, size: int, T_camera_world: Array
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """Straight colour (y, x, 3), coverage (y, x), both 0..255, and centre-ray depth (y, x) m."""
    rays = FINE if size <= 400 else FINE // 2
    renderer = MeshRenderer(item.vertices, item.faces)
    depth = renderer.render(k, size, size, T_camera_world).depth
    fine = np.r_[k[:2] * rays, (k[2:] + 0.5) * rays - 0.5]
    hit = renderer.render(fine, size * rays, size * rays, T_camera_world)
    colour = np.where(hit.mask[..., None], _shade(item, hit.face, hit.barycentric, hit.normal), 0.0)
    block = (size, rays, size, rays)
    cover = hit.mask.reshape(block).mean(axis=(1, 3))
    mean = colour.reshape(*block, 3).mean(axis=(1, 3)) / np.maximum(cover, 1e-9)[..., None]
    return (
        np.rint(255 * mean.clip(0, 1)).astype(np.uint8),
        np.rint(255 * cover).astype(np.uint8),
        depth,
    )


def _shade(
    item: LabObject,
    face: NDArray[np.int32],
    barycentric: NDArray[np.float32],
    normal: NDArray[np.float32],
) -> Array:
    """Texture, bilinear, times diffuse light: (..., 3) 0..1."""
    uv = np.einsum("...k,...kc->...c", barycentric, item.uv[item.face_uv[np.maximum(face, 0)]])
    texture = item.texture.astype(np.float64) / 255
    rows, columns = texture.shape[:2]
    x = np.clip(uv[..., 0] * columns - 0.5, 0, columns - 1.001)
    y = np.clip((1 - uv[..., 1]) * rows - 0.5, 0, rows - 1.001)
    i, j = np.floor(y).astype(int), np.floor(x).astype(int)
    a, b = (y - i)[..., None], (x - j)[..., None]
    albedo = (texture[i, j] * (1 - b) + texture[i, j + 1] * b) * (1 - a) + (
        texture[i + 1, j] * (1 - b) + texture[i + 1, j + 1] * b
    ) * a
    light = np.full(face.shape, _AMBIENT)
    for direction, strength in _LIGHTS:
        towards = -np.asarray(direction) / np.linalg.norm(direction)
        light += strength * np.clip(normal @ towards, 0, None)
    return np.asarray(albedo * light[..., None])
