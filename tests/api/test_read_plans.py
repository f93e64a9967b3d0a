"""What PostgreSQL does for each read: which days it opens, and that an index serves it.

Of a day with a few hundred rows it may take either of two indexes; which one it takes over a year is in
docs/decisions/2026-11-21-indexes-by-explain.md.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.postgres import Postgres

from api.app import create_app
from benchmarks.fleet_rows import Size
from benchmarks.fleet_year import fill
from store.database.connections import open_database
from store.nodes.node_states import score_reasons
from store.tables import schema

from .conftest import QUIET

pytestmark = pytest.mark.integration

END = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
DAYS = 16
_BY_START = "ix_incidents_start_id"
_DAY = re.compile(r"^(events|telemetry|scores)_(p\d{8}|other)")


@dataclass(frozen=True, slots=True)
class Scan:
    """One look into a table: by which index (None: all of it), its names free of the day's."""

    table: str
    part: str
    index: str | None


@pytest.fixture(scope="module")
def small_year(postgres_server: Postgres) -> Iterator[sa.Engine]:
    """Two weeks of four hundred nodes: about forty thousand events."""
    url = postgres_server.new_database()
    fill(url, Size(END, nodes=400, days=DAYS, hour_days=3, hourly_score_days=2, runs=10, long_run_days=4, flood=2000))
    engine = open_database(url)
    yield engine
    engine.dispose()


@contextmanager
def listening(engine: sa.Engine, asked: list[tuple[str, Any]]) -> Iterator[None]:
    """Every query that is run meanwhile."""

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if statement.lstrip().startswith(("SELECT", "WITH")):
            asked.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    yield
    sa.event.remove(engine, "before_cursor_execute", note)


def scans(engine: sa.Engine, path: str) -> list[Scan]:
    """The scans of all queries of one request, where reading a whole table is forbidden as long as there is a way."""
    asked: list[tuple[str, Any]] = []
    client = TestClient(create_app(QUIET, engine, lambda: END))
    with listening(engine, asked):
        answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.text
    found: list[Scan] = []
    with engine.connect() as connection:
        connection.exec_driver_sql("SET enable_seqscan = off")
        for statement, parameters in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar_one()
            found += _scans(plan[0]["Plan"], "")
    return found


def _scans(node: dict[str, Any], table: str) -> Iterator[Scan]:
    own = node.get("Relation Name", table)
    index = node.get("Index Name")
    leaf = index is not None or node["Node Type"] == "Seq Scan"
    if leaf:
        # Indexes of a day bear its name; a bitmap's own node does not tell the table.
        name = index or own
        part = _DAY.match(name) or _DAY.match(own)
        shown = None if index is None else _DAY.sub("", index).strip("_").removesuffix("_idx")
        yield Scan(part[1] if part else own, part[2] if part else "", shown)
    for inner in node.get("Plans", []):
        yield from _scans(inner, own)


@pytest.fixture
def fresh_scoring(small_year: sa.Engine) -> Iterator[datetime]:
    """A scoring of all nodes that PostgreSQL's statistics do not know yet."""
    moment = END + timedelta(minutes=20)
    columns = [column.name for column in schema.scores.columns]
    newer = [sa.literal(moment, schema.UtcTime()) if name == "time" else schema.scores.c[name] for name in columns]
    newest = sa.select(sa.func.max(schema.scores.c.time)).where(schema.scores.c.horizon_h == 24).scalar_subquery()
    with small_year.begin() as connection:
        select = sa.select(*newer).where(schema.scores.c.time == newest)
        connection.execute(schema.scores.insert().from_select(columns, select))
    yield moment
    with small_year.begin() as connection:
        connection.execute(schema.scores.delete().where(schema.scores.c.time == moment))


@pytest.mark.parametrize(
    "path",
    [
        "nodes?limit=100",
        "nodes?limit=100&sort=node",
        "nodes?limit=100&sort=node&state=ok",
        "placement",
        "placement?nodes={}",
    ],
)
def test_a_scoring_that_is_newer_than_its_statistics_is_read_once(
    small_year: sa.Engine, fresh_scoring: datetime, path: str
) -> None:
    """PostgreSQL expects one row of it: a loop that reads all of it for each node would look cheap."""
    asked: list[tuple[str, Any]] = []
    client = TestClient(create_app(QUIET, small_year, lambda: fresh_scoring + timedelta(minutes=1)))
    with listening(small_year, asked):
        answer = client.get(f"/api/v1/{path.format('gpu-[00000-00099]')}")
    assert answer.status_code == 200, answer.text
    assert (
        100 <= _scores_read(small_year, asked) <= 8 * 400
    )  # all of it a few times, once for each horizon and question


def test_the_reasons_of_such_a_scoring_are_read_once(small_year: sa.Engine, fresh_scoring: datetime) -> None:
    """The policy asks for those of every risky node, each turn."""
    asked: list[tuple[str, Any]] = []
    keys = [(f"gpu-{number:05d}", fresh_scoring) for number in range(200)]
    with listening(small_year, asked), small_year.connect() as connection:
        assert len(score_reasons(connection, 24, keys)) == 200
    assert 200 <= _scores_read(small_year, asked) <= 400


def _scores_read(engine: sa.Engine, asked: list[tuple[str, Any]]) -> float:
    """How many scores the queries look at."""
    read = 0.0
    with engine.connect() as connection:
        for statement, parameters in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
            read += sum(_rows_read(plan[0]["Plan"]))
    return read


def _rows_read(node: dict[str, Any]) -> Iterator[float]:
    """How many scores a plan looks at, one for each time that it does."""
    if str(node.get("Relation Name")).startswith("scores"):
        rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        yield rows * node["Actual Loops"]
    if "Join Filter" in node:
        yield node.get("Rows Removed by Join Filter", 0)
    for inner in node.get("Plans", []):
        yield from _rows_read(inner)


def since(**back: float) -> str:
    """A moment before the end, as a parameter."""
    return f"since={END - timedelta(**back):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    ("path", "indexes", "most_days"),
    [
        ("events", {"time"}, 4),
        (f"events?{since(days=10)}", {"time"}, 3),
        ("events?until=2025-02-20T00:00:00Z", {"time"}, 3),
        ("events?kind=ecc_sbe&limit=5", {"kind_time", "time"}, 4),
        ("events?kind=habana_ecc", {"kind_time", "time"}, DAYS + 3),
        ("events?node=gpu-00006&kind=habana_ecc", {"node_time", "kind_time", "time"}, DAYS + 3),
        (f"events?{since(hours=1)}&node=gpu-00006", {"node_time", "time"}, DAYS + 3),
        ("cluster", {"time"}, 3),
        ("nodes?limit=100", set(), 0),
        ("topology", set(), 0),
        ("map", set(), 0),
        ("runs", set(), 0),
    ],
)
def test_events_are_read_by_an_index_of_the_days_asked_for(
    small_year: sa.Engine, path: str, indexes: set[str], most_days: int
) -> None:
    """No day is read from end to end, and none is opened that cannot hold what is asked for."""
    found = [scan for scan in scans(small_year, path) if scan.table == "events"]
    assert {scan.index for scan in found} <= indexes
    assert len({scan.part for scan in found}) <= most_days
    assert bool(found) == bool(indexes)


@pytest.mark.parametrize(
    ("path", "table", "indexes"),
    [
        ("nodes", "scores", {"horizon_h_time", "pkey"}),
        ("scores", "scores", {"horizon_h_time", "pkey"}),
        ("scores?node=gpu-00006", "scores", {"horizon_h_time", "pkey"}),
        ("nodes/gpu-00006", "telemetry", {"pkey", "time"}),
        ("nodes", "incidents", {"ix_incidents_end", "ix_incidents_severity_start", "ix_incidents_shown"}),
        (
            f"incidents?{since(hours=3)}",
            "incidents",
            {"ix_incidents_end", "ix_incidents_long", _BY_START},
        ),
        ("incidents?severity=info", "incidents", {"ix_incidents_severity_start"}),
        ("incidents", "incidents", {_BY_START}),
        ("incidents?node=gpu-00006", "incidents", {"ix_incidents_node_end"}),
        ("hints?state=open", "hints", {"ix_hints_state"}),
        ("budget", "outbox", {"ix_outbox_hint"}),
        ("budget", "placements", {"ix_placements_state_due", "pk_placements"}),
        ("hints", "placements", {"pk_placements"}),
        ("hints/h00000003/deliveries", "outbox", {"ix_outbox_hint"}),
        ("hints/h00000003/deliveries", "deliveries", {"ix_deliveries_hint_seq"}),
        ("hints/outcomes?days=3", "audit", {"ix_audit_subject_seq"}),
        (f"hints?{since(days=2)}", "audit", {"pk_audit", "ix_audit_subject_seq"}),
        ("placement?nodes=gpu-00006", "scores", {"horizon_h_time", "pkey"}),
        ("audit?hint=h00000003", "audit", {"ix_audit_subject_seq"}),
        ("audit", "audit", {"pk_audit"}),
        (f"goodput/causes?by=node&{since(days=2)}", "interruptions", {"ix_interruptions_time"}),
        (f"goodput/cluster?{since(days=2)}", "cluster_days", {"pk_cluster_days"}),
    ],
)
def test_other_tables_are_read_by_the_index_that_is_for_it(
    small_year: sa.Engine, path: str, table: str, indexes: set[str]
) -> None:
    """The scores and roll-ups of days, incidents, the audit."""
    found = [scan for scan in scans(small_year, path) if scan.table == table]
    assert found
    assert {scan.index for scan in found} <= indexes
    if path != "nodes/gpu-00006":
        assert len({scan.part for scan in found}) <= 4
