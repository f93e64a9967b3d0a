"""The dashboard against the real API over a small cluster, and as a browser shows it."""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import uvicorn
from real.patience import patience
from real.programs import wait_for
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.testing.v1 import AppTest
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connected
from websockets.typing import Origin, Subprotocol

from api.app import create_app
from api.server.settings import ApiSettings, Intervals, Token, expand_scopes
from cli.commands.dashboard import DashboardAddress, running
from cli.processes.children import free_port
from dashboard.client import ApiProblem
from dashboard.panels.page import REFRESH_S, Site
from dashboard.views.cluster import FIRST_S
from diagnosis.incidents.incidents_table import update_incidents
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.settings import Control, Policy
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.models.scores import save_scores
from store.records.event import Device, Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.records.score import Reason, Score
from store.records.telemetry import Rollup
from store.tables.bulk_rows import upsert_last_seen
from store.telemetry.hours import append_rollups

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SETTINGS = ApiSettings(
    tokens=(
        Token("eye", hashlib.sha256(b"look").hexdigest(), frozenset({"read"})),
        Token("hand", hashlib.sha256(b"touch").hexdigest(), expand_scopes({"read", "act"})),
    ),
    policy=Policy(mode="approve", control=Control(percent=0.0)),
    intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0),
)


def seed(engine: sa.Engine) -> None:
    """Eight nodes; one fell off the bus, one is likely to, one is out; a run of an hour."""
    names = [f"gpu-{i:03}" for i in range(1, 9)]
    xid = Event(
        NOW - timedelta(minutes=4),
        "gpu-003",
        "kernel",
        "xid",
        79,
        "fatal",
        "hardware",
        "reboot_node",
        Device("gpu", "0000:0f:00.0"),
        "GPU has fallen off the bus. ![x](http://127.0.0.1:9/x.png)",
    )
    steps = [
        Event(
            NOW - timedelta(minutes=60 - i),
            None,
            "training",
            "iteration",
            attributes={"run": "llm-7b", "iteration": i, "iterations": 1, "elapsed_ms": 60_000.0, "total": 900},
        )
        for i in range(1, 60)
    ]
    scores = [
        Score(name, NOW - h * HOUR, horizon, 0.31 if name == "gpu-005" else 0.004, (Reason("14 errors", 0.2),), "m")
        for name in names
        for horizon in (24, 168)
        for h in (0, 3)
    ]
    hours = [Rollup(name, NOW - h * HOUR, 960, 8, gpu_temp_max_c=61.0) for name in names for h in (1, 2, 5)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, "r01", "leaf-01", "H100-SXM", 8) for name in names])
        taken = append_events(connection, [xid, *steps], NOW)
        update_incidents(connection, list(taken.new))
        append_rollups(connection, hours)
        upsert_last_seen(connection, dict.fromkeys(names, NOW - timedelta(seconds=20)))
        append_outages(connection, [Outage("gpu-008", NOW - HOUR, None, "DRAIN", "cabling", None, True, "unknown")])
        append_jobs(connection, [Job("1", "llm-7b", "RUNNING", NOW - HOUR, NOW - HOUR, None, 7, "gpu-[001-007]")])
        save_scores(connection, scores)
    run_policy(engine, SETTINGS.policy, NOW)


@contextmanager
def served(engine: sa.Engine) -> Iterator[str]:
    """The API's address."""
    config = uvicorn.Config(create_app(SETTINGS, engine, lambda: NOW), port=0, log_level="warning")
    running_server = uvicorn.Server(config)
    thread = threading.Thread(target=running_server.run)
    thread.start()
    while not running_server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{running_server.servers[0].sockets[0].getsockname()[1]}"
    running_server.should_exit = True
    thread.join()


@pytest.fixture
def server(engine: sa.Engine) -> Iterator[str]:
    """That of a site with a fault."""
    seed(engine)
    with served(engine) as url:
        yield url


def test_every_answer_of_the_api_is_understood(server: str, connect: Any) -> None:
    """The client and the server agree on every shape."""
    client = connect(server, "look")
    cluster = client.cluster()
    assert (cluster.now, cluster.mode, cluster.nodes, cluster.run) == (NOW, "approve", 8, "llm-7b")
    assert {name: count for name, count in cluster.states.items() if count} == {
        "faulty": 1,
        "at_risk": 1,
        "out": 1,
        "ok": 5,
    }
    node = client.node("gpu-003")
    assert (node.state, node.incidents[0].code, node.telemetry[0].gpus_seen) == ("faulty", 79, 8)
    assert [score.time for score in node.scores] == [NOW - 3 * HOUR, NOW]
    assert client.nodes()[0].node == "gpu-003", "the worst first"
    assert client.events(1)[0].kind == "iteration"
    assert client.incidents(10)[0].node == "gpu-003"
    assert [run.run for run in client.runs()] == ["llm-7b"]
    assert client.goodput("llm-7b").wall_s == pytest.approx(sum(client.goodput("llm-7b").buckets.values()))
    assert client.cluster_goodput().gpu_hours["existing"] > 0
    assert client.causes("node", NOW - HOUR).items == ()
    assert client.spares_advice().inputs.nodes == 8
    assert {hint.node for hint in client.hints()} >= {"gpu-003", "gpu-005"}
    assert client.audit(10)[0].actor == "policy"


def test_refusals_are_sentences(server: str, connect: Any) -> None:
    """No token, too weak a token, nothing of that name."""
    with pytest.raises(ApiProblem, match="wants a token"):
        connect(server).cluster()
    eye = connect(server, "look")
    with pytest.raises(ApiProblem, match=r"may not do this.*lacks the scope act"):
        eye.decide(eye.hints()[0].id, "approve")
    with pytest.raises(ApiProblem, match="gpu-999"):
        eye.node("gpu-999")
    with pytest.raises(ApiProblem, match="no finished checkpoint save"):
        eye.checkpoint_advice("llm-7b")
    hand = connect(server, "touch")
    ended = hand.hints()[0]
    hand.decide(ended.id, "withdraw")
    with pytest.raises(ApiProblem, match="no longer possible"):
        hand.decide(ended.id, "approve")


def draw(site, view):  # type: ignore[no-untyped-def]  # the runner takes this text alone, without the imports
    """The script of one page."""
    import importlib

    importlib.import_module(f"dashboard.views.{view}").page(site)


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("cluster", "1 node faulty, 1 out of service, 1 at risk; run llm-7b at"),
        ("node", "gpu-003 is faulty"),
        ("goodput", "llm-7b did useful training in"),
        ("hints", "wait for an approval."),
    ],
)
def test_every_page_is_drawn_from_the_real_api(server: str, view: str, says: str, connect: Any) -> None:
    """Without an exception, with the answer first."""
    site = Site(connect(server, "look"))
    page = AppTest.from_function(draw, default_timeout=patience(30), kwargs={"site": site, "view": view}).run()
    assert not page.exception
    banners = [*page.error, *page.warning, *page.success]
    assert any(says in banner.value.replace("\\", "") for banner in banners)


def test_an_approved_hint_is_no_longer_waiting(server: str, connect: Any) -> None:
    """The button acts on the real thing, and the audit says who did it."""
    site = Site(connect(server, "touch"))
    hint = next(hint for hint in site.client.hints() if hint.node == "gpu-003")
    page = AppTest.from_function(draw, default_timeout=patience(30), kwargs={"site": site, "view": "hints"}).run()
    page.button(key=f"approve_{hint.id}").click().run()
    page.button(key=f"yes_{hint.id}").click().run()
    assert not page.exception
    assert {h.id: h.state for h in site.client.hints()}[hint.id] == "approved"
    assert site.client.audit(1)[0].actor == "hand"


def turn(socket: ClientConnection, fragment: str = "") -> tuple[set[tuple[int, ...]], dict[float, str]]:
    """The page, or a part of it, drawn once: where its tables stand, and the parts to be drawn again by their times."""
    asked = BackMsg()
    asked.rerun_script.query_string = ""
    if fragment:
        asked.rerun_script.fragment_id = fragment
        asked.rerun_script.is_auto_rerun = True
    socket.send(asked.SerializeToString())
    tables, again = set(), {}
    while (told := ForwardMsg.FromString(socket.recv(patience(30), decode=False))).WhichOneof(
        "type"
    ) != "script_finished":
        if told.HasField("auto_rerun"):
            again[told.auto_rerun.interval] = told.auto_rerun.fragment_id
        if told.delta.new_element.WhichOneof("type") == "dataframe":
            tables.add(tuple(told.metadata.delta_path))
    return tables, again


def session(place: DashboardAddress) -> ClientConnection:
    """What a browser opens."""
    stream, own = f"ws://127.0.0.1:{place.port}/_stcore/stream", Origin(place.url)
    return connected(stream, subprotocols=[Subprotocol("streamlit")], origin=own, max_size=None, proxy=None)


@pytest.mark.integration
def test_a_page_that_was_opened_before_the_first_node_shows_it(engine: sa.Engine, tmp_path: Path) -> None:
    """Its parts write where they had nothing to write before."""
    token = tmp_path / "token"
    token.write_text("look\n")
    with (
        served(engine) as server,
        running(place := DashboardAddress(server, port=free_port(), token_file=token)),
        session(place) as socket,
    ):
        tables, again = turn(socket)
        assert not tables
        seed(engine)
        wait_for("the events are drawn", lambda: bool(turn(socket, again[FIRST_S])[0]))
        wait_for("the incidents are drawn", lambda: bool(turn(socket, again[REFRESH_S])[0]))


@pytest.mark.integration
def test_the_first_page_has_two_parts_that_are_drawn_again(server: str, tmp_path: Path) -> None:
    """Each costs every session's turn. One draws the first row and the events, each in its place and in no other."""
    token = tmp_path / "token"
    token.write_text("look\n")
    with running(place := DashboardAddress(server, port=free_port(), token_file=token)), session(place) as socket:
        tables, again = turn(socket)
        assert set(again) == {FIRST_S, REFRESH_S}
        assert len(tables) == 2, "the incidents and the events"
        for _ in range(2):
            events, more = turn(socket, again[FIRST_S])
            incidents, _more = turn(socket, again[REFRESH_S])
            assert events | incidents == tables
            assert not more, "no part of it has a timer of its own"


@pytest.mark.integration
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="Debian's package chromium is not installed")
def test_a_browser_shows_the_cluster_and_follows_a_click_to_the_node(server: str, tmp_path: Path) -> None:
    """Drawn as an operator sees it; no markup of a log line comes to life, nothing is fetched from elsewhere."""
    from real.chromium import opened

    token = tmp_path / "token"
    token.write_text("look\n")
    place = DashboardAddress(server, port=free_port(), token_file=token)
    with running(place) as child, opened(place.url) as page:
        page.wait_for(["1 node faulty", "Newest incidents", "served by"], 60)
        assert page.evaluate("document.querySelectorAll('iframe[title*=fabric_map]').length") == 1
        assert page.evaluate("document.querySelectorAll('img[src*=\"x.png\"]').length") == 0
        asked = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
        assert [address for address in asked if not address.startswith((place.url, "data:", "blob:"))] == []
        page.screenshot(tmp_path / "cluster.png")
        page.click("gpu-005")
        page.wait_for(["gpu-005 is at risk", "GPU telemetry of the last week"], 60)
        assert str(page.evaluate("location.search")) == "?node=gpu-005"
        # Its own name is an address of the first page, too.
        page.call("Page.navigate", url=f"{place.url}/cluster")
        page.wait_for(["1 node faulty", "Newest incidents", "served by"], 60)
        assert "Page not found" not in page.text()
        # A link with a range and a zone shows the same to everybody, and a page turned to from there keeps them.
        asked = "from=2025-03-01T10%3A00Z&to=2025-03-01T11%3A58Z&tz=Asia%2FTokyo"
        page.call("Page.navigate", url=f"{place.url}/incidents?{asked}")
        page.wait_for(["From 2025-03-01 19:00 to 2025-03-01 20:58 · JST", "As of 2025-03-01 21:00:00 JST"], 60)
        page.screenshot(tmp_path / "range.png")
        page.click("Verdicts")
        page.wait_for(["From 2025-03-01 19:00", "As of 2025-03-01 21:00:00 JST"], 60)
        assert str(page.evaluate("new URLSearchParams(location.search).get('to')")) == "2025-03-01T11:58Z"
    assert (tmp_path / "cluster.png").read_bytes().startswith(b"\x89PNG")
    assert child.poll() is not None
