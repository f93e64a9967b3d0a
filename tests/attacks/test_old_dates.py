"""A node's token brings no archive of years: each day that it names is a table of PostgreSQL's."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from real.postgres import Postgres

from api.server.settings import Token, expand_scopes
from store.database.connections import migrate, open_database
from store.nodes.tokens import digest_of
from store.records.hostlist import NodePattern

from .token_site import NOW, bearer, made_client

OWN = "gpu-001"
TOKENS = (
    Token("gpu-001", digest_of("one"), expand_scopes(["ingest"]), NodePattern.of(OWN)),
    Token("shared", digest_of("shared"), expand_scopes(["ingest"])),
    Token("fleet", digest_of("fleet"), expand_scopes(["ingest:fleet"])),
)


def body_of(path: str, days: int) -> Any:
    """A record of each of two days: today, and so many days ago."""
    times = [(NOW - timedelta(days=back)).isoformat() for back in (0, days)]
    if path == "/logs?format=kernel&trust=kernel":
        return "\n".join(f"{time} {OWN} kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1" for time in times).encode()
    event = {"node": OWN, "source": "kernel", "kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware"}
    event |= {"action": "none", "device": {"type": "gpu"}, "message": "x", "attributes": {}}
    record = {"node": OWN, "samples": 900, "gpus_seen": 8} if path == "/telemetry" else event
    return [record | {"time": time} for time in times]


@pytest.mark.parametrize("path", ["/events", "/telemetry", "/logs?format=kernel&trust=kernel"])
@pytest.mark.parametrize(
    ("secret", "days", "taken"), [("one", 1400, 1), ("shared", 1400, 1), ("one", 300, 2), ("fleet", 1400, 2)]
)
def test_a_nodes_word_goes_back_three_years(engine: sa.Engine, path: str, secret: str, days: int, taken: int) -> None:
    """What is older is refused with the date; who may report for the fleet brings archives."""
    content = body_of(path, days)
    sent: dict[str, Any] = {"content": content} if isinstance(content, bytes) else {"json": content}
    with made_client(engine, TOKENS) as client:
        answer = client.post(f"/api/v1{path}", headers=bearer(secret), **sent).json()
    assert answer["accepted"] == taken, answer
    assert [entry["detail"].partition(":")[0] for entry in answer["rejected"]] == ["'time' is before 2022-03-01"] * (
        2 - taken
    )


@pytest.mark.integration
def test_a_day_older_than_a_year_gets_no_table_of_its_own(postgres_server: Postgres) -> None:
    """Its records are taken all the same."""
    engine = open_database(postgres_server.new_database())
    migrate(engine)
    with made_client(engine, TOKENS) as client:
        for path in ("/events", "/telemetry"):
            answer = client.post(f"/api/v1{path}", headers=bearer("one"), json=body_of(path, 700)).json()
            assert answer["accepted"] == 2, answer
    tables, day = sa.inspect(engine).get_table_names(), (NOW - timedelta(days=700)).date()
    assert {f"events_p{NOW:%Y%m%d}", f"telemetry_p{NOW:%Y%m%d}"} <= set(tables)
    assert not [name for name in tables if name.endswith(f"{day:%Y%m%d}")]
    engine.dispose()
