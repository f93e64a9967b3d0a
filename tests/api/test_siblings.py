"""The metrics of processes that share a port: each keeps its own series, and whichever is scraped tells of all."""

import math
import socket
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.server import metrics as module
from api.server.metrics import Metrics, Siblings

from .conftest import QUIET, Clock


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Metrics, Metrics]:
    """Two processes' counters, in one process."""
    made = (Metrics(), Metrics())
    for number, metrics in enumerate(made):
        metrics.share(Siblings(tmp_path, number, 2))
    return made


def samples(metrics: Metrics) -> dict[tuple[str, str | None], float]:
    """What a page tells, by name and process."""
    families = text_string_to_metric_families(metrics.page().decode())
    return {
        (sample.name, sample.labels.get("process")): sample.value for family in families for sample in family.samples
    }


def test_either_tells_of_both(pair: tuple[Metrics, Metrics]) -> None:
    """As of now, and alike."""
    for metrics, count in zip(pair, (3, 4), strict=True):
        metrics.count_events("kernel", count)
        metrics.in_flight.labels("write").inc(count)
        metrics.seconds.labels("post_events").observe(0.01 * count)
    for page in map(samples, pair):
        assert [page["foreshock_events_accepted_total", number] for number in "01"] == [3, 4]
        assert [page["foreshock_requests_in_flight", number] for number in "01"] == [3, 4]
        assert page["foreshock_http_request_seconds_sum", "1"] == pytest.approx(0.04)
        assert [page["foreshock_process_up", number] for number in "01"] == [1, 1]
    pair[1].count_events("kernel", 1)
    assert samples(pair[0])["foreshock_events_accepted_total", "1"] == 5


def test_each_family_stands_once(pair: tuple[Metrics, Metrics]) -> None:
    """Prometheus refuses a page that comes back to one."""
    for metrics in pair:
        metrics.count_events("kernel", 1)
    heads = [line for line in pair[0].page().decode().splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)) > 10


def test_one_process_alone_bears_no_label() -> None:
    """Nothing changes for whoever starts one."""
    metrics = Metrics()
    metrics.count_events("kernel", 2)
    page = samples(metrics)
    assert page["foreshock_events_accepted_total", None] == 2
    assert not [key for key in page if key[1] is not None or key[0] == "foreshock_process_up"]


def test_a_process_that_is_not_there_is_missing_and_said(tmp_path: Path) -> None:
    """Not zero."""
    metrics = Metrics()
    metrics.share(Siblings(tmp_path, 1, 3))
    metrics.count_events("kernel", 2)
    page = samples(metrics)
    assert [page["foreshock_process_up", number] for number in "012"] == [0, 1, 0]
    assert {number for name, number in page if name == "foreshock_events_accepted_total"} == {"1"}


@pytest.mark.parametrize("said", [b"", b"no JSON", None], ids=["nothing", "nonsense", "never"])
def test_a_process_that_does_not_answer_holds_nobody_up(
    said: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs, or is something else."""
    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)
    metrics = Metrics()
    metrics.share(Siblings(tmp_path, 0, 2))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "1.sock"))
        other.listen()
        kept: list[socket.socket] = []

        def answer() -> None:
            asked, _ = other.accept()
            if said is None:
                kept.append(asked)  # open, and silent
            else:
                asked.sendall(said)
                asked.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert samples(metrics)["foreshock_process_up", "1"] == 0
        thread.join()
        for asked in kept:
            asked.close()


def test_who_takes_a_place_anew_answers_in_it(tmp_path: Path) -> None:
    """Its predecessor's socket lies there still; its counters begin again."""
    first, old, new = Metrics(), Metrics(), Metrics()
    for metrics, number in ((first, 0), (old, 1), (new, 1)):
        metrics.share(Siblings(tmp_path, number, 2))
    old.count_events("kernel", 9)
    new.count_events("kernel", 1)
    assert samples(first)["foreshock_events_accepted_total", "1"] == 1


def test_a_value_that_is_no_number_stays_none(tmp_path: Path) -> None:
    """JSON has no NaN."""
    registry = CollectorRegistry()
    Gauge("g", "A gauge.", registry=registry).set(math.nan)
    Siblings(tmp_path, 1, 2).answer(registry)
    found = {family.name: family for family in Siblings(tmp_path, 0, 2).families(CollectorRegistry())}
    assert math.isnan(found["g"].samples[0].value)


def test_what_the_database_knows_stands_once(engine: sa.Engine, clock: Clock, tmp_path: Path) -> None:
    """Every process would tell the same of it."""
    app = create_app(QUIET, engine, clock)
    app.state.foreshock.metrics.share(Siblings(tmp_path, 0, 2))
    Metrics().share(Siblings(tmp_path, 1, 2))
    with TestClient(app) as client:
        page = client.get("/metrics").text
    assert page.count("\nforeshock_database_up 1.0\n") == 1
    assert 'foreshock_process_up{process="1"} 1.0' in page
