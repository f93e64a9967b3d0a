"""One fault has one remedy: its incident, its verdict, its hint and every page say the same, and say why where not.

Over what a simulated cluster goes through and over real nodes' telemetry, turn by turn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from fault_events import at, xid
from folding import fold_all

from api.app import create_app
from api.pages.incident import IncidentFile, incident_sections
from api.server.settings import ApiSettings
from cli.commands.ingest import ingest_archive
from dashboard.panels.hint_card import facts
from dashboard.text import words
from dashboard.views.node import headline
from diagnosis.incidents.intake import put_faults
from diagnosis.verdicts.engine import VerdictEngine
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.settings import Policy
from simulator.output.archive import write_archive
from simulator.simulation import simulate
from simulator.site import SimulationSettings
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_nodes
from store.events.event_pages import EventWindow, read_events
from store.records.event import Event
from store.records.node import Node
from store.records.verdict import Verdict
from store.tables import schema
from store.verdicts.verdict_log import VerdictChange, save_changes
from wire.events import IncidentJson
from wire.hints import HintJson
from wire.message import decode
from wire.nodes import NodeDetailJson
from wire.words import values

from .conftest import QUIET, Clock

TAPES = Path(__file__).parents[2] / "fixtures/real/gwdg/tapes"
_DRAINS = {"drain_node", "replace_part", "contact_support"}
_SOFT = {"application", "job", "planned", "storage"}


class Site:
    """A server whose engine and policy take their turns by a clock that the test moves."""

    def __init__(self, engine: sa.Engine, now: datetime) -> None:
        """Over an empty database."""
        self.engine, self.clock = engine, Clock(now)
        self.policy = Policy(mode="act")
        self.work = VerdictEngine(engine, self.clock)
        settings: ApiSettings = replace(QUIET, policy=self.policy)
        self.client = TestClient(create_app(settings, engine, self.clock))
        self.found = 0

    def turn(self, events: Sequence[Event]) -> None:
        """What came in is folded, weighed and decided about."""
        with writing(self.engine).begin() as connection:
            put_faults(connection, append_events(connection, events, self.clock.now).new, self.clock.now)
        fold_all(self.engine)
        self.work.turn()
        self.clock.forward(seconds=5)
        run_policy(self.engine, self.policy, self.clock.now)

    def get(self, path: str, **query: Any) -> Any:
        """An answer of the API."""
        reply = self.client.get(f"/api/v1/{path}", params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def check(self) -> None:
        """Whoever shows what to do about a fault shows the same."""
        since = (self.clock.now - timedelta(days=1)).isoformat()
        incidents = {one["id"]: one for one in self.get("incidents", since=since, limit=1000)["items"]}
        verdicts = {one["id"]: one for one in self.get("verdicts", limit=1000)["items"]}
        for one in incidents.values():
            self._check_incident(one, verdicts)
        for node in {one["node"] for one in incidents.values() if one["node"]}:
            self._check_node(decode(NodeDetailJson, self.client.get(f"/api/v1/nodes/{node}").content), incidents)
        for raw in self.get("hints", limit=1000)["items"]:
            self._check_hint(raw, incidents)

    def _check_incident(self, one: Mapping[str, Any], verdicts: Mapping[str, Any]) -> None:
        remedy = one["remedy"]
        named = [v for v in verdicts.values() if one["id"] in v["incidents"] and v["probability"] > 0.5]
        hard = one["severity"] == "fatal" and one["cause"] == "hardware"
        named = [v for v in named if not (hard and v["class"] in _SOFT)]
        if remedy is None:
            assert not named, (one, named)
        else:
            self.found += 1
            verdict = verdicts[remedy["verdict"]]
            assert one["action"] == remedy["action"] == verdict["action"]
            standing = [v for v in named if v["state"] in ("open", "revised")]
            assert all(v["probability"] <= verdict["probability"] for v in standing)
        alone = decode(IncidentJson, self.client.get(f"/api/v1/incidents/{one['id']}").content)
        assert (alone.action, alone.remedy) == (one["action"], _incident(one).remedy)
        page = "".join(incident_sections(IncidentFile(alone, self.clock.now)))
        assert f"Do: {values.to_do(alone)}." in page

    def _check_node(self, node: NodeDetailJson, incidents: Mapping[str, Any]) -> None:
        for one in node.incidents:
            if one.id in incidents:
                assert one.action == incidents[one.id]["action"]
        newest = sorted(node.incidents, key=lambda one: one.start, reverse=True)
        fatal = words.newest_fatal(newest, node.node, self.clock.now)
        if node.state == "faulty" and fatal is not None:
            assert f"Do: {words.plain(values.to_do(fatal))}." in headline(node, self.clock.now)[2]

    def _check_hint(self, raw: Mapping[str, Any], incidents: Mapping[str, Any]) -> None:
        fault = incidents.get(raw["evidence"].get("incident") or "")
        if fault is None:
            return
        assert raw["remedy"]["action"] == fault["action"]
        card = facts(decode(HintJson, orjson.dumps(raw)), self.clock.now)
        told = words.plain(values.to_do(_incident(fault)))
        assert any(told in line for line in card), (told, card)
        own = fault["remedy"] is None or not fault["remedy"]["elsewhere"]
        if raw["action"] in ("cordon", "drain") and own and "witnesses" not in raw["evidence"]:
            drains = fault["action"] in _DRAINS
            assert raw["action"] == "drain" or not drains, (raw, fault)


def _incident(raw: Mapping[str, Any]) -> IncidentJson:
    return decode(IncidentJson, orjson.dumps(raw))


def _copied(source: sa.Engine, site: Site) -> None:
    """The nodes, jobs and outages of a loaded archive."""
    for table in (schema.nodes, schema.jobs, schema.outages):
        with source.connect() as connection:
            rows = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
        with writing(site.engine).begin() as connection:
            if rows:
                connection.execute(sa.insert(table), rows)


def _turns(source: sa.Engine, length: timedelta, most: int) -> Iterator[tuple[datetime, list[Event]]]:
    """The events of faults in order of time, in parts; those of the last ones."""
    with source.connect() as connection:
        quiet = ("iteration", "telemetry", "evaluation", "checkpoint_save_start")
        events = [one for one in read_events(connection, EventWindow()) if one.kind not in quiet and one.time]
    parts = [list(part) for _, part in groupby(events, key=lambda one: one.time.timestamp() // length.total_seconds())]
    for part in parts[-most:]:
        assert part[-1].time is not None
        yield part[-1].time, part


def _replayed(engine: sa.Engine, archive: Path, path: Path, most: int) -> Site:
    """The last turns of an archive, each checked."""
    source = open_database(f"sqlite:///{path / 'source.db'}")
    migrate(source)
    ingest_archive(source, archive)
    turns = list(_turns(source, timedelta(minutes=10), most))
    site = Site(engine, turns[0][0])
    _copied(source, site)
    for number, (moment, events) in enumerate(turns, 1):
        site.clock.now = max(site.clock.now, moment + timedelta(seconds=1))
        site.turn(events)
        if number % 7 == 0 or number == len(turns):
            site.check()
    source.dispose()
    return site


def test_over_a_simulated_cluster_everybody_says_the_same(engine: sa.Engine, tmp_path: Path) -> None:
    """GPUs, NVLinks, switches, hosts and programs fail; each turn's incidents, verdicts and hints agree."""
    cluster = simulate(SimulationSettings(nodes=24, days=10, seed=3, rate_per_1000_node_days=40.0))
    write_archive(cluster, tmp_path / "archive")
    site = _replayed(engine, tmp_path / "archive", tmp_path, 250)
    assert site.found > 100


@pytest.mark.parametrize("tape", sorted(path.name for path in TAPES.iterdir()))
def test_over_a_real_nodes_telemetry_everybody_says_the_same(engine: sa.Engine, tmp_path: Path, tape: str) -> None:
    """Real nodes whose GPUs fell off the bus."""
    site = _replayed(engine, TAPES / tape, tmp_path, 60)
    assert site.get("incidents")["items"]


LEAF = Verdict("switch", "leaf-01", 0.93, "fabric", "run_diagnostics", at(0), "8 of 8", nodes=("gpu-001",), id="leaf")
BUG = replace(LEAF, cause_class="application", name="llm", probability=0.98, action="restart_app", id="bug")
GUESS = replace(LEAF, cause_class="gpu", name="gpu-001/0", node="gpu-001", probability=0.5, action="watch", id="guess")
PART = replace(GUESS, probability=0.97, action="replace_part", id="part")


@pytest.mark.parametrize(
    ("verdicts", "code", "action", "do"),
    [
        ([], 79, "reboot_node", "reboot the node"),
        ([LEAF], 79, "run_diagnostics", "run diagnostics (switch leaf-01)"),
        ([LEAF, PART], 79, "replace_part", "replace the part"),
        ([GUESS], 79, "reboot_node", "reboot the node"),  # what others make up of a node is no more than a half
        ([BUG], 79, "reboot_node", "reboot the node"),  # a job's own log never takes back what hardware says
        ([BUG], 31, "restart_app", "restart the job (program of llm)"),
        ([replace(PART, state="closed"), LEAF], 79, "run_diagnostics", "run diagnostics (switch leaf-01)"),
        ([replace(PART, state="closed")], 79, "replace_part", "replace the part"),
    ],
)
def test_the_likeliest_that_stands_decides(
    engine: sa.Engine, verdicts: list[Verdict], code: int, action: str, do: str
) -> None:
    """And nothing that is no more likely than not; nor a program's verdict about broken hardware."""
    site = Site(engine, at(200))
    event = xid(code, 100)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-001", "r1", "leaf-01", "H100", 8, "550")])
        put_faults(connection, append_events(connection, [event], site.clock.now).new, site.clock.now)
        changes = [VerdictChange(replace(one, incidents=(event.id or "",)), "opened") for one in verdicts]
        save_changes(connection, changes, site.clock.now)
    fold_all(engine)
    (fault,) = site.get("incidents")["items"]
    assert (fault["action"], values.to_do(_incident(fault))) == (action, do)
    if fault["severity"] == "fatal":
        run_policy(engine, site.policy, site.clock.now)
        (hint,) = site.get("hints")["items"]
        assert hint["action"] == ("drain" if action == "replace_part" else "cordon")
        assert hint["remedy"]["action"] == action


def test_what_a_standing_cause_says_again_is_put_down_to_it(engine: sa.Engine) -> None:
    """Its verdict is not revised for that, and so names the first incident alone."""
    site = Site(engine, at(110))
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-001", "r1", "leaf-01", "H100", 8, "550")])
    site.turn([xid(79, 100)])
    site.clock.now = at(700)
    site.turn([xid(79, 690)])
    first, again = site.get("incidents")["items"]
    assert first["remedy"]["verdict"] == again["remedy"]["verdict"]
    assert site.get(f"incidents/{again['id']}")["verdicts"] == [first["remedy"]["verdict"]]
