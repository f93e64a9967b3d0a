"""A sidecar's node is the one that `--node` says, whatever name the host, a container or a line has for it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from real.patience import patience
from real.programs import wait_for

from collectors.agent.supervisor import Sources, SourceSpec
from collectors.collector import CollectorTurn, Position, SourceSettings
from collectors.metrics import SidecarMetrics

XID = "2026-03-01T04:05:06.789000+00:00 vm kernel: NVRM: Xid (PCI:0000:0f:00): 48, pid=1, name=x, DBE.\n"
_PAGE = b"""\
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",modelName="H100",Hostname="dcgm-exporter-x7k2p"} 61
"""


class Kept:
    """A spool that remembers what it was given."""

    def __init__(self) -> None:
        self.turns: list[CollectorTurn] = []

    def position(self, _spec: str) -> Position | None:
        """Nothing was saved."""
        return None

    def append(self, _spec: str, collected: CollectorTurn) -> None:
        """Keep it."""
        self.turns.append(collected)

    def nodes(self) -> set[str | None]:
        """Of which nodes it spoke."""
        events = {event.node for turn in self.turns for event in turn.events}
        return events | {rollup.node for turn in self.turns for rollup in turn.rollups}


@contextmanager
def read(spec: SourceSpec) -> Iterator[Kept]:
    """The sidecar's sources on the node gpu-017, until the end of the block."""
    kept = Kept()
    sources = Sources(kept, SidecarMetrics(), turn_limit_s=patience(60))
    settings = SourceSettings(node="gpu-017", scrape_interval_s=0.1, rollup_interval_s=0.1)
    sources.change([spec], settings)
    try:
        wait_for("something is read", lambda: bool(kept.nodes()), 30.0)
        yield kept
    finally:
        sources.stop()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A kernel log of this host, which calls itself `vm`."""
    path = tmp_path / "kern.log"
    path.write_text(XID)
    return path


@pytest.fixture
def page() -> Iterator[str]:
    """An exporter on the loopback that calls itself by its container."""

    class Handler(BaseHTTPRequestHandler):
        """Always the same page."""

        def do_GET(self) -> None:
            """Answer."""
            self.send_response(200)
            self.send_header("Content-Length", str(len(_PAGE)))
            self.end_headers()
            self.wfile.write(_PAGE)

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def test_the_kernel_log_s_host_name_is_no_second_node(log: Path) -> None:
    """A ghost `vm` was drained, and a real Xid 48 of the node was then not acted upon."""
    with read(SourceSpec(f"file:{log}:kernel")) as kept:
        assert kept.nodes() == {"gpu-017"}


def test_what_a_program_prints_is_of_this_node(log: Path) -> None:
    """As `exec:kernel:...` reads it."""
    with read(SourceSpec(f"exec:kernel:cat {log}", interval_s=0.2)) as kept:
        assert kept.nodes() == {"gpu-017"}


def test_an_exporter_on_the_loopback_is_of_this_node(page: str) -> None:
    """Its pod's name is no node's."""
    with read(SourceSpec(f"scrape:{page}")) as kept:
        wait_for("a roll-up", lambda: any(turn.rollups for turn in kept.turns), 30.0)
        assert kept.nodes() == {"gpu-017"}
