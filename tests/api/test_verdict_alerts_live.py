"""Verdicts go out: as alerts of a real Alertmanager, and to a webhook; each once, in order, and none is lost."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from real.foreshock import Running, serve
from real.patience import patience
from real.programs import wait_for
from real.prometheus import alertmanager

from store.records.event import format_time

from .test_events_route import record

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("alertmanager")]
QUIET = "route: {receiver: none}\nreceivers: [{name: none}]\n"


def send(server: Running, node: str, kind: str = "node_not_ready", **changes: Any) -> None:
    """A node that answers nobody, now; or that is back."""
    now = format_time(datetime.now(UTC))
    line = record(time=now, node=node, id=f"{node} {kind} {now}", kind=kind, code=None, source="kubernetes")
    server.post("/api/v1/events", json.dumps(line | {"device": {"type": "node"}} | changes).encode())


def alerts(url: str) -> list[dict[str, Any]]:
    """What Alertmanager holds."""
    with urlopen(f"{url}/api/v2/alerts", timeout=patience(10)) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())
    return [one for one in found if one["labels"]["alertname"] == "ForeshockVerdict"]


@dataclass(slots=True)
class Receiver:
    """A webhook that refuses the first `refuse` messages."""

    url: str
    refuse: int = 0
    taken: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@contextmanager
def webhook(refuse: int = 0) -> Iterator[Receiver]:
    """One on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if receiver.refuse:
                receiver.refuse -= 1
                self.send_response(500)
            else:
                receiver.taken.append((self.headers["webhook-id"], body))
                self.send_response(204)
            self.end_headers()

        def log_message(self, *_given: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/", refuse)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def configuration(folder: Path, text: str) -> str:
    """A configuration file."""
    path = folder / "foreshock.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_verdict_is_an_alert_while_it_stands_though_alertmanager_was_away(tmp_path: Path) -> None:
    """It is owed until Alertmanager takes it; one label set, one alert."""
    with alertmanager(tmp_path, QUIET) as url:
        text = f"schedulers: [{{kind: webhook, name: alerts, format: alertmanager, url: '{url}/api/v2/alerts'}}]\n"
        with serve(f"sqlite:///{tmp_path / 'x.db'}", tmp_path, "--config", configuration(tmp_path, text)) as server:
            send(server, "gpu-001")
            wait_for("the alert fires", lambda: any(one["labels"].get("node") == "gpu-001" for one in alerts(url)))
            (alert,) = [one for one in alerts(url) if one["labels"].get("node") == "gpu-001"]
            (verdict,) = server.get("/api/v1/verdicts?node=gpu-001")["items"]
            assert alert["labels"]["verdict"] == verdict["id"]
            assert alert["labels"]["class"] == verdict["class"]
            assert verdict["reason"] in alert["annotations"]["summary"]
            assert alert["annotations"]["summary"].count(verdict["name"]) == 1
            assert alert["status"]["state"] == "active"


def test_a_webhook_that_asks_for_verdicts_gets_each_revision_once_and_what_it_refused_again(tmp_path: Path) -> None:
    """Signed and retried as hints are; a receiver that does not ask gets none."""
    with webhook(refuse=1) as receiver, webhook() as silent:
        secret = "whsec_c2hvd24taW4tYW4tZXhhbXBsZS1vbmx5LTEyMzQ="
        rows = [
            f"- {{kind: webhook, name: ops, url: '{receiver.url}', secret: '{secret}', verdicts: true}}",
            f"- {{kind: webhook, name: hints, url: '{silent.url}', secret: '{secret}'}}",
        ]
        text = "schedulers:\n" + "\n".join(rows) + "\nintervals: {policy_s: 0}\n"
        with serve(f"sqlite:///{tmp_path / 'x.db'}", tmp_path, "--config", configuration(tmp_path, text)) as server:
            send(server, "gpu-001")
            told = lambda: [body for _, body in receiver.taken if body["data"]["node"] == "gpu-001"]  # noqa: E731
            wait_for("the verdict is told", lambda: bool(told()))
            body = told()[0]
            assert body["type"] == "foreshock.verdict.open"
            assert body["data"]["verdict"]["name"] == "gpu-001"
            idents = [ident for ident, _ in receiver.taken]
            assert len(idents) == len(set(idents))
            assert [one for one in silent.taken if "verdict" in one[1]["data"]] == []
            log = server.get(f"/api/v1/verdicts/{body['data']['id']}")
            assert log["revision"] == body["data"]["verdict"]["revision"]
