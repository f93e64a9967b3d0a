"""`GET /goodput/...`: losses by cause, every interruption, the cluster's levels; read from stored ledgers."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, get_args

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.app import create_app
from goodput.formulas.shape import Shape
from goodput.stored.computation import compute
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.records.event import Device, Event
from store.records.job import Job, LossKey
from store.records.node import Node
from store.runs.ledgers import save_ledgers
from wire.goodput import AttemptsJson, CausesJson, ClusterGoodputJson, LedgerJson, LossJson
from wire.message import Page
from wire.money.price import parse_price

from .conftest import NOW, QUIET

# NOW is noon of the first of March.
BEGAN = NOW - timedelta(hours=36)
CAUSES, CLUSTER, LIST = ("/api/v1/goodput/" + name for name in ("causes", "cluster", "interruptions"))
HOUR = timedelta(hours=1)


def fill(engine: sa.Engine, runs: int = 3) -> None:
    """Runs on a node of 8 GPUs each, 1 h each, at the begin of the period; each but the last meets an Xid."""
    told = {"iterations": 1, "elapsed_ms": 600_000.0}
    with writing(engine).begin() as connection:
        append_nodes(
            connection,
            [
                Node(f"n{i}", leaf=f"leaf-{i % 2}", gpus=8, driver="550", gpu_model="NVIDIA H100 80GB HBM3")
                for i in range(runs + 1)
            ],
        )
        for i in range(runs):
            failed = i < runs - 1
            end = BEGAN + HOUR
            append_jobs(
                connection,
                [Job(str(i), f"run-{i}", "FAILED" if failed else "COMPLETED", BEGAN, BEGAN, end, 1, f"n{i}")],
            )
            lines = [
                Event(BEGAN + n * HOUR / 6, None, "training", "iteration",
                      attributes={**told, "iteration": n, "run": f"run-{i}"}, file=f"{i}.log", line=n)
                for n in range(1, 4 if failed else 7)
            ]  # fmt: skip
            fault = Event(end - HOUR / 6, f"n{i}", "kernel", "xid", code=79 + i % 2, severity="fatal",
                          cause="hardware", device=Device("gpu", index=i))  # fmt: skip
            append_events(connection, [*lines, *([fault] if failed else [])], NOW)
            ledger = compute(connection, f"run-{i}", NOW)
            assert ledger is not None
            save_ledgers(connection, [ledger])


def get(client: TestClient, path: str, **asked: Any) -> dict[str, Any]:
    """The answer."""
    answer = client.get(path, params=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_losses_by_each_of_them_sum_to_the_same_total(any_client: TestClient, any_engine: sa.Engine) -> None:
    """Two runs lost an hour of eight GPUs each, however they are told apart; the shapes are as published."""
    fill(any_engine)
    for by in get_args(LossKey):
        told = get(any_client, CAUSES, by=by)
        assert told["total"] == {"interruptions": 2, "lost_s": 7200.0, "lost_gpu_hours": 16.0, "without_gpus": 0}
        assert sum(item["lost_s"] for item in told["items"]) == 7200.0
        assert sum(item["lost_gpu_hours"] for item in told["items"]) == 16.0
    names = [item["name"] for item in get(any_client, CAUSES, by="code")["items"]]
    assert names == ["xid:79", "xid:80"]
    assert get(any_client, CAUSES, by="leaf")["items"][0]["leaf"] == "leaf-0"
    schemas = any_client.get("/openapi.json").json()["components"]["schemas"]
    assert set(told) == set(schemas["CausesJson"]["properties"])
    assert set(schemas["LossGroupJson"]["required"]) <= set(told["items"][0])


def test_a_list_comes_in_pages_and_windows(client: TestClient, engine: sa.Engine) -> None:
    """The total is that of all pages; a window that ends before has nothing."""
    fill(engine)
    first = get(client, CAUSES, by="node", limit=1)
    second = get(client, CAUSES, by="node", limit=1, cursor=first["next_cursor"])
    assert [item["node"] for item in first["items"] + second["items"]] == ["n0", "n1"]
    assert (first["total"], second["next_cursor"]) == (second["total"], None)
    nothing = get(client, CAUSES, until=BEGAN.isoformat())
    assert (nothing["items"], nothing["total"]["lost_gpu_hours"]) == ([], None)


def test_every_interruption_is_listed_with_what_it_is_put_down_to(client: TestClient, engine: sa.Engine) -> None:
    """Newest first, page by page."""
    fill(engine)
    first = get(client, LIST, limit=1)
    second = get(client, LIST, limit=1, cursor=first["next_cursor"])
    items = first["items"] + second["items"]
    assert [item["run"] for item in items] == ["run-0", "run-1"]
    assert second["next_cursor"] is None
    assert (items[0]["device"], items[0]["driver"], items[0]["lost_gpu_hours"]) == ("gpu 0", "550", 8.0)
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert set(schemas["LossJson"]["required"]) == set(items[0])


def test_the_cluster_s_levels_by_day(any_client: TestClient, any_engine: sa.Engine) -> None:
    """36 h of four nodes; three hours of eight GPUs allocated, one of them productive."""
    fill(any_engine)
    told = get(any_client, CLUSTER, since=BEGAN.isoformat())
    assert told["gpu_hours"]["existing"] == 4 * 8 * 36.0
    assert (told["gpu_hours"]["allocated"], told["gpu_hours"]["productive"]) == (24.0, 8.0)
    assert told["scheduling_goodput"] == pytest.approx(24 / (32 * 36))
    assert told["runtime_goodput"] == pytest.approx(1 / 3)
    assert (told["program_goodput"], told["ml_productivity_goodput"], told["program_covers"]) == (None, None, 0.0)
    assert [day["gpu_hours"]["productive"] for day in told["days"]] == [8.0, 0.0]
    assert told["doubts"] == []
    schemas = any_client.get("/openapi.json").json()["components"]["schemas"]
    assert set(schemas["ClusterGoodputJson"]["required"]) == set(told)


def test_with_a_run_s_shape_there_is_program_goodput(any_engine: sa.Engine) -> None:
    """From its pattern in the configuration; the run says what it rests on."""
    fill(any_engine)
    settings = replace(QUIET, shapes={"run-2*": Shape(batch=64, layers=80, seq=4096, hidden=8192)})
    client = TestClient(create_app(settings, any_engine, lambda: NOW))
    told = get(client, CLUSTER)
    (run,) = told["runs"]
    assert (run["run"], run["step_s"], run["gpus"], run["peak_tflops"], run["missing"]) == (
        "run-2",
        600.0,
        8,
        989.0,
        [],
    )
    assert run["mfu"] == pytest.approx(settings.shapes["run-2*"].flops / (600 * 8 * 989e12))
    assert told["program_goodput"] == pytest.approx(run["mfu"])
    assert told["program_covers"] == 1.0
    assert told["ml_productivity_goodput"] == pytest.approx(
        told["scheduling_goodput"] * told["runtime_goodput"] * run["mfu"]
    )


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (CAUSES, {"by": "moon"}),
        (CAUSES, {"cursor": "x"}),
        (CLUSTER, {"since": "2025-03-02T00:00:00Z"}),
        (CLUSTER, {"since": "2020-01-01T00:00:00Z"}),
        (LIST, {"limit": 0}),
    ],
)
def test_what_cannot_be_answered_is_refused(client: TestClient, path: str, asked: dict[str, Any]) -> None:
    """With a sentence, and no crash; an empty database has empty answers."""
    assert client.get(path, params=asked).status_code == 422
    assert get(client, LIST)["items"] == []
    assert get(client, CLUSTER)["gpu_hours"]["existing"] is None


def unpriced(told: Any, money: Any = None) -> list[str]:
    """The names of amounts of GPU-hours that have not exactly their money beside them, at 2.50 EUR an hour."""
    found = []
    if isinstance(told, list):
        return [name for one in told for name in unpriced(one)]
    for name, hours in told.items() if isinstance(told, dict) else ():
        if isinstance(hours, dict | list):
            found += unpriced(hours, told.get("money") if name == "gpu_hours" else None)
        if not isinstance(hours, int | float) or (money is None and "gpu_h" not in name):
            continue
        cost = (told if money is None else money).get(name.replace("gpu_hours", "money"))
        if cost != {"currency": "EUR", "amount": f"{Decimal(repr(hours)) * Decimal('2.50'):f}"}:
            found.append(name)
    return found


def test_every_gpu_hour_is_told_in_money_where_a_price_is_set(any_engine: sa.Engine) -> None:
    """Exactly, beside it, in the published shapes; where none is set nothing says money."""
    fill(any_engine)
    ledger = "/api/v1/runs/run-0/goodput"
    kinds = {CAUSES: CausesJson, LIST: Page[LossJson], CLUSTER: ClusterGoodputJson, ledger: LedgerJson}
    priced = replace(QUIET, gpu_hour_price=parse_price("2.50 EUR"))
    for settings in (priced, QUIET):
        with TestClient(create_app(settings, any_engine, lambda: NOW)) as client:
            for path, kind in kinds.items():
                told = client.get(path)
                check_answer(kind, told.json())
                assert ("money" in told.text) == (settings is priced), path
                assert not unpriced(told.json()) or settings is QUIET, path
            cluster = get(client, "/api/v1/cluster")
            page = client.get("/api/v1/print/week").text
        assert cluster.get("gpu_hour_price") == ({"currency": "EUR", "amount": "2.50"} if settings is priced else None)
        assert ("GPU-hours lost to them (EUR 40.00)" in page, "EUR" in page) == (settings is priced,) * 2


def test_a_run_attempt_by_attempt(any_client: TestClient, any_engine: sa.Engine) -> None:
    """What of each was not productive, how it ended, and that its parts lie within it; the shape is as published."""
    fill(any_engine)
    told = get(any_client, "/api/v1/runs/run-0/attempts")
    check_answer(AttemptsJson, told)
    (attempt,) = told["items"]
    assert (told["attempts"], told["wall_s"], attempt["number"], attempt["state"]) == (1, 3600.0, 1, "FAILED")
    assert (attempt["start_s"], attempt["length_s"], attempt["nodes"], attempt["gpus"]) == (0.0, 3600.0, 1, 8)
    assert attempt["interruption"]["culprit"]["node"] == "n0"
    ledger = get(any_client, "/api/v1/runs/run-0/goodput")
    lost: dict[str, float] = {}
    for bucket, start, length in attempt["parts"]:
        assert 0 <= start <= start + length <= 3600.0
        lost[bucket] = lost.get(bucket, 0.0) + length
    assert lost == {name: s for name, s in ledger["buckets"].items() if s and name != "productive"}
    whole = get(any_client, "/api/v1/runs/run-2/attempts")["items"][0]
    assert (whole["interruption"], whole["parts"]) == (None, [])


def test_of_many_attempts_the_newest_and_of_many_parts_the_longest(
    client: TestClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that is said; a run whose log is long and was never folded is not read by a request."""
    fill(engine)
    with writing(engine).begin() as connection:
        begins = [(str(10 + n), BEGAN + (2 + n) * HOUR) for n in range(3)]
        append_jobs(connection, [Job(job, "run-0", "FAILED", at, at, at + HOUR / 2, 1, "n0") for job, at in begins])
    told = get(client, "/api/v1/runs/run-0/attempts", limit=2)
    assert ([one["number"] for one in told["items"]], told["attempts"], told["shortest_s"]) == ([3, 4], 4, 0.0)
    # The wait before each start is a part of the attempt, also of the first one that is shown.
    waits = [[(start, length) for name, start, length in one["parts"] if name == "waiting"] for one in told["items"]]
    assert waits == [[(9_000.0, 1_800.0)], [(12_600.0, 1_800.0)]]
    monkeypatch.setattr("api.routes.runs.MOST_PARTS", 1)
    told = get(client, "/api/v1/runs/run-0/attempts")
    assert told["shortest_s"] > 0
    assert all(length >= told["shortest_s"] for one in told["items"] for _, _, length in one["parts"])
    monkeypatch.setattr("api.loops.ledgers.SMALL_LINES", 2)
    assert client.get("/api/v1/runs/run-0/attempts").status_code == 503
    for name in ("none", "n%00"):
        assert client.get(f"/api/v1/runs/{name}/attempts").status_code == 404
