"""The sidecar and the real API, over a real socket."""

import hashlib
import json
import logging
import os
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import uvicorn
from real.patience import patience

from api.app import create_app
from api.server.settings import ApiSettings, Intervals, Token
from collectors.agent.sidecar import SidecarSettings, run

Until = Callable[[Callable[[], Any]], Any]
TOKEN = "an ingest token"
XID = f"{datetime.now(UTC).isoformat()} gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid={{}}, name=x, lost.\n"


class Api:
    """The application under uvicorn, and a reader of its answers."""

    def __init__(self, engine: sa.Engine) -> None:
        token = Token("sidecars", hashlib.sha256(TOKEN.encode()).hexdigest(), frozenset({"ingest", "read"}))
        settings = ApiSettings(tokens=(token,), intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0))
        app = create_app(settings, engine, lambda: datetime.now(UTC))
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none"))
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        deadline = time.monotonic() + patience(20)
        while not self.server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"

    def get(self, path: str) -> Any:
        """What it answers."""
        request = urllib.request.Request(f"{self.url}/api/v1{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=patience(10)) as answer:
            return json.load(answer)

    def close(self) -> None:
        """Stop it."""
        self.server.should_exit = True
        self.thread.join(patience(20))


@pytest.fixture
def api(engine: sa.Engine) -> Iterator[Api]:
    """Over a fresh database, with a token."""
    api = Api(engine)
    yield api
    api.close()


@pytest.fixture
def sidecar(api: Api, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Starts a sidecar for this API, in this process; ended in the end."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(*sources: str, spool: str = "spool", **more: Any) -> None:
        settings = SidecarSettings(
            server=api.url,
            node="gpu-017",
            sources=sources,
            spool=tmp_path / spool,
            token_file=tmp_path / "token",
            port=0,
            **more,
        )
        threads.append(threading.Thread(target=run, args=(settings, stop)))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join(patience(15))


def test_lines_of_a_log_are_served_as_events_and_an_incident(
    api: Api, sidecar: Callable[..., None], tmp_path: Path, until: Until
) -> None:
    """Once each, though the log is read again by a sidecar that lost its spool."""
    log = tmp_path / "kern.log"
    log.write_text("".join(XID.format(pid) for pid in range(3)) + "noise\n")
    sidecar(f"file:{log}:kernel")
    assert until(lambda: len(api.get("/events?node=gpu-017")["items"]) == 3)
    events = api.get("/events?node=gpu-017")["items"]
    assert sorted(event["attributes"]["pid"] for event in events) == [0, 1, 2]
    assert {event["code"] for event in events} == {79}
    assert until(lambda: api.get("/incidents?node=gpu-017")["items"])
    sidecar(f"file:{log}:kernel", spool="another")
    state = tmp_path / "another" / "acknowledged.json"
    assert until(lambda: state.exists() and b'"events":[0,0]' not in state.read_bytes())
    assert len(api.get("/events?node=gpu-017")["items"]) == 3
    assert [node["node"] for node in api.get("/nodes")["items"]] == ["gpu-017"]


@pytest.mark.xdist_group("kmsg")
def test_a_kernel_record_is_served_as_an_event(api: Api, sidecar: Callable[..., None], until: Until) -> None:
    """The whole way, from the device to the answer."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_WRONLY)
    except OSError as error:
        pytest.skip(f"/dev/kmsg may not be written here: {error}")
    marker = f"t{uuid.uuid4().hex[:10]}"
    sidecar("kmsg")
    os.write(descriptor, f"<3>NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name={marker}, lost.\n".encode())
    os.close(descriptor)
    assert until(
        lambda: [event for event in api.get("/events")["items"] if event["attributes"].get("process") == marker]
    )


def test_a_scraped_page_is_served_as_a_rollup_of_the_node(
    api: Api, sidecar: Callable[..., None], until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """Its counters' increases as events."""
    scrapes: list[int] = []

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scrapes.append(len(scrapes))
            labels = '{gpu="0",UUID="GPU-a",pci_bus_id="00000000:0F:00.0",Hostname="gpu-017"}'
            self.send_response(200)
            self.end_headers()
            page = f"DCGM_FI_DEV_GPU_TEMP{labels} 61\nDCGM_FI_DEV_PCIE_REPLAY_COUNTER{labels} {len(scrapes)}\n"
            self.wfile.write(page.encode())

        def log_message(self, *args: Any) -> None:
            pass

    exporter = HTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, args=(0.02,), daemon=True).start()
    with caplog.at_level(logging.ERROR, "foreshock.sidecar"):
        sidecar(f"scrape:http://127.0.0.1:{exporter.server_port}/metrics", scrape_interval_s=0.2, rollup_interval_s=0.2)
        assert until(lambda: api.get("/events?kind=pcie_replay")["items"])
        assert until(lambda: api.get("/nodes/gpu-017")["telemetry"])
    exporter.shutdown()
    exporter.server_close()
    [rollup] = api.get("/nodes/gpu-017")["telemetry"]
    assert (rollup["gpus_seen"], rollup["gpu_temp_mean_c"]) == (1, 61.0)
    assert caplog.records == []
