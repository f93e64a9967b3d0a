"""The demo's child processes."""

import os
from pathlib import Path

import pytest
from real.programs import wait_for

from cli.console.errors import Failure
from cli.processes.children import Children


def alive(pid: int) -> bool:
    """Whether a process of that id runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_ended(children: Children, name: str) -> None:
    """Give a short process the time to end."""
    wait_for(f"{name} ends", lambda: children._running[name].poll() is not None)


def test_a_process_that_ends_by_itself_is_told_with_its_last_lines(tmp_path: Path) -> None:
    """The operator sees what it said, not only that it is gone."""
    with Children(tmp_path) as children:
        children.start("part", ["no-such-command"])
        wait_until_ended(children, "part")
        with pytest.raises(Failure, match=r"(?s)the part stopped by itself \(exit 2\).*no-such-command"):
            children.check()


def test_leaving_the_context_stops_what_runs(tmp_path: Path) -> None:
    """Nothing is left running; `parse` waits for its standard input to end, which is /dev/null: so follow a fifo."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with Children(tmp_path) as children:
        children.start("part", ["parse", "kernel", str(fifo)])
        pid = children._running["part"].pid
        assert alive(pid)
    assert not alive(pid)


def test_a_url_that_never_answers_is_a_failure_that_names_the_logs(tmp_path: Path) -> None:
    """The patience is bounded."""
    with Children(tmp_path) as children, pytest.raises(Failure, match=str(tmp_path)):
        children.wait_for("http://127.0.0.1:1/livez", patience_s=0.3)
