"""Which process of a parallel run has which tests, and what starts first: hooks for tests/conftest.py.

Tests of one server (xdist_group) stay together, so that it runs once, and so do tests of one file: what they share is
made once. xdist hands groups on in the names of tests, which pytest 9.2 does not let it change
(pytest-dev/pytest-xdist#1386): it says nothing and scatters them. Here a process writes them to a file.
"""

import json
import os
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

LONG_MARKS = ("xdist_group", "integration", "slow", "crash")
QUICK = "tests/parsers/"
FEW_CORES = 4
FILE = pytest.StashKey[Path]()


class GroupOrFile(LoadScopeScheduling):
    """Hands out a group or a file at a time, in the order of the collection."""

    @cached_property
    def groups(self) -> dict[str, str]:
        """The group of each test that has one."""
        found: dict[str, str] = json.loads(_file(self.config).read_text())
        return found

    def _split_scope(self, nodeid: str) -> str:
        return self.groups.get(nodeid) or nodeid.split("::", 1)[0]


def _file(config: pytest.Config) -> Path:
    """Where the processes of this run write their groups."""
    if FILE not in config.stash:
        handle, name = tempfile.mkstemp(prefix="groups-", suffix=".json")
        os.close(handle)
        config.stash[FILE] = Path(name)
        config.add_cleanup(lambda: Path(name).unlink(missing_ok=True))
    return config.stash[FILE]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each process learns the file's name."""
    node.workerinput["groups"] = str(_file(node.config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """The first process writes the groups, before xdist says that it has collected."""
    given = getattr(session.config, "workerinput", {})
    if given.get("workerid") == "gw0":
        Path(given["groups"]).write_text(json.dumps(groups_of(session.items)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupOrFile | None:
    """That of `--dist loadgroup`; xdist's own for any other."""
    if config.getoption("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return GroupOrFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two a core on a small machine: half of the tests' time is waiting for a server. `-n 3` says it by hand."""
    cores = len(os.sched_getaffinity(0))
    return 2 * cores if cores <= FEW_CORES else cores


def groups_of(items: list[pytest.Item]) -> dict[str, str]:
    """The group of each test that has one; a parameter's goes before its module's."""
    marks = ((item.nodeid, item.get_closest_marker("xdist_group")) for item in items)
    return {nodeid: str(mark.args[0]) for nodeid, mark in marks if mark}


def arrange(items: list[pytest.Item]) -> None:
    """Long tests first, quick ones last, so that no process ends with a long one while the others have none."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if any(item.get_closest_marker(name) for name in LONG_MARKS):
        return 0
    return 2 if item.nodeid.startswith(QUICK) else 1
