"""Which process has which tests."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from distribution import arrange, groups_of

TESTS = Path(__file__).parent
RUN = ["-m", "pytest", "-n", "2", "-v", "-p", "no:cacheprovider", "-c", os.devnull]
MODULE = """
import time
import pytest

@pytest.mark.parametrize("n", range(6))
def test_alone(n):
    time.sleep(0.01)

@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.xdist_group("server")) for n in range(6)])
def test_together(n):
    time.sleep(0.01)
"""

SERVER = """

from contextlib import contextmanager

@contextmanager
def started():
    print("start")
    yield "asked"
    print("stop")

@pytest.fixture
def server(request):
    return shared(request.config, "server", started)

def pytest_collection_modifyitems(items):
    arrange(items)
"""
GROUPED = """
import pytest

@pytest.mark.xdist_group("server")
def test_it(server):
    print(server)
"""


def item(parent: pytest.Collector, name: str, *marks: pytest.MarkDecorator | str) -> pytest.Item:
    """A test of this file with these marks."""
    made: pytest.Item = pytest.Function.from_parent(parent, name=name, callobj=lambda: None)
    for mark in marks:
        made.add_marker(mark)
    return made


@pytest.fixture
def parent(request: pytest.FixtureRequest) -> pytest.Collector:
    """What tests are collected from."""
    found: pytest.Collector = request.node.parent
    return found


def test_a_group_and_a_file_each_have_one_process(tmp_path: Path) -> None:
    """Three files with a group over all of them, by two processes."""
    hooks = (TESTS / "distribution.py").read_text()
    (tmp_path / "conftest.py").write_text(hooks)
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(MODULE)
    command = [sys.executable, *RUN, "--rootdir", tmp_path, "--dist", "loadgroup", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^\[(gw\d)\].* PASSED test_(\w)\.py::test_(\w+)\[", done.stdout, re.MULTILINE)
    assert len(lines) == 36
    assert done.stderr == ""
    processes = defaultdict(set)
    for process, file, kind in lines:
        processes["group" if kind == "together" else file].add(process)
    assert {share: len(found) for share, found in processes.items()} == {"group": 1, "a": 1, "b": 1, "c": 1}
    assert len(set().union(*processes.values())) == 2


def test_a_parameter_s_group_goes_before_its_module_s(parent: pytest.Collector) -> None:
    """A test of several servers is with the one that its parameter names."""
    mark = pytest.mark.xdist_group
    items = [item(parent, "test_a"), item(parent, "test_b", mark("nats")), item(parent, "test_c", mark("a"), mark("b"))]
    assert list(groups_of(items).values()) == ["nats", "a"]


def test_what_starts_a_server_comes_first_and_parsers_last(
    parent: pytest.Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And within each as collected."""
    monkeypatch.setattr("distribution.QUICK", f"{parent.nodeid}::test_quick")
    named = [("quick_p",), ("a",), ("b", "slow"), ("quick_q", "integration"), ("t",)]
    items = [item(parent, f"test_{name}", *marks) for name, *marks in named]
    arrange(items)
    assert [item.name for item in items] == ["test_b", "test_quick_q", "test_a", "test_t", "test_quick_p"]


def test_a_group_s_server_ends_behind_the_last_of_its_tests(tmp_path: Path) -> None:
    """It starts once, for the first of them; two files of a group share it, wherever they were collected."""
    (tmp_path / "conftest.py").write_text((TESTS / "distribution.py").read_text() + SERVER)
    for name, body in {"a": GROUPED, "b": "def test_b():\n    print('b')\n", "c": GROUPED}.items():
        (tmp_path / f"test_{name}.py").write_text(body)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-c", os.devnull, tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"start|asked|stop|\bb\b", done.stdout) == ["start", "asked", "asked", "stop", "b"]
