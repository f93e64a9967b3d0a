"""A real job over gloo: the rank that was stopped is named, by its state, and by the dumps of those that wait."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from real.foreshock import Running, serve, sidecar
from real.hang_watch import HangWatch, named
from real.patience import patience
from real.programs import wait_for
from real.torch_job import torch_job

pytestmark = pytest.mark.integration


def test_a_stopped_rank_is_named_with_its_node_and_no_longer_when_it_goes_on(tmp_path: Path) -> None:
    """By what the hook shares; the training does nothing for it."""
    with torch_job(tmp_path, world=8) as job:
        watch = HangWatch(job)
        watch.until(lambda _events: False, 5.0)
        job.stop_rank(6)
        events = watch.until(lambda events: bool(named(events, "rank_missing")), patience(60))
        assert named(events, "rank_missing") == {6: "node-2"}
        (found,) = [event for event in events if event.kind == "rank_missing"]
        assert (found.device.type, found.attributes["local_rank"], found.attributes["how"]) == ("node", 2, "stopped")
        job.go_on(6)
        assert not named(watch.until(lambda events: not named(events, "rank_missing"), patience(60)), "rank_missing")


def test_the_dumps_of_those_that_wait_name_the_rank_that_wrote_none(tmp_path: Path) -> None:
    """Real dumps of PyTorch's flight recorder, and none of the stopped rank."""
    with torch_job(tmp_path, world=4) as job:
        watch = HangWatch(job)
        watch.sources = watch.sources[-1:]  # dumps alone
        watch.until(lambda _events: False, 3.0)
        job.stop_rank(1)
        watch.until(lambda _events: len(list((tmp_path / "dumps").glob("nccl_trace_rank_*"))) == 3, patience(90))
        events = watch.until(lambda events: bool(named(events, "rank_missing")), patience(30))
        told = {path.name: path.stat().st_mtime for path in (tmp_path / "dumps").iterdir()}
        assert set(named(events, "rank_missing")) == {1}, f"{told}, {watch.sent} events sent, last look: {events}"


def test_two_sidecars_and_a_server_name_the_stopped_rank_first_and_close_it_when_it_goes_on(tmp_path: Path) -> None:
    """The whole road: hook, sidecars, API, engine, `GET /verdicts`. Nobody tells the server of the job's nodes."""
    with ExitStack() as stack:
        for name in ("job", "server", "node-1", "node-2"):
            (tmp_path / name).mkdir()
        server = stack.enter_context(serve(f"sqlite:///{tmp_path / 'x.db'}", tmp_path / "server"))
        job = stack.enter_context(torch_job(tmp_path / "job", world=8))
        for node in ("node-1", "node-2"):
            source = f"ranks:{job.folder}/{node}#stall_s=3"
            stack.enter_context(sidecar(server, tmp_path / node, source, node=node))
        wait_for("both nodes tell of their ranks", lambda: len(_told(server, "nodes")) == 2, 60)
        job.stop_rank(6)
        wait_for("a verdict", lambda: _told(server, "verdicts"), 60)
        first = _told(server, "verdicts")[0]
        assert (first["class"], first["action"]) == ("application", "restart_app")
        assert first["probability"] >= 0.5
        assert "rank 6 of gloo is missing: its process does not run (local rank 2 of node-2)" in first["reason"]
        job.go_on(6)
        wait_for(
            "the verdict is closed", lambda: {one["state"] for one in _told(server, "verdicts")} == {"closed"}, 120
        )


def _told(server: Running, path: str) -> list[dict[str, Any]]:
    with urlopen(f"{server.url}/api/v1/{path}", timeout=patience(10)) as answer:  # our own loopback
        found: list[dict[str, Any]] = json.load(answer)["items"]
    return found
