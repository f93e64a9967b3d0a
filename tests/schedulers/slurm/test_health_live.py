"""A real slurmd that runs `foreshock-health`: its node drains by the server's hint and is freed when that is over."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from real.programs import wait_for
from real.slurm import slurm

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]
SCRIPT = Path(__file__).parents[3] / "deploy" / "slurm" / "foreshock-health"
SETTINGS = """\
HealthCheckProgram={folder}/health
HealthCheckInterval=1
HealthCheckNodeState=ANY
"""


@contextmanager
def server(items: list[dict[str, Any]]) -> Iterator[str]:
    """What answers with these hints, whatever they are at the time."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"items": items}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def test_a_node_drains_itself_and_is_freed(tmp_path: Path) -> None:
    """The one that the hint names, under its id; another's drain is left alone, and so is a node without a hint."""
    hint = {"id": "h-1", "node": "gpu001", "action": "drain", "state": "confirmed", "reason": "foreshock: Xid 79"}
    hint |= {"valid_until": (datetime.now(UTC) + timedelta(hours=1)).isoformat(), "evidence": {}}
    items: list[dict[str, Any]] = [hint, {**hint, "id": "h-2", "node": "gpu002"}]
    with server(items) as url, slurm("gpu[001-003]", served=3, settings=SETTINGS) as cluster:
        cluster.run("scontrol", "update", "nodename=gpu002", "state=drain", "reason=ticket 7")
        conf = cluster.folder / "health.conf"
        conf.write_text(
            f"FORESHOCK_SERVER={url}\nFORESHOCK={Path(sys.executable).parent}/foreshock\nFORESHOCK_DRAIN=1\n"
            f"SLURM_CONF={cluster.folder}/slurm.conf\n"
        )
        program = cluster.folder / "health.new"
        program.write_text(f"#!/bin/sh\nFORESHOCK_HEALTH_CONF={conf} exec {SCRIPT}\n")
        program.chmod(0o755)
        program.rename(cluster.folder / "health")
        wait_for("it has drained itself", lambda: "DRAIN" in cluster.state("gpu001"))
        assert cluster.word("gpu001", "Reason").startswith("foreshock: Xid 79 action=drain id=h-1 [")
        items[:] = [{**one, "state": "released"} for one in items]
        wait_for("it is freed", lambda: "DRAIN" not in cluster.state("gpu001"))
        assert cluster.word("gpu002", "Reason").startswith("ticket 7 [")
        assert cluster.word("gpu003", "Reason") == ""
