"""Import closures, on small packages written for each case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.closure import closure, unclaimed_data

ROOT = Path(__file__).resolve().parents[2]


def project(root: Path, **files: str) -> Path:
    """Write files; ``__`` in a key stands for ``/``, names get ``.py`` unless they have a dot."""
    for key, text in files.items():
        path = root / key.replace("__", "/")
        path = path if "." in path.name else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def files_of(root: Path, entry: str = "stages/a/run.py", stage: str = "a") -> list[str]:
    """Closure of one entry, which must be without faults and holds the entry itself."""
    found = closure(root, [root / entry], stage)
    assert found.faults == ()
    assert entry in found.files
    return [name for name in found.files if name != entry]


@pytest.mark.parametrize(
    "statement",
    [
        "import twinloop.x",
        "import twinloop.x as y",
        "from twinloop import x",
        "from twinloop.x import name",
        "def f():\n    from twinloop import x",
        "try:\n    import twinloop.x\nexcept ImportError:\n    pass",
        "from importlib import import_module\nimport_module('twinloop.x')",
        "import importlib\nimportlib.import_module(f'twinloop.{name}')",
        "run([sys.executable, '-m', 'twinloop.x', name])",
        "run('python', '-m', 'twinloop.x')",
        "from ...twinloop import x",
    ],
)
def test_every_way_to_import_is_followed(tmp_path: Path, statement: str) -> None:
    """Each form of import, lazy and dynamic ones too, puts the file into the closure."""
    root = project(tmp_path, stages__a__run=statement, twinloop__x="name = 1")
    assert files_of(root) == ["twinloop/x.py"]


def test_closure_is_transitive_and_survives_cycles(tmp_path: Path) -> None:
    """X imports y imports x: both are found, once."""
    root = project(
        tmp_path,
        stages__a__run="import twinloop.x",
        twinloop__x="from twinloop import y",
        twinloop__y="from . import x",
    )
    assert files_of(root) == ["twinloop/x.py", "twinloop/y.py"]


def test_package_files_count_only_when_they_do_something(tmp_path: Path) -> None:
    """A docstring cannot change a result; an import in a parent's __init__ can."""
    root = project(tmp_path, stages__a__run="import twinloop.p.x", twinloop__p__x="")
    project(root, **{"twinloop____init__.py": '"""Docstring."""'})
    (root / "twinloop/__init__.py").write_text('"""Docstring."""\n')
    (root / "twinloop/p/__init__.py").write_text("from twinloop import side\n")
    (root / "twinloop/side.py").write_text("")
    assert files_of(root) == ["twinloop/p/__init__.py", "twinloop/p/x.py", "twinloop/side.py"]


def test_public_names_are_not_followed(tmp_path: Path) -> None:
    """The file that hands out names to programs outside counts, what it would load does not."""
    root = project(
        tmp_path, stages__a__run="import twinloop.x", twinloop__x="", twinloop__y="name = 1"
    )
    (root / "twinloop/__init__.py").write_text(
        "def __getattr__(name):\n    from twinloop.y import name\n"
    )
    assert files_of(root) == ["twinloop/__init__.py", "twinloop/x.py"]


def test_type_checking_imports_do_not_count(tmp_path: Path) -> None:
    """What only a type checker imports never runs; its `else` does."""
    root = project(
        tmp_path,
        stages__a__run="if TYPE_CHECKING:\n    import twinloop.x\nelse:\n    import twinloop.y",
        twinloop__x="",
        twinloop__y="",
    )
    assert files_of(root) == ["twinloop/y.py"]


def test_a_stage_pattern_means_the_stage_at_hand(tmp_path: Path) -> None:
    """`import_module(f"stages.{stage}.run")` in shared code is this stage's run, no other's."""
    root = project(
        tmp_path,
        stages__a__main="import stages.harness",
        stages__harness="import_module(f'stages.{stage}.run')",
        stages__a__run="",
        stages__b__run="",
    )
    assert files_of(root, "stages/a/main.py") == ["stages/a/run.py", "stages/harness.py"]


@pytest.mark.parametrize(
    "call", ["import_module(name)", "__import__(a + b)", "import_module(f'{a}.b')"]
)
def test_imports_known_only_at_run_time_are_faults(tmp_path: Path, call: str) -> None:
    """A closure that could not be followed to its end says so."""
    root = project(tmp_path, stages__a__run=f"x = 1\n{call}\n")
    found = closure(root, [root / "stages/a/run.py"])
    assert len(found.faults) == 1
    assert found.faults[0].startswith("stages/a/run.py: line 2: imports a module whose name")


def test_a_syntax_error_is_a_fault(tmp_path: Path) -> None:
    """A file that does not parse has unknown imports."""
    root = project(tmp_path, stages__a__run="def (:\n")
    assert "syntax error" in closure(root, [root / "stages/a/run.py"]).faults[0]


def test_declared_data_files_belong_to_the_closure(tmp_path: Path) -> None:
    """DATA_FILES is relative to its module, with globs; a new matching file is found at once."""
    root = project(
        tmp_path,
        stages__a__run="import twinloop.hand.model",
        twinloop__hand__model='DATA_FILES = ("models/*.yaml", "../shared.html")',
    )
    project(root, **{"twinloop__hand__models__one.yaml": "", "twinloop__shared.html": ""})
    expected = ["twinloop/hand/model.py", "twinloop/hand/models/one.yaml", "twinloop/shared.html"]
    assert files_of(root) == expected
    project(root, **{"twinloop__hand__models__two.yaml": ""})
    assert "twinloop/hand/models/two.yaml" in files_of(root)


@pytest.mark.parametrize(
    ("declared", "fault"),
    [
        ('DATA_FILES = ("absent.yaml",)', "matches no file"),
        ('DATA_FILES = ["x.yaml"]', "must be a literal tuple"),
        ("DATA_FILES = tuple(names)", "must be a literal tuple"),
        ('DATA_FILES: tuple[str, ...] = ("absent.yaml",)', "matches no file"),
    ],
)
def test_wrong_data_declarations_are_faults(tmp_path: Path, declared: str, fault: str) -> None:
    """A declaration that cannot be read, or names nothing, makes the closure unsound."""
    root = project(tmp_path, stages__a__run=declared)
    assert fault in closure(root, [root / "stages/a/run.py"]).faults[0]


def test_data_that_no_module_declares_is_named(tmp_path: Path) -> None:
    """A data file in a package that nobody claims could change results unseen."""
    root = project(tmp_path, stages__a__run='DATA_FILES = ("known.json",)')
    project(
        root, **{"stages__a__known.json": "", "stages__a__lost.json": "", "stages__README.md": ""}
    )
    assert unclaimed_data(root) == ["stages/a/lost.json"]


def test_commands_start_without_the_libraries_of_the_stages() -> None:
    """`twinloop status` would wait seconds for readers of captures that it never uses."""
    heavy = ("numpy", "xarray", "zarr", "torch", "scipy", "cv2", "prefect")
    code = "import sys, pipelines.cli, pipelines.nightly, twinloop.cli.main; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not set(heavy) & set(done.stdout.split())
