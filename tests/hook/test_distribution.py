"""The distribution foreshock-hook: one import name, no dependency, safe inside a program with packages of any name."""

import ast
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from real.patience import patience

HOOK = Path(__file__).parents[2] / "hook"
BIN = Path(sys.executable).parent
FILES = sorted((HOOK / "foreshock_hook").glob("*.py"))
# What a training program's own folder may hold: rooms of Foreshock have these names too.
ROOMS = ("api", "store", "collectors", "parsers")


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a program that succeeds."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=patience(120))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this repository without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    run(BIN / "uv", "build", "--offline", "--wheel", "--out-dir", folder, HOOK, cwd=folder)
    (found,) = folder.glob("foreshock_hook-*-py3-none-any.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment in which nothing but the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(BIN / "uv", "pip", "install", "--offline", "--no-index", "--no-deps", "--python", python, wheel, cwd=folder)
    return python


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A training program's folder. Its packages bear names of Foreshock's rooms, and to import one is an error."""
    for name in ROOMS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the program did not import this')\n")
    return tmp_path


def test_the_wheel_has_one_top_level_name_and_no_dependency(wheel: Path) -> None:
    """Beside its metadata; what the metadata requires is a Python and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    version = tomllib.loads((HOOK / "pyproject.toml").read_text())["project"]["version"]
    assert tops == {"foreshock_hook", f"foreshock_hook-{version}.dist-info"}
    assert "Requires-Dist" not in metadata
    assert "Requires-Python: >=3.7" in metadata


def test_the_versions_of_foreshock_and_its_hook_are_the_same() -> None:
    """They are released together."""
    versions = [
        tomllib.loads(file.read_text())["project"]["version"]
        for file in (HOOK / "pyproject.toml", HOOK.parent / "pyproject.toml")
    ]
    assert versions[0] == versions[1]


@pytest.mark.parametrize("module", [f"foreshock_hook.{path.stem}".removesuffix(".__init__") for path in FILES])
def test_a_program_s_own_packages_are_not_touched(python: Path, program: Path, module: str) -> None:
    """Each module, imported from the wheel in a folder with rooms' names, loads the standard library alone."""
    loads = "print(it.__file__, *set(sys.modules) - before)"
    code = f"import sys; before = set(sys.modules); import {module} as it; {loads}"
    file, *loaded = run(python, "-c", code, cwd=program).split()
    assert "site-packages" in file
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert foreign == {"foreshock_hook"}


def test_the_installed_hook_writes_lines_and_the_program_keeps_its_packages(python: Path, program: Path) -> None:
    """The program's `store` is its own after the hook is imported."""
    (program / "store" / "__init__.py").write_text("NAME = 'of the program'\n")
    code = (
        "from foreshock_hook import TrainingHook\nimport store\n"
        "with TrainingHook('run-7', 'run-7.jsonl', rank=0) as hook:\n    hook.step(1)\nprint(store.NAME)"
    )
    assert run(python, "-c", code, cwd=program) == "of the program\n"
    lines = (program / "run-7.jsonl").read_text().splitlines()
    assert [line.partition('"what": "')[2].partition('"')[0] for line in lines] == ["start", "step", "end"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_one_that_python_3_7_reads(path: Path) -> None:
    """Its grammar; and annotations, which use later names, are never evaluated."""
    tree = ast.parse(path.read_text(), feature_version=(3, 7))
    annotated = any(isinstance(node, ast.AnnAssign | ast.arg) for node in ast.walk(tree))
    assert not annotated or any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
