"""OTLP metrics, what a node can make the server keep and do: devices, moments, clocks that are wrong, states of old."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
import zstandard
from fastapi.testclient import TestClient

from api.app import create_app
from api.edge.auth import ANONYMOUS
from api.edge.problem import Problem
from api.edge.work_budget import WorkBudget, working
from api.intake.otlp_metrics import MetricPoint
from api.intake.samples import own_samples
from api.server.settings import RequestLimits
from collectors.telemetry.device_watch import DeviceWatch
from store.telemetry import device_watches

from .conftest import NOW, QUIET, Clock
from .test_otlp_metrics import GPU, PATH, PROTOBUF, SBE, TEMP, events, hours, nanos, post, request


def gpus(*numbers: int, back_s: float = 30.0) -> Any:
    """A request of some GPUs."""
    return request(*[(TEMP, {"gpu": str(number)}, 50.0, nanos(back_s)) for number in numbers])


def counted(client: TestClient, name: str) -> float:
    """A counter of the server."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_the_devices_of_a_node_are_bounded_over_all_its_bodies(
    client: TestClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are known are followed on; another node has its own."""
    monkeypatch.setattr("api.intake.samples.MOST_DEVICES", 3)
    assert post(client, gpus(0, 1)) == {}
    said = post(client, gpus(2, 3, 4, back_s=20))
    assert said["rejectedDataPoints"] == "2"
    assert "3 devices of a node are the most" in said["errorMessage"]
    assert post(client, gpus(9, back_s=15))["rejectedDataPoints"] == "1"
    assert post(client, gpus(0, 1, 2, back_s=10)) == {}
    assert counted(client, 'foreshock_records_rejected_total{resource="metrics"}') == 3
    assert post(client, request((TEMP, GPU, 50.0, nanos(10)), host={"host.name": "other"})) == {}
    assert [device["index"] for device in state_of(engine)["watch"]["devices"]] == [0, 1, 2]


@pytest.mark.parametrize("of", ["moments", "nodes"])
def test_work_on_what_is_known_of_nodes_is_under_the_budget(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """Moments that take long to judge end with a 413 before the last; nothing of the body is stored."""
    judged = count()

    def slow(watch: DeviceWatch, node: str) -> list[Any]:
        next(judged)
        until_s = time.thread_time() + 0.05
        while time.thread_time() < until_s:
            pass
        return []

    monkeypatch.setattr(DeviceWatch, "_closed", slow)
    made = request()
    for number in range(40):
        node = {"host.name": f"gpu-{number if of == 'nodes' else 0}"}
        points = [(TEMP, GPU, 50.0, nanos(100.0 - number + back)) for back in (0.5, 0.0)]
        made.MergeFrom(request(*points, host=node))
    app = create_app(replace(QUIET, limits=RequestLimits(work_s=0.5)), engine, lambda: NOW)
    with TestClient(app) as client:
        answer = client.post(PATH, content=made.SerializeToString(), headers=PROTOBUF)
    assert answer.status_code == 413, answer.text
    assert "processor time" in answer.json()["detail"]
    assert next(judged) < 40
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM device_watches")) == 0


def test_points_become_samples_under_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one node there may be very many: it is looked at between them."""
    seconds = count()
    monkeypatch.setattr("api.edge.work_budget.time.thread_time", lambda: float(next(seconds)))
    points = [MetricPoint(at, TEMP, {"host.name": "a"}, {"gpu": str(at)}, 50.0, NOW) for at in range(60)]
    with working(WorkBudget(10.0)), pytest.raises(Problem, match="processor time") as refused:
        own_samples(ANONYMOUS, points, NOW, [])
    assert refused.value.status_code == 413
    assert next(seconds) < 30
    assert len(own_samples(ANONYMOUS, points, NOW, [])["a"]) == 60


def test_a_moment_over_five_minutes_ahead_is_refused(client: TestClient, clock: Clock) -> None:
    """It would make all that comes until then old ones of their device."""
    clock.now = datetime.now(UTC)
    ahead = [(TEMP, {"gpu": str(gpu)}, 50.0, int((clock.now.timestamp() + s) * 1e9)) for gpu, s in ((0, 400), (1, 200))]
    said = post(client, request(*ahead))
    assert said["rejectedDataPoints"] == "1"
    assert "future" in said["errorMessage"]
    right = [(TEMP, {"gpu": str(gpu)}, 50.0, int(clock.now.timestamp() * 1e9)) for gpu in (0, 1)]
    said = post(client, request(*right))
    assert said["rejectedDataPoints"] == "1", "GPU 1 is told of at a later moment already"
    assert "older than what is known" in said["errorMessage"]


def test_what_is_older_than_known_is_counted_and_a_repeat_is_not(client: TestClient) -> None:
    """A collector sends again what was not answered: that tells nothing, and nothing is amiss."""
    first = request(*[(TEMP, {"gpu": "0"}, 40.0, nanos(back)) for back in (90, 60, 30)])
    other = request((TEMP, {"gpu": "1"}, 40.0, nanos(30)))
    for made in (first, other, first, other):
        assert post(client, made) == {}
    late = request((TEMP, {"gpu": "0"}, 40.0, nanos(75)), (TEMP, {"gpu": "1"}, 40.0, nanos(60)))
    assert post(client, late)["rejectedDataPoints"] == "2"
    assert counted(client, 'foreshock_records_rejected_total{resource="metrics"}') == 2
    assert hours(client)[0]["devices"]["gpu:0"]["gpu_temp_c"] == [40, 40, 40, 40, 0]


def test_one_state_is_unpacked_at_a_time(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a body of many nodes; each has its own, over more than one look at the table."""
    monkeypatch.setattr(device_watches, "_AT_ONCE", 2)
    nodes = ["d", "a", "e", "c", "b"]
    steps: list[str] = []

    def noting(name: str, step: Callable[..., Any]) -> None:
        def noted(*arguments: Any) -> Any:
            steps.append(name)
            return step(*arguments)

        monkeypatch.setattr(device_watches, f"_{name}", noted)

    noting("unpacked", device_watches._unpacked)
    noting("packed", device_watches._packed)
    seen: dict[str, Any] = {}

    def renewed(node: str, state: dict[str, Any]) -> dict[str, Any]:
        seen[node] = state
        return {"of": node, "times": state.get("times", 0) + 1}

    for _ in range(2):
        with any_engine.begin() as connection:
            device_watches.renew_states(connection, nodes, NOW, renewed)
    assert seen == {node: {"of": node, "times": 1} for node in nodes}
    assert steps == ["unpacked", "packed"] * 10


def state_of(engine: sa.Engine) -> dict[str, Any]:
    """What is stored of the node."""
    with engine.connect() as connection:
        packed = connection.scalar(sa.text("SELECT state FROM device_watches WHERE node = 'gpu-017'"))
    state: dict[str, Any] = orjson.loads(zstandard.ZstdDecompressor().decompress(packed))
    return state


def without_streams(state: dict[str, Any]) -> None:
    """Another version's node has other fields."""
    node = state["watch"]["nodes"]["gpu-017"]
    del node["streams"]
    node["exporters"] = []


OTHER_VERSIONS: list[Callable[[dict[str, Any]], None]] = [
    without_streams,
    lambda state: state["watch"]["devices"][0]["here"].update(new=1),
    lambda state: state["watch"]["devices"][0].pop("node"),
    lambda state: state["hours"]["gpu-017"].pop("temps"),
    lambda state: state.update(watch=[1]),
    lambda state: state.update(taken=[[1.0, "no number"]]),
]


@pytest.mark.parametrize("change", OTHER_VERSIONS, ids=["streams", "presence", "device", "hour", "list", "taken"])
def test_a_state_that_this_version_cannot_read_begins_anew(
    client: TestClient, engine: sa.Engine, change: Callable[[dict[str, Any]], None]
) -> None:
    """The request is taken, the loss is counted, and from then on a rise is told as ever."""
    assert post(client, request((SBE, GPU, 2, nanos(90)))) == {}
    state = state_of(engine)
    change(state)
    packed = zstandard.ZstdCompressor().compress(orjson.dumps(state))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE device_watches SET state = :packed"), {"packed": packed})
    for value, back in ((5, 60), (9, 30)):
        assert post(client, request((SBE, GPU, value, nanos(back)))) == {}
    assert counted(client, "foreshock_node_states_unread_total") == 1
    assert [event["attributes"]["count"] for event in events(client)] == [4]
