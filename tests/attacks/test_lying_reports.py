"""What a node reports of itself, heartbeats and telemetry, holds up no other's: neither its names nor its figures.

What is folded of many nodes at once (all heartbeats of a second, all links of a fleet, all jobs) goes on beside a lie.
"""

from datetime import timedelta
from math import inf
from typing import Any

import pytest
import sqlalchemy as sa
from real.programs import wait_for

from api.server.settings import Token, expand_scopes
from diagnosis.incidents.intake import fold_everything, keep_found
from diagnosis.links.link_outliers import note_outliers
from diagnosis.slow.slow_nodes import DeviceReading, SlowDevice, StepLoss
from store.nodes.tokens import digest_of
from store.records.hostlist import EVERY_NODE, NodePattern
from tests.attacks.token_site import NOW, TIME, bearer, beat, made_client

LIAR, HONEST = "gpu-001", "gpu-009"
TOKENS = (
    *(Token(n, digest_of(n), expand_scopes(["ingest"]), NodePattern.exactly([n])) for n in (LIAR, HONEST)),
    Token("reader", digest_of("reader"), expand_scopes(["read"]), EVERY_NODE),
)
LONG = "gpu:" + "9" * 30


def nested(levels: int) -> Any:
    """Objects within each other."""
    return {"deep": nested(levels - 1)} if levels else "here"


def hour(node: str, device: str, **figures: list[float]) -> dict[str, Any]:
    """A roll-up that tells of one device."""
    return {"node": node, "time": TIME, "samples": 60, "gpus_seen": 8, "devices": {device: figures}}


def links(errors: float) -> dict[str, list[float]]:
    """The counters of eighteen NVLinks, of which one errs."""
    return {f"nvlink_crc_l{link}": [0, last := errors if link == 3 else 0, last, last, 1] for link in range(18)}


def test_a_heartbeat_that_is_nested_keeps_no_other_from_being_written(any_engine: sa.Engine) -> None:
    """All heartbeats of a second are one document, and all of a page are one answer."""
    with made_client(any_engine, TOKENS) as client:
        for levels in (31, 40, 250, 251, 252, 260):
            told = beat(LIAR) | {"more": nested(levels)}
            answer = client.post("/api/v1/heartbeats", json=[told], headers=bearer(LIAR)).json()
            assert answer["accepted"] == (levels < 32)
        assert "nested" in answer["rejected"][0]["detail"]
        client.post("/api/v1/heartbeats", json=[beat(HONEST)], headers=bearer(HONEST))

        def listed() -> bool:
            answer = client.get("/api/v1/sidecars", headers=bearer("reader"))
            assert answer.status_code == 200, answer.text
            return [one["node"] for one in answer.json()["items"]] == [LIAR, HONEST]

        wait_for("the other's heartbeat is written", listed, 10)


def test_a_gpu_of_thirty_digits_spoils_no_list(any_engine: sa.Engine) -> None:
    """No JSON of ours holds such a number: of a list that has one nothing is answered."""
    with made_client(any_engine, TOKENS) as client:
        for node, device in ((LIAR, LONG), (HONEST, "gpu:2")):
            told = hour(node, device, **links(10_000))
            assert client.post("/api/v1/telemetry", json=[told], headers=bearer(node)).json()["accepted"] == 1
        note_outliers(any_engine, NOW)
        fold_everything(any_engine)
        for path in ("events", "incidents", "nodes", "links", "riskiest"):
            answer = client.get(f"/api/v1/{path}", headers=bearer("reader"))
            assert answer.status_code == 200, (path, answer.text)
            if path in ("events", "incidents"):
                assert [one["node"] for one in answer.json()["items"]] == [HONEST]


@pytest.mark.parametrize(
    ("device", "rose"), [(LONG, 50.0), ("gpu:" + "9" * 5000, 50.0), ("gpu:2", inf), ("gpu:2", 1.0)]
)
def test_a_slow_device_of_any_name_and_figure_is_told(any_engine: sa.Engine, device: str, rose: float) -> None:
    """What all jobs lose is told in one turn: one device that cannot be told of ends it."""
    one = SlowDevice(DeviceReading(LIAR, device, rose, rose), "pcie_replay", 0.0, 15, rose)
    event = one.event("llm", StepLoss(NOW - timedelta(minutes=9), 0.2), NOW)
    assert keep_found(any_engine, [event], NOW) == 1


@pytest.mark.parametrize("figure", [1e308, -1e308, 2.0**64, 2**64 - 1, 2.0**63, -1.8e19])
def test_a_figure_that_no_counter_shows_is_refused(any_engine: sa.Engine, figure: float) -> None:
    """The difference of two such is no number any more. The other roll-up is taken, and told again is read back."""
    told = [hour(LIAR, f"gpu:{gpu}", pcie_replay=[0, one, one, one, 5]) for gpu, one in ((0, figure), (1, 9))]
    with made_client(any_engine, TOKENS) as client:
        for _ in range(2):
            answer = client.post("/api/v1/telemetry", json=told, headers=bearer(LIAR)).json()
            assert answer["accepted"] == 1 + (abs(figure) < 2**64)
        read = client.get(f"/api/v1/nodes/{LIAR}/telemetry", headers=bearer("reader"))
        assert read.status_code == 200
        assert read.json()["items"][0]["devices"]["gpu:1"]["pcie_replay"] == [0, 9, 9, 9, 5]
