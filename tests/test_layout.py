"""The layout's rules: imports go one way, modules stay small, every declared library is used."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

import twinloop
from twinloop.card import STAGES

ROOT = Path(__file__).parents[1]
SHIPPED = sorted(
    p for top in ("twinloop", "stages", "pipelines") for p in (ROOT / top).rglob("*.py")
)
PUBLIC = ROOT / "twinloop" / "__init__.py"
CORE = {
    "dvc": "dvc",
    "prefect": "prefect",
    "torch": "torch",
    "warp-lang": "warp",
    "gsplat": "gsplat",
    "zarr": "zarr",
    "xarray": "xarray",
    "pydantic": "pydantic",
    "numpy": "numpy",
    "opencv-python-headless": "cv2",
}


@cache  # each of some two hundred files is asked for by a dozen tests
def imported(path: Path) -> frozenset[str]:
    """Return the dotted names of all modules that a file imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "require"
            and isinstance(node.args[0], ast.Constant)
        ):  # an optional library, see twinloop.extras
            names.add(str(node.args[0].value))
    return frozenset(names)


def tops(path: Path) -> set[str]:
    """Return the top-level packages that a file imports."""
    return {name.split(".")[0] for name in imported(path)}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    """The library imports no stage, a stage no other stage, and neither knows Prefect or DVC."""
    package = path.relative_to(ROOT).parts[0]
    if package == "twinloop":
        assert not tops(path) & {"stages", "pipelines", "prefect", "dvc", "tests", "benchmarks"}
    if package == "stages":
        assert not tops(path) & {"pipelines", "prefect", "dvc", "tests", "benchmarks"}
        own = path.relative_to(ROOT).parts[1]
        others = {s for s in STAGES if s != own}
        used = {n.split(".")[1] for n in imported(path) if n.startswith("stages.")}
        assert not used & others, f"{path} imports another stage"


def test_the_estimator_shares_no_physics_with_the_lab():
    """No code file of ingest to identify, directly or through others, is the lab or MuJoCo."""
    graph = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    for stage in ("ingest", "reconstruct", "track", "push", "identify"):
        code = [dep for dep in graph[stage]["do"]["deps"] if dep.endswith(".py")]
        assert len(code) > 10
        for dep in code:
            assert not dep.startswith("twinloop/lab/"), f"{stage} depends on {dep}"
            assert "mujoco" not in tops(ROOT / dep), f"{stage} depends on {dep}"


def test_only_lab_and_evaluate_may_touch_the_lab():
    """Every other stage is free of lab code, directly or through the library."""
    for stage in set(STAGES) - {"lab", "evaluate"}:
        for path in (ROOT / "stages" / stage).rglob("*.py"):
            assert not any(name.startswith("twinloop.lab") for name in imported(path)), path
    for path in (ROOT / "twinloop").rglob("*.py"):
        if path.relative_to(ROOT).parts[1] not in ("lab", "cli"):
            assert not any(name.startswith("twinloop.lab") for name in imported(path)), path


def test_modules_are_small_and_named():
    """No module over 400 lines, no `utils`, and package files hold a docstring only."""
    for path in SHIPPED:
        assert len(path.read_text().splitlines()) <= 400, f"{path} is too long"
        assert "utils" not in path.stem, path
        if path.name == "__init__.py" and path != PUBLIC:
            body = ast.parse(path.read_text()).body
            assert len(body) == 1, f"{path} holds code"
            assert isinstance(body[0], ast.Expr), path


def test_public_names_are_loaded_only_from_outside():
    """`twinloop/__init__.py` runs no import by itself, and no shipped module asks it for a name.

    The import closures leave it out, so a stage that used it would have wrong cache hits.
    """
    body = ast.parse(PUBLIC.read_text()).body
    loaded = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
    assert {n.module for n in loaded if isinstance(n, ast.ImportFrom)} == {"__future__", "typing"}
    assert len(loaded) == 2
    public = {f"twinloop.{name}" for name in twinloop.__all__}
    modules = {f"twinloop.{p.stem}" for p in (ROOT / "twinloop").glob("*")}
    assert not public & modules
    for path in SHIPPED:
        if path != PUBLIC:
            assert not imported(path) & public, path


@pytest.mark.parametrize("package", sorted(CORE))
def test_every_core_package_is_declared_and_used(package):
    """Each package of the core stack is a dependency and shipped code uses it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert any(d.startswith(f"{package}>") for d in project["dependencies"]), package
    module = CORE[package]
    users = [str(p.relative_to(ROOT)) for p in SHIPPED if module in tops(p)]
    runs_it = [
        str(p.relative_to(ROOT)) for p in SHIPPED if f'"-m", "{module}"' in p.read_text()
    ]  # DVC is used through its command line
    assert users or runs_it, f"nothing uses {package}"


def test_every_dependency_is_justified():
    """Each dependency line of pyproject.toml says in a comment what it is for."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for line in lines:
        if line.strip().startswith('"') and ">=" in line:
            assert "#" in line, f"no reason given: {line.strip()}"


def test_the_lock_installs_anywhere():
    """The lock pins versions only: no local labels, hashes, addresses or paths."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert "torch==2.13.0" in lines
    for line in lines:
        if line and not line.startswith("#"):
            version = line.partition("==")[2]
            assert version, line
            assert not set("+@/ ") & set(line.split(";")[0]), line


def test_one_word_per_stage_everywhere():
    """The graph, the params, the packages and the cards use the same ten words."""
    graph = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert tuple(graph) == STAGES
    for stage in STAGES:
        assert {"__init__.py", "__main__.py", "params.py", "schema.py", "run.py", "report.py"} <= {
            p.name for p in (ROOT / "stages" / stage).iterdir()
        }, stage
        assert stage in params
        for profile in params["profiles"].values():
            assert stage in profile
    assert not (ROOT / "datasets" / "__init__.py").exists()


def test_library_versions_in_the_cache_key_are_those_that_the_code_imports():
    """Each stage's versions.yaml keys are the numeric libraries that its code files import."""
    numeric = {
        "av": "av",
        "coacd": "coacd",
        "cv2": "opencv-python-headless",
        "fast_simplification": "fast-simplification",
        "gsplat": "gsplat",
        "h5py": "h5py",
        "lzfse": "lzfse",
        "mcap": "mcap",
        "mcap_ros2": "mcap-ros2-support",
        "mujoco": "mujoco",
        "numpy": "numpy",
        "onnxruntime": "onnxruntime",
        "OpenEXR": "openexr",
        "PIL": "pillow",
        "pillow_heif": "pillow-heif",
        "pyarrow": "pyarrow",
        "pycolmap": "pycolmap",
        "rosbags": "rosbags",
        "safetensors": "safetensors",
        "scipy": "scipy",
        "skimage": "scikit-image",
        "torch": "torch",
        "trimesh": "trimesh",
        "warp": "warp-lang",
        "xarray": "xarray",
        "xatlas": "xatlas",
        "zarr": "zarr",
    }
    versions = yaml.safe_load((ROOT / "versions.yaml").read_text())
    for stage, entry in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].items():
        code = [ROOT / dep for dep in entry["do"]["deps"] if dep.endswith(".py")]
        used = {numeric[top] for path in code for top in tops(path) if top in numeric}
        declared = next(
            set(p["versions.yaml"])
            for p in entry["do"]["params"]
            if isinstance(p, dict) and "versions.yaml" in p
        )
        assert declared == used | {"device"}, stage
        assert declared <= set(versions), stage
