"""The house rules that no other tool checks: sizes, names, docstrings, registries; and the imports' own check."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    "api", "cli", "collectors", "dashboard", "diagnosis", "foreshock", "goodput",
    "parsers", "predictor", "schedulers", "simulator", "store", "wire",
)  # fmt: skip
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "core", "misc", "base", "lib"}
# Import names on PyPI that a top-level folder of ours would hide.
FORBIDDEN_PACKAGES = {"events", "records", "fixtures"}
MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 500, 50, 6
MOST_FILES_OF_A_FOLDER, FEW_LINES, LONGEST_CHAIN = 12, 60, 12
# Folders of registered units: one file a unit, so their number is no fault.
UNITS = {"formats", "sources", "routes", "views", "features", "commands", "gauges"}

FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
OURS = [path for path in FILES if "migrations" not in path.parts]
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """The path as the rules speak of it."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """What a file says."""
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """The trees of all files are large: they are kept for these tests alone."""
    yield
    tree_of.cache_clear()


def test_every_room_of_the_house_is_there() -> None:
    """A folder with a docstring that says what it holds; and no other package beside them: `deploy` holds no code."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"benchmarks", "deploy"} == set(ROOMS)
    assert [path.name for path in (ROOT / "deploy").rglob("*.py")] == ["__init__.py"]
    assert not packages & FORBIDDEN_PACKAGES


def test_rows_that_are_fetched_in_parts_are_read_in_a_with() -> None:
    """A reader that ends halfway would leave its cursor open: on PostgreSQL it holds what it found."""
    assert [f"{name_of(path)}:{line}" for path in OURS for line in _left_open(path)] == []


def _left_open(path: Path) -> Iterator[int]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.For | ast.comprehension):
            words = ast.unparse(node.iter)
            if ".execute(" in words and ("yield_per" in words or ".partitions(" in words):
                yield node.iter.lineno


def test_scipy_is_loaded_where_it_computes() -> None:
    """At the top of a module it is a fifth of a server's start, and 50 MB of its memory; training alone may have it."""
    found = [
        name_of(path)
        for path in OURS
        for node in tree_of(path).body
        if isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node).split()[1].startswith("scipy")
    ]
    assert found == ["predictor/model/skill.py"]


def test_every_file_keeps_the_limits() -> None:
    """Lines of a file and a function, parameters, types, docstrings of the module and its public classes."""
    assert [f"{name_of(path)}: {wrong}" for path in OURS for wrong in _wrong_of_file(path)] == []


def _wrong_of_file(path: Path) -> Iterator[str]:
    text, tree = path.read_text(encoding="utf-8"), tree_of(path)
    if len(text.splitlines()) > MOST_FILE_LINES:
        yield f"{len(text.splitlines())} lines"
    if not ast.get_docstring(tree):
        yield "no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"class {node.name} has no docstring"
        if isinstance(node, FUNCTIONS):
            yield from _wrong_of_function(node)


def _wrong_of_function(node: FUNCTIONS) -> Iterator[str]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    if lines > MOST_FUNCTION_LINES:
        yield f"{node.name} has {lines} lines"
    if len(arguments) > MOST_PARAMETERS:
        yield f"{node.name} has {len(arguments)} parameters"
    if node.returns is None:
        yield f"{node.name} has no return type"


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    """`utils` and the like collect what belongs elsewhere."""
    names = {part for path in FILES for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not names & FORBIDDEN_NAMES


def test_tests_and_fixtures_are_no_packages() -> None:
    """pytest imports by path (--import-mode=importlib); an __init__.py would make two modules of one file."""
    assert [*(ROOT / "tests").rglob("__init__.py"), *(ROOT / "fixtures").rglob("__init__.py")] == []


def test_nothing_beside_the_dashboard_s_app_bears_the_name_of_a_room() -> None:
    """Streamlit puts dashboard/ first on the path: dashboard/store.py would be imported as `store`."""
    taken = {path.stem for path in (ROOT / "dashboard").iterdir()} & {*ROOMS, "benchmarks", "tests"}
    assert taken == set()


def imported(room: str) -> set[str]:
    """The modules of a room that its registry imports."""
    tree = ast.parse((ROOT / room / "registry.py").read_text(encoding="utf-8"))
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {module.split(".")[1] for module in found if module.startswith(f"{room}.")}


@pytest.mark.parametrize("room", [room for room in ROOMS if (ROOT / room / "registry.py").exists()])
def test_a_registry_names_only_modules_that_are_there(room: str) -> None:
    """And importing it works."""
    import_module(f"{room}.registry")
    there = {path.stem for path in (ROOT / room).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert imported(room) - there == set()


def test_imports_run_downward_only() -> None:
    """The contracts of import-linter: floors, a light node, the dashboard that asks the API."""
    lint = Path(sys.executable).parent / "lint-imports"
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]


def imports(top_only: bool) -> dict[str, set[str]]:
    """The modules of ours that each module imports; with `top_only` those that it imports when it is loaded."""
    modules = {name_of(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__"): path for path in OURS}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = tree_of(path)
        found: set[str] = set()
        for node in tree.body if top_only else ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        graph[module] = (found & modules.keys()) - {module}
    return graph


def test_import_chains_are_short_and_go_in_no_circle() -> None:
    """Module by module, at import time; the longest way down is bounded."""
    graph, floor = imports(top_only=True), 0
    while graph:
        leaves = {module for module, needs in graph.items() if not needs & graph.keys()}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {module: needs for module, needs in graph.items() if module not in leaves}
        floor += 1
        assert floor <= LONGEST_CHAIN, f"too long a chain down from {sorted(graph)}"


def test_the_folders_of_a_room_know_each_other_in_one_direction() -> None:
    """A room can be read in one order: what is above is made of what is below."""
    graph: dict[str, set[str]] = {}
    for module, needs in imports(top_only=False).items():
        door = ".".join(module.split(".")[:2])
        doors = {
            ".".join(need.split(".")[:2])
            for need in needs
            if need.count(".") and need.split(".")[0] == door.split(".")[0]
        }
        graph.setdefault(door, set()).update(doors - {door})
    while graph:
        leaves = {door for door, needs in graph.items() if not needs & graph.keys()}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {door: needs for door, needs in graph.items() if door not in leaves}


def test_a_folder_has_few_files_at_its_top() -> None:
    """More want a folder of their own; registered units are exempt."""
    folders: dict[Path, int] = {}
    for path in OURS:
        folders[path.parent] = folders.get(path.parent, 0) + (path.name != "__init__.py")
    crowded = {name_of(folder): count for folder, count in folders.items() if count > MOST_FILES_OF_A_FOLDER}
    assert {name: count for name, count in crowded.items() if name.rsplit("/", 1)[-1] not in UNITS} == {}


def test_a_small_file_with_one_importer_belongs_into_it() -> None:
    """Where both are of one room, and no registry names the file."""
    importers: dict[str, set[str]] = {}
    for module, needs in imports(top_only=False).items():
        for need in needs:
            importers.setdefault(need, set()).add(module)
    small = [
        f"{name_of(path)} belongs into {user}"
        for path in OURS
        if path.name != "__init__.py" and path.parent.name not in UNITS
        if len(path.read_text(encoding="utf-8").splitlines()) < FEW_LINES
        for users in [importers.get(name_of(path).removesuffix(".py").replace("/", "."), set())]
        for user in users
        if len(users) == 1 and user.split(".")[0] == path.relative_to(ROOT).parts[0]
    ]
    assert small == []


def test_no_two_rooms_have_a_class_of_one_name() -> None:
    """A name means one thing in the whole house."""
    rooms: dict[str, set[str]] = {}
    for path in OURS:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                rooms.setdefault(node.name.lstrip("_"), set()).add(path.relative_to(ROOT).parts[0])
    assert {name: sorted(found) for name, found in rooms.items() if len(found) > 1} == {}
