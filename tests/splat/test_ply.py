"""PLY files of splats: exact round trips, every layout that tools write, and what is refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gsplat.exporter import export_splats

from twinloop.errors import InputError
from twinloop.splat.encoding import encode, flat_gaussians
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.ply import read_ply, read_splats, write_ply
from twinloop.splat.surfels import Surfels


def some(count: int, degree: int, seed: int = 0) -> Gaussians:
    """Random Gaussians over the whole range of sizes and opacities that training gives."""
    random = np.random.default_rng(seed)
    quaternions = random.normal(size=(count, 4))
    return Gaussians(
        random.normal(size=(count, 3)).astype(np.float32),
        (quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)).astype(np.float32),
        np.exp(random.uniform(-12, 0, (count, 3))).astype(np.float32),
        random.uniform(size=count).astype(np.float32) ** 3,
        random.normal(size=(count, (degree + 1) ** 2, 3)).astype(np.float32),
    )


def file_of(path: Path, splats: Gaussians | Surfels) -> bytes:
    """The bytes that `write_ply` writes."""
    write_ply(splats, path)
    return path.read_bytes()


def columns(path: Path) -> dict[str, np.ndarray]:
    """The properties of a file of our own layout."""
    head, body = path.read_bytes().split(b"end_header\n", 1)
    names = [line.split()[2] for line in head.decode().splitlines() if line.startswith("property")]
    table = np.frombuffer(body, "<f4").reshape(-1, len(names))
    return {name: table[:, i] for i, name in enumerate(names)}


def store(path: Path, values: dict[str, np.ndarray], form: str = "binary_little_endian") -> None:
    """Write a PLY with the given properties, in their order and type."""
    names = {"f4": "float", "f8": "double", "u1": "uchar", "i4": "int"}
    count = len(next(iter(values.values())))
    head = f"ply\nformat {form} 1.0\ncomment by another tool\nelement vertex {count}\n"
    for name, array in values.items():
        head += f"property {names[array.dtype.str[1:]]} {name}\n"
    if form == "ascii":
        rows = [" ".join(repr(v.item()) for v in row) for row in zip(*values.values(), strict=True)]
        body = ("\n".join(rows) + "\n").encode()
    else:
        order = "<" if form == "binary_little_endian" else ">"
        layout = [(k, v.dtype.newbyteorder(order)) for k, v in values.items()]
        table = np.empty(count, layout)
        for name, array in values.items():
            table[name] = array
        body = table.tobytes()
    path.write_bytes(head.encode() + b"end_header\n" + body)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_reading_and_writing_again_changes_no_byte(tmp_path: Path, degree: int) -> None:
    """Write, read, write gives the same bytes, and reading again the same bits."""
    start = some(2000, degree)
    first = file_of(tmp_path / "a.ply", start)
    once = read_ply(tmp_path / "a.ply")
    assert file_of(tmp_path / "b.ply", once) == first
    again = read_ply(tmp_path / "b.ply")
    for name in ("means", "quaternions", "scales", "opacities", "sh", "stored"):
        np.testing.assert_array_equal(getattr(once, name), getattr(again, name))


def test_a_foreign_file_survives_bit_for_bit(tmp_path: Path) -> None:
    """Raw numbers of another trainer (long quaternions, saturated opacities) come back as given."""
    path = tmp_path / "a.ply"
    file_of(path, some(3000, 1))
    values = {k: v.copy() for k, v in columns(path).items()}
    random = np.random.default_rng(1)
    for i in range(4):
        values[f"rot_{i}"] = random.normal(size=3000).astype(np.float32) * 3
    values["opacity"] = random.uniform(-20, 40, 3000).astype(np.float32)
    for i in range(3):
        values[f"scale_{i}"] = random.uniform(-40, 3, 3000).astype(np.float32)
    store(path, values)
    raw = path.read_bytes().split(b"end_header\n", 1)[1]
    gaussians = read_ply(path)
    assert file_of(tmp_path / "b.ply", gaussians).split(b"end_header\n", 1)[1] == raw
    np.testing.assert_allclose(np.linalg.norm(gaussians.quaternions, axis=1), 1, atol=1e-6)
    # A changed array outweighs what the file said.
    faded = Gaussians(*vars(gaussians).values()).opacities * np.float32(0.5)
    changed = Gaussians(**{**vars(gaussians), "opacities": faded})
    np.testing.assert_allclose(1 / (1 + np.exp(-encode(changed)[:, 0].astype(float))), faded, 1e-5)


def test_arrays_come_back_as_near_as_the_format_allows(tmp_path: Path) -> None:
    """Means, quaternions' numbers and colours exactly; the rest to the resolution of the logs."""
    start = some(5000, 3)
    start.opacities[:2] = 0, 1
    write_ply(start, tmp_path / "a.ply")
    back = read_ply(tmp_path / "a.ply")
    np.testing.assert_array_equal(back.means, start.means)
    np.testing.assert_array_equal(back.sh, start.sh)
    np.testing.assert_array_equal(encode(back)[:, 4:], start.quaternions)
    np.testing.assert_allclose(back.scales, start.scales, rtol=6e-7)
    np.testing.assert_allclose(back.opacities, start.opacities, rtol=6e-7, atol=1e-9)
    np.testing.assert_array_equal(back.opacities[:2], [0, 1])
    half = start.opacities >= 0.5
    np.testing.assert_array_equal(back.opacities[half], start.opacities[half])


def test_the_layout_is_that_of_the_original_code(tmp_path: Path) -> None:
    """Names in the original order, which a viewer that reads by position needs."""
    write_ply(some(3, 3), tmp_path / "a.ply")
    names = list(columns(tmp_path / "a.ply"))
    assert names[:9] == ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2"]
    assert names[9:54] == [f"f_rest_{i}" for i in range(45)]
    assert names[54:] == [
        *("opacity", "scale_0", "scale_1", "scale_2"),
        *("rot_0", "rot_1", "rot_2", "rot_3"),
    ]


def test_files_of_gsplat_are_read(tmp_path: Path) -> None:
    """What gsplat's exporter writes of given raw numbers is what is read, bit for bit."""
    start = some(500, 2)
    raw = encode(start)
    sh = torch.from_numpy(start.sh)
    parts = [start.means, raw[:, 1:4], raw[:, 4:8], raw[:, 0]]
    tensors = [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]
    path = tmp_path / "gsplat.ply"
    path.write_bytes(export_splats(*tensors, sh[:, :1], sh[:, 1:], format="ply"))
    back = read_ply(path)
    np.testing.assert_array_equal(back.stored, raw)
    np.testing.assert_array_equal(back.sh, start.sh)


@pytest.mark.parametrize("form", ["binary_little_endian", "binary_big_endian", "ascii"])
def test_any_order_type_and_company(tmp_path: Path, form: str) -> None:
    """Shuffled properties among unknown ones, doubles, either byte order, text: the same arrays."""
    path = tmp_path / "a.ply"
    start = some(300, 1)
    write_ply(start, path)
    plain, values = read_ply(path), columns(path)
    random = np.random.default_rng(2)
    names = [str(n) for n in random.permutation(list(values))]
    odd = {"red": random.integers(0, 255, 300).astype(np.uint8)}
    for i, name in enumerate(names):
        odd[name] = values[name].astype(np.float64) if i % 5 == 0 else values[name]
        odd[f"extra_{i}"] = random.integers(-9, 9, 300).astype(np.int32)
    store(path, odd, form)
    back = read_ply(path)
    for name in ("means", "quaternions", "scales", "opacities", "sh", "stored"):
        np.testing.assert_array_equal(getattr(back, name), getattr(plain, name))


def test_other_elements_before_and_behind(tmp_path: Path) -> None:
    """A camera before and faces behind the vertices are stepped over; CRLF headers too."""
    path = tmp_path / "a.ply"
    write_ply(some(4, 0), path)
    plain = read_ply(path)
    head, body = path.read_bytes().split(b"end_header\n", 1)
    camera = b"element camera 2\nproperty double fx\nproperty uchar on\n"
    head = head.replace(b"element vertex", camera + b"element vertex")
    head += b"element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    path.write_bytes(head.replace(b"\n", b"\r\n") + b"\0" * 18 + body + b"\3" + b"\0" * 12)
    np.testing.assert_array_equal(read_ply(path).means, plain.means)


def test_surfels_are_known_again(tmp_path: Path) -> None:
    """Surfels come back as surfels, carry normals, and a file of 2DGS, with two scales, is read."""
    start = some(200, 1)
    surfels = Surfels(
        start.means, start.quaternions, start.scales[:, :2], start.opacities, start.sh
    )
    path = tmp_path / "a.ply"
    first = file_of(path, surfels)
    back = read_splats(path)
    assert isinstance(back, Surfels)
    np.testing.assert_allclose(back.scales, surfels.scales, rtol=6e-7)
    values = columns(path)
    normals = np.stack([values["nx"], values["ny"], values["nz"]], axis=1)
    np.testing.assert_allclose(normals, surfels.normals, atol=1e-6)
    assert isinstance(read_ply(path), Gaussians)
    np.testing.assert_allclose(read_ply(path).scales, flat_gaussians(back).scales, rtol=1e-6)
    del values["scale_2"]
    store(path, values)
    two = read_splats(path)
    assert isinstance(two, Surfels)
    np.testing.assert_array_equal(two.scales, back.scales)
    assert isinstance(read_splats(path), Surfels)
    assert len(first) > 0
    write_ply(start, path)
    assert isinstance(read_splats(path), Gaussians)


def damaged(tmp_path: Path) -> Path:
    """A small good file to damage."""
    path = tmp_path / "a.ply"
    write_ply(some(50, 1), path)
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"vertex 50", b"vertex 51", "promises 51 Gaussians.*cut or damaged"),
        (b"vertex 50", b"vertex 2000000000", "promises 2000000000"),
        (b"vertex 50", b"vertex 99999999999999999999", "expected 'element NAME COUNT'"),
        (b"vertex 50", b"vertex -50", "expected 'element NAME COUNT'"),
        (b"vertex 50", b"vertex 0", "holds 0 Gaussians"),
        (b"element vertex", b"element corner", "no PLY file with an 'element vertex'"),
        (b"ply\n", b"PLY\n", "is no PLY file"),
        (b"end_header", b"end_heads_", "is no PLY file"),
        (b"binary_little_endian", b"zipped", "format .*'zipped'.* is not known"),
        (b"float opacity", b"half opacity", "expected 'property TYPE NAME'"),
        (b"float opacity", b"float density", "properties opacity are missing"),
        (b"float nx", b"float x", "declared twice"),
        (b"float f_rest_8", b"float f_best_8", "8 f_rest_ properties"),
        (b"float f_rest_8", b"list uchar int f_rest_8", "has the list 'f_rest_8'"),
        (b"float nx", b"float packed_position", "compressed PLY"),
    ],
)
def test_wrong_headers(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    """Each says what is wrong; none allocates what a header promises."""
    path = damaged(tmp_path)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_ply(path)


def test_wrong_numbers(tmp_path: Path) -> None:
    """NaN, infinite scales, scales that are no logarithms, and empty quaternions are named."""
    path = damaged(tmp_path)
    good = {k: v.copy() for k, v in columns(path).items()}
    for name, value, message in (
        ("f_dc_1", np.nan, "property f_dc_1 of Gaussian 7 is nan"),
        ("scale_0", np.inf, "property scale_0 of Gaussian 7 is inf"),
        ("scale_2", 250.0, r"scales up to exp\(250\) m"),
    ):
        bad = {**good, name: good[name].copy()}
        bad[name][7] = value
        store(path, bad)
        with pytest.raises(InputError, match=message):
            read_ply(path)
    store(path, {**good, **{f"rot_{i}": 0 * good["x"] for i in range(4)}})
    with pytest.raises(InputError, match=r"rot_0\.\.rot_3 of Gaussian 0 are 0"):
        read_ply(path)
    store(path, {k: v for k, v in good.items() if k in ("x", "y", "z", "nx")})
    with pytest.raises(InputError, match="looks like a mesh or a point cloud"):
        read_ply(path)
    store(path, good, "ascii")
    path.write_bytes(path.read_bytes().replace(b"end_header\n", b"end_header\nword "))
    with pytest.raises(InputError, match="not all numbers"):
        read_ply(path)
    path.write_bytes(path.read_bytes().replace(b"end_header\n", b"end_header\n" + b"1 " * 10**5))
    with pytest.raises(InputError, match=r"a line is longer than \d+ bytes"):
        read_ply(path)
    with pytest.raises(InputError, match="no such file"):
        read_ply(tmp_path / "none.ply")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    """Bad arrays are refused, and a file that was there stays."""
    path = damaged(tmp_path)
    before, good = path.read_bytes(), some(10, 0)
    for name, value, message in (
        ("means", np.nan, "means of 1 Gaussians are not finite"),
        ("scales", 0.0, "smallest scale is 0 m"),
        ("opacities", 1.5, "opacities run from"),
    ):
        bad = getattr(good, name).copy()
        bad[3] = value
        with pytest.raises(InputError, match=message):
            write_ply(Gaussians(**{**vars(good), name: bad}), path)
    with pytest.raises(InputError, match="no Gaussians"):
        write_ply(Gaussians(*(v[:0] for v in list(vars(good).values())[:5])), path)
    assert path.read_bytes() == before


MILLION = """
import resource, sys, time
import numpy as np
from pathlib import Path
from twinloop.splat.ply import read_ply, write_ply
path = Path(sys.argv[1])
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
g = read_ply(path)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(time.process_time() - start, (peak - base) / 1024)
"""


def test_a_million_gaussians(tmp_path: Path) -> None:
    """A million of degree 1 are read in a few CPU seconds, in little more than they take."""
    path = tmp_path / "big.ply"
    small, n = some(1000, 1), 1_000_000
    write_ply(small, path)
    head, body = path.read_bytes().split(b"end_header\n", 1)
    head = head.replace(b"vertex 1000", b"vertex 1000000") + b"end_header\n"
    with path.open("wb") as file:
        file.write(head)
        for _ in range(n // 1000):
            file.write(body)
    run = [sys.executable, "-c", MILLION, str(path)]
    seconds, megabytes = map(float, subprocess.check_output(run).split())
    arrays = n * 4 * (3 + 4 + 3 + 1 + 12 + 8) / 2**20
    assert seconds < 6
    assert megabytes < 2.2 * arrays, f"{megabytes:.0f} MB for {arrays:.0f} MB of arrays"
