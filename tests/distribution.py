"""Which process of a parallel run has which tests, what starts first, when a group's server ends: hooks of conftest.py.

Tests of one server (xdist_group) stay together, so that it runs once, and so do tests of one file: what they share is
made once. xdist hands groups on in the names of tests, which pytest 9.2 does not let it change
(pytest-dev/pytest-xdist#1386): it says nothing and scatters them. Here a process writes them to a file.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest
from xdist.scheduler import LoadScopeScheduling

LONG_MARKS = ("integration", "slow", "crash")
QUICK = "tests/parsers/"
FEW_CORES, MUCH_MEMORY = 4, 16 << 30
FILE = pytest.StashKey[Path]()
SERVERS = pytest.StashKey[dict[str, tuple[ExitStack, Any]]]()
Server = TypeVar("Server")


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
    """Three a core on a small machine, where its memory will do, else two: half of the tests' time is waiting.

    `-n 3` says it by hand. A process takes a gigabyte, and what it starts another.
    """
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return cores if cores > FEW_CORES else (3 if memory >= MUCH_MEMORY else 2) * cores


def shared(config: pytest.Config, group: str, start: Callable[[], AbstractContextManager[Server]]) -> Server:
    """The server of a group: started for the first of its tests, stopped behind the last of them in a row."""
    running = config.stash.setdefault(SERVERS, {})
    if group not in running:
        stack = ExitStack()
        running[group] = stack, stack.enter_context(start())
    server: Server = running[group][1]
    return server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What fixtures hold goes first, then the servers of groups that the next test is not of."""
    yield
    _stop_servers(item.config, None if nextitem is None else _group(nextitem))


def pytest_unconfigure(config: pytest.Config) -> None:
    """An interrupted run ends without a last test."""
    _stop_servers(config, None)


def _stop_servers(config: pytest.Config, kept: str | None) -> None:
    running = config.stash.get(SERVERS, {})
    for group in [group for group in running if group != kept]:
        running.pop(group)[0].close()


def _group(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else None


def groups_of(items: list[pytest.Item]) -> dict[str, str]:
    """The group of each test that has one; a parameter's goes before its module's."""
    return {item.nodeid: group for item in items if (group := _group(item))}


def arrange(items: list[pytest.Item]) -> None:
    """Long tests first, quick ones last, so that no process ends with a long one while the others have none.

    Those of a group are neighbours in a run of one process too.
    """
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[int, str]:
    group = _group(item) or ""
    if group or any(item.get_closest_marker(name) for name in LONG_MARKS):
        return 0, group
    return (2 if item.nodeid.startswith(QUICK) else 1), ""
