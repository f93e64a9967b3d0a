"""The kill switch: a file, a setting, a row; the strongest counts, and what cannot be read stops."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.approval import RequestRefusedError
from schedulers.lifecycle.operator_actions import set_switch
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.kill_switch import STOPS, effective_stop, may_ask, read_stop_file, stopped
from schedulers.policy.settings import Breaker, Budgets, Policy, Stop
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import audit_page, read_hints
from store.records.node import Node
from store.tables import hint_tables

from .cluster import HOUR, NOW
from .test_turn import incident

ACT = Policy(mode="act", budgets=Budgets(100, 100.0, 100, 100, 100), breaker=Breaker(nodes=100))


def set_to(engine: sa.Engine, stop: Stop, reason: str = "test", who: str = "alice") -> None:
    """A person's word."""
    with writing(engine).begin() as connection:
        set_switch(connection, stop, reason, NOW, who)


def stop_now(engine: sa.Engine, policy: Policy) -> Stop:
    """What is stopped."""
    with engine.connect() as connection:
        return effective_stop(connection, policy)


@pytest.mark.parametrize("setting", STOPS)
@pytest.mark.parametrize("file", STOPS)
@pytest.mark.parametrize("row", STOPS)
def test_the_strongest_counts(engine: sa.Engine, tmp_path: Path, setting: Stop, file: Stop, row: Stop) -> None:
    """Whoever says so."""
    path = tmp_path / "stop"
    if file != "none":
        path.write_text("all\n" if file == "all" else "")
    set_to(engine, row)
    policy = replace(ACT, stop=setting, stop_file=path)
    assert stop_now(engine, policy) == max((setting, file, row), key=STOPS.index)
    with engine.connect() as connection:
        found = {one.source: one.stop for one in stopped(connection, policy)}
    given = {"setting": setting, "file": file, "switch": row}
    assert found == {source: stop for source, stop in given.items() if stop != "none"}


def test_nobody_has_stopped_anything(engine: sa.Engine) -> None:
    """Of a fresh database, without a file."""
    assert stop_now(engine, ACT) == "none"


@pytest.mark.parametrize("text", ["", "holds", "none", "resume please", "ALL but not quite", "\x00\xff"])
def test_a_file_that_is_there_stops_whatever_it_says(tmp_path: Path, text: str) -> None:
    """An empty one, too; only its absence lets go on."""
    path = tmp_path / "stop"
    path.write_bytes(text.encode("latin-1"))
    assert read_stop_file(path).stop == "holds"
    path.write_text(" ALL \n")
    assert read_stop_file(path).stop == "all"
    path.unlink()
    assert read_stop_file(path).stop == "none"


def test_a_file_that_cannot_be_read_stops(tmp_path: Path) -> None:
    """A folder, a link to nowhere, a pipe that nobody writes to, a path that is none."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("folder", "link", "pipe", "loop"):
        assert read_stop_file(tmp_path / name).stop == "holds", name
    assert read_stop_file(tmp_path / "no folder" / "stop").stop == "none"
    (tmp_path / "file").write_text("")
    assert read_stop_file(tmp_path / "file" / "stop").stop == "none"
    assert read_stop_file(Path("a\0b")).stop == "holds"


def test_a_word_that_this_program_does_not_know_stops_all(engine: sa.Engine) -> None:
    """A newer server may have written it."""
    with writing(engine).begin() as connection:
        connection.execute(hint_tables.switches.insert().values(time=NOW, actor="x", stop="everything", reason="y"))
    assert stop_now(engine, ACT) == "all"


def test_what_may_go_out() -> None:
    """A release under `holds`, nothing under `all`."""
    asked = ("watch", "avoid", "cordon", "drain", "checkpoint", "requeue", "swap", "release")
    assert [may_ask("none", action) for action in asked] == [True] * 8
    assert [action for action in asked if may_ask("holds", action)] == ["release"]
    assert not any(may_ask("all", action) for action in asked)


def test_the_newest_row_counts_and_each_is_in_the_audit(any_engine: sa.Engine) -> None:
    """Saying the same again is saying it once; another person's word is another."""
    set_to(any_engine, "holds", "fabric")
    set_to(any_engine, "holds", "fabric")
    set_to(any_engine, "all", "fire", "bob")
    assert stop_now(any_engine, ACT) == "all"
    set_to(any_engine, "none", "done")
    assert stop_now(any_engine, ACT) == "none"
    with any_engine.connect() as connection:
        entries = audit_page(connection, 10, None, "switch")
    assert [(entry["actor"], entry["action"], entry["detail"]["was"]) for entry in reversed(entries)] == [
        ("alice", "stop", "none"),
        ("bob", "stop", "holds"),
        ("alice", "resume", "all"),
    ]


def test_it_takes_a_reason(engine: sa.Engine) -> None:
    """Whoever finds it stopped must know why."""
    with pytest.raises(RequestRefusedError, match="say why"):
        set_to(engine, "all", "  ")
    set_to(engine, "all", "x" * 9_000)
    with engine.connect() as connection:
        (found,) = stopped(connection, ACT)
    assert len(found.reason) == 500


def test_a_turn_makes_no_hint_while_stopped(engine: sa.Engine, tmp_path: Path) -> None:
    """From the first turn after the file is there to the first after it has gone."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("a"), Node("b")])
    path = tmp_path / "stop"
    policy = replace(ACT, stop_file=path)
    path.touch()
    incident(engine, "a")
    assert run_policy(engine, policy, NOW).changed == ()
    path.unlink()
    assert [made.node for made, _ in run_policy(engine, policy, NOW).changed] == ["a"]
    path.touch()
    incident(engine, "b")
    run_policy(engine, policy, NOW + 2 * HOUR)
    with engine.connect() as connection:
        assert [(one.node, one.state) for one in read_hints(connection)] == [("a", "approved")]
