"""The figures in node_exporter's textfile collector."""

import subprocess
import urllib.request
from pathlib import Path

import pytest
from real.foreshock import free_port
from real.patience import patience
from real.programs import need, stop, wait_for
from real.prometheus import check_metrics

from collectors.agent.sidecar import SpoolFigures
from collectors.collector import CollectorTurn
from collectors.metrics import SidecarMetrics, TextFile
from collectors.spool.spool import Spool


@pytest.fixture
def metrics(tmp_path: Path) -> SidecarMetrics:
    """With everything that a sidecar shows."""
    metrics = SidecarMetrics()
    spool = Spool(tmp_path / "spool", 10**6)
    metrics.registry.register(SpoolFigures(spool))
    metrics.source("kmsg").count(CollectorTurn(lines=3))
    metrics.request_s.labels("events").observe(0.2)
    spool.close()
    return metrics


@pytest.mark.integration
def test_node_exporter_serves_it(tmp_path: Path, metrics: SidecarMetrics) -> None:
    """Without a scrape error, beside its own figures of the same process names."""
    folder = tmp_path / "textfile"
    folder.mkdir()
    TextFile(folder / "foreshock.prom").write(metrics)
    program = need("prometheus-node-exporter", "prometheus-node-exporter")
    port = free_port()
    command = [program, f"--web.listen-address=127.0.0.1:{port}", f"--collector.textfile.directory={folder}"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def page() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patience(10)) as reply:
                text: str = reply.read().decode()
        except OSError:
            return ""
        return text

    try:
        wait_for("node_exporter answers", lambda: bool(page()))
        text = page()
    finally:
        stop(process, 15)
    assert "node_textfile_scrape_error 0" in text
    assert 'foreshock_sidecar_lines_total{source="kmsg"} 3' in text
    assert 'foreshock_sidecar_spool_lost_total{queue="events",reason="full"} 0' in text


def test_promtool_objects_to_neither_page(metrics: SidecarMetrics) -> None:
    """With the process's own figures and without."""
    assert check_metrics(metrics.page().decode()) == ""
    assert check_metrics(metrics.page(process=False).decode()) == ""


def test_a_reader_of_another_user_sees_a_whole_file_or_none(tmp_path: Path, metrics: SidecarMetrics) -> None:
    """No leftover that ends in .prom, whatever the umask; a folder that cannot be written leaves the old file."""
    path = tmp_path / "x.prom"
    TextFile(path).write(metrics)
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.glob("*.prom*")) == [path]
    assert "process_" not in path.read_text()
    TextFile(path).remove()
    assert not path.exists()
    with pytest.raises(OSError, match="No such file"):
        TextFile(tmp_path / "none" / "x.prom").write(metrics)
