"""Depth, face, barycentric and normal images of a triangle mesh, by ray casting on the CPU.

The rays go through Warp's bounding volume hierarchy (`wp.Mesh`), so a 200 x 200 image of a mesh of
ten thousand faces takes ten milliseconds and no display, OpenGL or GPU is needed.

Pixel convention: OpenCV's. The centre of the pixel in column `x` and row `y` is the image point
`(x, y)`, so that its ray is `((x - cx) / fx, (y - cy) / fy, 1)` in the camera frame (x right,
y down, z forward).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import warp as wp

from twinloop.errors import InputError
from twinloop.geometry.raycast_kernel import cast_rays

FloatArray = npt.NDArray[np.floating]


@dataclass(frozen=True)
class MeshRender:
    """Images of a mesh; every array has the image's rows and columns first.

    depth: (height, width) float32, metres along the camera's z axis, 0 where no face was hit.
    face: (height, width) int32, index of the face hit, -1 where none was.
    barycentric: (height, width, 3) float32, weights of the face's three vertices in their order.
    normal: (height, width, 3) float32, unit face normal in the *mesh* frame, by the winding of the
        face (so outward for a mesh wound outward), 0 where no face was hit.
    """

    depth: npt.NDArray[np.float32]
    face: npt.NDArray[np.int32]
    barycentric: npt.NDArray[np.float32]
    normal: npt.NDArray[np.float32]

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """(height, width) bool, true where the mesh was hit."""
        return np.asarray(self.face >= 0)

    def interpolate(
        self, values: FloatArray, faces: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.float32]:
        """Carry per-vertex `values` (v, c) to the image: (height, width, c), 0 where no hit."""
        corner = np.asarray(values, np.float32)[np.asarray(faces)[np.maximum(self.face, 0)]]
        out = np.einsum("yxk,yxkc->yxc", self.barycentric, corner)
        return np.where(self.mask[..., None], out, np.float32(0)).astype(np.float32)

    def points(self, intrinsics: FloatArray) -> npt.NDArray[np.float32]:
        """The hit points in the camera frame, (height, width, 3) in metres, 0 where no hit."""
        fx, fy, cx, cy = (float(v) for v in intrinsics)
        rows, columns = np.indices(self.depth.shape, dtype=np.float32)
        ray = np.stack(((columns - cx) / fx, (rows - cy) / fy, np.ones_like(columns)), axis=-1)
        return (ray * self.depth[..., None]).astype(np.float32)


class MeshRenderer:
    """A mesh whose ray-casting hierarchy is built once and rendered from many poses."""

    def __init__(self, vertices: FloatArray, faces: npt.NDArray[np.integer]) -> None:
        """Build the hierarchy of `vertices` (v, 3) in metres and `faces` (f, 3), on the CPU.

        Raises InputError when the arrays are not a triangle mesh or the vertices are not finite.
        """
        points = np.ascontiguousarray(vertices, np.float32)
        triangles = np.ascontiguousarray(faces, np.int32)
        if (
            points.ndim != 2
            or points.shape[1] != 3
            or triangles.ndim != 2
            or triangles.shape[1] != 3
        ):
            raise InputError(
                f"mesh to render: vertices have shape {points.shape} and faces {triangles.shape}; "
                "expected (v, 3) and (f, 3)"
            )
        if len(triangles) == 0 or triangles.min() < 0 or triangles.max() >= len(points):
            raise InputError(
                f"mesh to render: {len(triangles)} faces over {len(points)} vertices; expected at "
                "least one face, with indices inside the vertex list"
            )
        if not np.isfinite(points).all():
            bad = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
            raise InputError(
                f"mesh to render: vertex {bad} is {points[bad]}; expected finite metres"
            )
        self.vertices = points
        self.faces = triangles
        self._mesh = wp.Mesh(
            points=wp.array(points, dtype=wp.vec3, device="cpu"),
            indices=wp.array(triangles.reshape(-1), dtype=wp.int32, device="cpu"),
        )

    @property
    def mesh_id(self) -> int:
        """Handle of the ray-casting hierarchy, for Warp kernels; valid while this object lives."""
        return int(self._mesh.id)

    def render(
        self,
        intrinsics: FloatArray,
        width: int,
        height: int,
        T_camera_mesh: FloatArray,
        *,
        near: float = 1e-3,
        far: float = 100.0,
    ) -> MeshRender:
        """Render from one pose.

        `intrinsics` are (fx, fy, cx, cy) in pixels, `T_camera_mesh` (4, 4) maps mesh coordinates
        into the camera frame, `near` and `far` are metres along the camera's z. To render a crop,
        subtract its corner from (cx, cy). Raises InputError for a size below one pixel or a pose
        that is not finite.
        """
        pose = np.asarray(T_camera_mesh, np.float64)
        if width < 1 or height < 1 or pose.shape != (4, 4) or not np.isfinite(pose).all():
            raise InputError(
                f"mesh to render: image of {width} x {height} from a pose of shape {pose.shape} "
                f"({'finite' if np.isfinite(pose).all() else 'not finite'}); expected at least one "
                "pixel and a finite 4 x 4 matrix"
            )
        rotation = pose[:3, :3].T
        origin = -rotation @ pose[:3, 3]
        count = width * height
        depth = np.zeros(count, np.float32)
        face = np.full(count, -1, np.int32)
        barycentric = np.zeros((count, 3), np.float32)
        normal = np.zeros((count, 3), np.float32)
        wp.launch(
            cast_rays,
            dim=count,
            inputs=[
                self._mesh.id,
                width,
                wp.vec4(*(float(v) for v in intrinsics)),
                wp.mat33(*rotation.reshape(-1).tolist()),
                wp.vec3(*origin.tolist()),
                near,
                far,
                wp.array(depth, dtype=wp.float32, device="cpu", copy=False),
                wp.array(face, dtype=wp.int32, device="cpu", copy=False),
                wp.array(barycentric, dtype=wp.vec3, device="cpu", copy=False),
                wp.array(normal, dtype=wp.vec3, device="cpu", copy=False),
            ],
            device="cpu",
        )
        shape = (height, width)
        return MeshRender(
            depth.reshape(shape),
            face.reshape(shape),
            barycentric.reshape(*shape, 3),
            normal.reshape(*shape, 3),
        )


def render_mesh(
    vertices: FloatArray,
    faces: npt.NDArray[np.integer],
    intrinsics: FloatArray,
    width: int,
    height: int,
    T_camera_mesh: FloatArray,
) -> MeshRender:
    """Render a mesh once; `MeshRenderer` keeps the hierarchy and says what comes back."""
    return MeshRenderer(vertices, faces).render(intrinsics, width, height, T_camera_mesh)
