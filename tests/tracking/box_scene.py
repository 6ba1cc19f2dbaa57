"""A textured box on a tagged table, drawn by homographies: exactly known poses, no GL needed."""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np

from twinloop.splat.gaussians import Gaussians

Array = np.ndarray
TAG_SIZE = 0.05
TAG_CENTRES = {
    0: (-0.16, 0.10),
    1: (0.16, 0.10),
    2: (-0.16, -0.10),
    3: (0.16, -0.10),
    4: (0.0, 0.16),
}


def rotation(axis: str, angle: float) -> Array:
    """Rotation matrix about a coordinate axis by angle in rad."""
    v = np.zeros(3)
    v["xyz".index(axis)] = angle
    return cv2.Rodrigues(v)[0]


def pose(matrix: Array, position: Array) -> Array:
    """4x4 transform from rotation matrix and position in m."""
    t = np.eye(4)
    t[:3, :3] = matrix
    t[:3, 3] = position
    return t


def look_at(eye: Array, target: Array) -> Array:
    """T_world_camera (OpenCV axes) of a camera at eye that looks at target, world z up."""
    z = np.asarray(target, float) - eye
    z /= np.linalg.norm(z)
    x = np.cross(z, [0, 0, 1.0])
    x /= np.linalg.norm(x)
    return pose(np.stack([x, np.cross(z, x), z], 1), np.asarray(eye, float))


def face_texture(rng: np.random.Generator, shape: tuple[int, int], contrast: float) -> Array:
    """A random RGB label: shapes and letters over a smooth ground."""
    h, w = shape
    ground = cv2.resize(
        rng.uniform(90, 160, (4, 4, 3)).astype(np.float32), (w, h), interpolation=cv2.INTER_CUBIC
    )
    image = np.ascontiguousarray(np.clip(ground, 0, 255).astype(np.uint8))
    for _ in range(22):
        colour = tuple(
            float(np.clip(c, 0, 255)) for c in 125 + contrast * rng.uniform(-115, 120, 3)
        )
        c = (int(rng.integers(0, w)), int(rng.integers(0, h)))
        kind = rng.integers(0, 3)
        if kind == 0:
            cv2.circle(image, c, int(rng.integers(6, 30)), colour, -1, cv2.LINE_AA)
        elif kind == 1:
            d = rng.integers(8, 50, 2)
            cv2.rectangle(image, c, (c[0] + int(d[0]), c[1] + int(d[1])), colour, -1)
        else:
            text = chr(65 + int(rng.integers(0, 26)))
            cv2.putText(
                image,
                text,
                c,
                cv2.FONT_HERSHEY_SIMPLEX,
                float(rng.uniform(1, 3)),
                colour,
                5,
                cv2.LINE_AA,
            )
    return image.astype(np.float32)


@dataclass
class BoxScene:
    """Box of `size` m with its origin at the centre; table plane z = 0 with an AprilTag board."""

    size: Array = field(default_factory=lambda: np.array([0.10, 0.055, 0.085]))
    seed: int = 0
    contrast: float = 1.0
    noise: float = 2.0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        h = self.size / 2
        self.faces: list[tuple[Array, Array]] = []
        for axis in range(3):
            u, v = [a for a in range(3) if a != axis]
            for sign in (-1.0, 1.0):
                corners = np.zeros((4, 3))
                corners[:, axis] = sign * h[axis]
                corners[:, u] = h[u] * np.array([-1, 1, 1, -1])
                corners[:, v] = h[v] * np.array([-1, -1, 1, 1])
                shape = (int(self.size[v] * 2600), int(self.size[u] * 2600))
                self.faces.append((corners, face_texture(rng, shape, self.contrast)))
        n = 1000
        table = cv2.resize(rng.uniform(150, 190, (25, 25)).astype(np.float32), (n, n))
        table = np.repeat(table[..., None], 3, 2) * np.array([1.0, 0.97, 0.9])
        dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
        for tag, (x, y) in TAG_CENTRES.items():
            s = round(TAG_SIZE * 1000)
            mark = cv2.aruco.generateImageMarker(dictionary, tag, s)
            px, py = round(500 + x * 1000 - s / 2), round(500 - y * 1000 - s / 2)
            table[py - 10 : py + s + 10, px - 10 : px + s + 10] = 235
            table[py : py + s, px : px + s] = mark[..., None]
        self.table = table
        self.rng = np.random.default_rng(self.seed + 1)
        self._tables: dict[bytes, Array] = {}

    def mesh(self, cells: int = 4) -> tuple[Array, Array, Array]:
        """Vertices (v,3) m, faces (f,3) wound outwards, vertex colours (v,3) of the box."""
        vertices, faces, colours = [], [], []
        for corners, texture in self.faces:
            base = sum(len(v) for v in vertices)
            a, b = np.meshgrid(
                np.linspace(0, 1, cells + 1), np.linspace(0, 1, cells + 1), indexing="ij"
            )
            a, b = a.ravel(), b.ravel()
            p = (
                corners[0]
                + a[:, None] * (corners[1] - corners[0])
                + b[:, None] * (corners[3] - corners[0])
            )
            h, w = texture.shape[:2]
            colours.append(texture[(b * (h - 1)).astype(int), (a * (w - 1)).astype(int)])
            i, j = np.meshgrid(range(cells), range(cells), indexing="ij")
            q = (i * (cells + 1) + j).ravel() + base
            f = np.concatenate(
                [
                    np.stack([q, q + cells + 1, q + cells + 2], 1),
                    np.stack([q, q + cells + 2, q + 1], 1),
                ]
            )
            n = np.cross(corners[1] - corners[0], corners[3] - corners[0])
            if n @ corners[0] < 0:
                f = f[:, ::-1]
            vertices.append(p)
            faces.append(f)
        return (
            np.concatenate(vertices),
            np.concatenate(faces).astype(np.int32),
            np.concatenate(colours).astype(np.uint8),
        )

    def gaussians(self, spacing: float = 0.0008) -> Gaussians:
        """The box's looks: flat Gaussians on a grid of every face, of the label's colours."""
        means, colours, scales = [], [], []
        for corners, texture in self.faces:
            sides = corners[1] - corners[0], corners[3] - corners[0]
            counts = [max(2, round(float(np.linalg.norm(s)) / spacing)) for s in sides]
            a, b = np.meshgrid(
                *[(np.arange(c) + 0.5) / c for c in counts],
                indexing="ij",
            )
            a, b = a.ravel()[:, None], b.ravel()[:, None]
            means.append(corners[0] + a * sides[0] + b * sides[1])
            small = cv2.resize(texture, (counts[0], counts[1]), interpolation=cv2.INTER_AREA)
            colours.append(small.transpose(1, 0, 2).reshape(-1, 3) / 255.0)
            flat = np.abs(corners[0] - corners[2]) < 1e-9
            scales.append(np.tile(np.where(flat, 1e-4, 0.4 * spacing), (len(a), 1)))
        n = sum(len(m) for m in means)
        return Gaussians(
            np.concatenate(means).astype(np.float32),
            np.tile(np.array([1, 0, 0, 0], np.float32), (n, 1)),
            np.concatenate(scales).astype(np.float32),
            np.full(n, 0.98, np.float32),
            ((np.concatenate(colours) - 0.5) / 0.28209479)[:, None].astype(np.float32),
        )

    def _table_seen(self, K: Array, T_world_camera: Array, W: int, H: int) -> Array:
        """The table without anything on it (H, W, 3), kept for the last two cameras."""
        key = K.tobytes() + np.asarray(T_world_camera, float).tobytes() + bytes(f"{W} {H}", "ascii")
        if key in self._tables:
            return self._tables[key]
        T_cw = np.linalg.inv(T_world_camera)
        image = np.full((H, W, 3), 60, np.float32)
        n = len(self.table)
        plane = np.array([[1 / n, 0, 0.5 / n - 0.5], [0, -1 / n, 0.5 - 0.5 / n], [0, 0, 1]])
        ground = K @ np.stack([T_cw[:3, 0], T_cw[:3, 1], T_cw[:3, 3]], 1) @ plane
        u, v = np.meshgrid(np.arange(W), np.arange(H))
        rays = np.stack([(u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1], np.ones(u.shape)], -1)
        down = rays @ T_cw[:3, 2]
        below = down < -1e-6
        reach = np.where(below, -T_world_camera[2, 3] / np.where(below, down, -1), 1e6)
        hit = (rays @ T_world_camera[:2, :3].T) * reach[..., None] + T_world_camera[:2, 3]
        on_table = below & (np.abs(hit) < 0.5).all(-1)
        warped = cv2.warpPerspective(
            self.table.astype(np.float32), ground, (W, H), flags=cv2.INTER_LINEAR
        )
        image[on_table] = warped[on_table]
        if len(self._tables) >= 2:  # a moving camera would fill the memory
            self._tables.pop(next(iter(self._tables)))
        self._tables[key] = image
        return image

    def render(
        self,
        intrinsics: Array,
        T_world_camera: Array,
        T_world_object: Array | None,
        width: int,
        height: int,
        finger: tuple[Array, Array, float] | None = None,
        distortion: Array | None = None,
    ) -> Array:
        """RGB u1 image; finger = (start, end, radius) of a grey capsule in the world, m."""
        s = 2
        margin = 0 if distortion is None else 40
        W, H = (width + 2 * margin) * s, (height + 2 * margin) * s
        fx, fy, cx, cy = np.asarray(intrinsics, float)
        K = np.array(
            [
                [fx * s, 0, (cx + margin + 0.5) * s - 0.5],
                [0, fy * s, (cy + margin + 0.5) * s - 0.5],
                [0, 0, 1],
            ]
        )
        T_cw = np.linalg.inv(T_world_camera)

        def project(points: Array) -> Array:
            p = (points @ T_cw[:3, :3].T + T_cw[:3, 3]) @ K.T
            return (p[:, :2] / p[:, 2:]).astype(np.float32)

        image = self._table_seen(K, T_world_camera, W, H).copy()

        def paint(corners_world: Array, texture: Array) -> None:
            h, w = texture.shape[:2]
            src = np.array(
                [[-0.5, -0.5], [w - 0.5, -0.5], [w - 0.5, h - 0.5], [-0.5, h - 0.5]], np.float32
            )
            # OpenCV's polygons hold their border's pixels, too: a box half a pixel too large.
            q = project(corners_world).astype(np.float64)
            low = np.clip(np.floor(q.min(0)).astype(int), 0, [W, H])
            high = np.clip(np.ceil(q.max(0)).astype(int) + 1, 0, [W, H])
            x, y = np.meshgrid(np.arange(low[0], high[0]), np.arange(low[1], high[1]))
            sides = []
            for i in range(4):
                (ax, ay), (bx, by) = q[i], q[(i + 1) % 4]
                sides.append((bx - ax) * (y - ay) - (by - ay) * (x - ax))
            inside = np.all([s >= 0 for s in sides], 0) | np.all([s <= 0 for s in sides], 0)
            if inside.size == 0:
                return
            m = cv2.getPerspectiveTransform(src, (q - low).astype(np.float32))
            warped = cv2.warpPerspective(
                texture.astype(np.float32),
                m,
                (int(high[0] - low[0]), int(high[1] - low[1])),
                flags=cv2.INTER_LINEAR,
                borderMode=cv2.BORDER_REPLICATE,
            )
            part = image[low[1] : high[1], low[0] : high[0]]
            part[inside] = warped[inside]

        if T_world_object is not None:
            eye = T_world_camera[:3, 3]
            for corners, texture in self.faces:
                c = corners @ T_world_object[:3, :3].T + T_world_object[:3, 3]
                n = T_world_object[:3, :3] @ (corners.mean(0) / np.linalg.norm(corners.mean(0)))
                if n @ (eye - c.mean(0)) > 0:
                    shade = 0.75 + 0.25 * float(n @ np.array([0.3, -0.5, 0.81]))
                    paint(c, texture * shade)
        if finger is not None:
            a, b, radius = finger
            mid = T_cw[:3, :3] @ ((a + b) / 2) + T_cw[:3, 3]
            q = project(np.stack([a, b]))
            cv2.line(
                image,
                tuple(int(v) for v in q[0]),
                tuple(int(v) for v in q[1]),
                (70, 72, 78),
                int(2 * radius * K[0, 0] / mid[2]),
                cv2.LINE_AA,
            )
        image = cv2.resize(image, (W // s, H // s), interpolation=cv2.INTER_AREA)
        if distortion is not None:
            x, y = np.meshgrid(
                np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)
            )
            K1 = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])
            u = cv2.undistortPoints(
                np.stack([x.ravel(), y.ravel()], 1)[:, None],
                K1,
                np.asarray(distortion, float),
                P=K1,
            )
            u = np.asarray(u).reshape(height, width, 2).astype(np.float32) + margin
            image = cv2.remap(image, u[..., 0], u[..., 1], cv2.INTER_LINEAR)
        image = image + self.rng.normal(0, self.noise, image.shape)
        return np.clip(image, 0, 255).astype(np.uint8)


def scan_views(
    scene: BoxScene, count: int, width: int = 320, height: int = 240, focal: float = 300.0
) -> dict[str, Array]:
    """Reference images of the resting box: images, cameras, intrinsics and its pose, `rest`."""
    rest = pose(np.eye(3), np.array([0.0, 0.0, scene.size[2] / 2]))
    K = np.array([focal, focal, (width - 1) / 2, (height - 1) / 2])
    images, cameras = [], []
    for i in range(count):
        azimuth, elevation = 2 * np.pi * i / count, 0.45 + 0.55 * (i % 2)
        eye = np.array(
            [
                np.cos(azimuth) * np.cos(elevation),
                np.sin(azimuth) * np.cos(elevation),
                np.sin(elevation),
            ]
        )
        camera = look_at(0.30 * eye + [0, 0, 0.04], np.array([0, 0, 0.04]))
        cameras.append(camera)
        images.append(scene.render(K, camera, rest, width, height))
    return {
        "images": np.stack(images),
        "cameras": np.stack(cameras),
        "intrinsics": np.tile(K, (count, 1)),
        "rest": rest,
    }


def push_motion(scene: BoxScene, times: Array, action: str, start: Array) -> Array:
    """T_world_object (n,4,4) of a smooth slide, tap, tilt or flick; start = x, y (m), yaw."""
    h = scene.size / 2
    out = []
    x0, y0, yaw0 = start
    for t in times:
        u = np.clip((t - 0.5) / (0.3 if action == "tap" else 0.7), 0, 1)
        s = u * u * (3 - 2 * u)
        base = pose(rotation("z", yaw0), np.array([x0, y0, h[2]]))
        if action in ("slide", "tap"):
            out.append(
                pose(rotation("z", yaw0 + 0.5 * s), np.array([x0 + 0.05 * s, y0 + 0.01 * s, h[2]]))
            )
        else:
            angle = {"tilt": 0.43 * np.sin(np.pi * u) if u < 1 else 0.0, "flick": np.pi / 2 * u**2}[
                action
            ]
            pivot = np.array([0.0, h[1], -h[2]])
            local = (
                pose(np.eye(3), pivot)
                @ pose(rotation("x", -angle), np.zeros(3))
                @ pose(np.eye(3), -pivot)
            )
            out.append(base @ local)
    return np.array(out)
