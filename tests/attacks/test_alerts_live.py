"""The shipped alerts and scrape configuration with a real Prometheus, server and sidecar: killed, quiet, behind TLS."""

import hashlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from real.foreshock import Running, serve, sidecar
from real.patience import patience
from real.programs import need, wait_for
from real.prometheus import configured_prometheus, prometheus

PLACE = Path(__file__).parents[2] / "deploy" / "prometheus"
# The shipped rules with their minutes as seconds: 15 minutes without contact are 15 seconds.
SCALES = ((r"for: \d+[mh]", "for: 0s"), (r"> 900\b", "> 15"), (r"\[\d+m\]", "[30s]"), (r"offset 15m", "offset 10s"))

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def quick_rules() -> str:
    """The shipped alerts, in seconds."""
    text = (PLACE / "foreshock-alerts.yaml").read_text()
    for long, short in SCALES:
        text, count = re.subn(long, short, text)
        assert count, long
    return text


def asked(url: str, path: str) -> Any:
    """What Prometheus answers."""
    with urlopen(f"{url}/api/v1/{path}", timeout=patience(20)) as reply:
        return json.loads(reply.read())["data"]


def firing(url: str) -> dict[str, str]:
    """The alerts that fire, with their summaries."""
    found = asked(url, "alerts")["alerts"]
    return {one["labels"]["alertname"]: one["annotations"]["summary"] for one in found if one["state"] == "firing"}


def until(what: str, check: Callable[[], bool]) -> None:
    """Wait for a state of Prometheus."""
    wait_for(what, check, 60)


def value(url: str, query: str) -> float | None:
    """The one value of a query; None where there is none."""
    found = asked(url, f"query?query={query}")["result"]
    return float(found[0]["value"][1]) if found else None


def _place(one: Running) -> str:
    return one.url.removeprefix("http://")


def test_a_quiet_node_is_well_and_a_killed_server_and_sidecar_are_seen(tmp_path: Path) -> None:
    """One line, then nothing for longer than the silence: no alert. Then the server is killed, then the sidecar."""
    log = tmp_path / "kern.log"
    log.write_text(
        "2025-03-01T04:05:06Z n kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    with (
        serve(f"sqlite:///{tmp_path}/site.db", tmp_path) as server,
        sidecar(server, tmp_path, f"file:{log}:kernel", more=("--heartbeat-interval", "1")) as agent,
    ):
        jobs = {"foreshock-server": _place(server), "foreshock-sidecar": _place(agent)}
        with prometheus(tmp_path, jobs, quick_rules()) as url:
            last = "time()-foreshock_sidecar_last_shipped_timestamp_seconds"
            until("it has shipped nothing for 20 s", lambda: 20 < (value(url, last) or 0) < 1e6)
            assert firing(url) == {}
            os.kill(server.pid, signal.SIGKILL)
            until("the server's death is seen", lambda: "ForeshockServerDown" in firing(url))
            until("the sidecar is cut off", lambda: "ForeshockSidecarSilent" in firing(url))
            assert _place(server) in firing(url)["ForeshockServerDown"]
            assert "ForeshockSidecarDown" not in firing(url)
            os.kill(agent.pid, signal.SIGKILL)
            until("the sidecar's death is seen", lambda: "ForeshockSidecarDown" in firing(url))


def _certificate(folder: Path) -> None:
    command = [need("openssl", "openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "foreshock-ca.pem")]
    subprocess.run([*command, *files], check=True, capture_output=True, timeout=patience(60))


def _shipped_into(folder: Path) -> None:
    """The shipped files as /etc/prometheus would hold them, in a folder."""
    for path in PLACE.glob("*.yaml"):
        (folder / path.name).write_text(path.read_text().replace("/etc/prometheus", str(folder)))
    (folder / "foreshock-scrape.yaml").rename(folder / "prometheus.yml")
    (folder / "foreshock-read.token").write_text("a-token-of-this-test-alone")


def test_promtool_takes_the_shipped_configuration(tmp_path: Path) -> None:
    """With every file that it names, and not without one."""
    _shipped_into(tmp_path)
    _certificate(tmp_path)
    command = [need("promtool", "prometheus"), "check", "config", "prometheus.yml"]

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(60), cwd=tmp_path)

    done = check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "http://" not in (tmp_path / "prometheus.yml").read_text()
    (tmp_path / "foreshock-read.token").unlink()
    assert check().returncode != 0


def test_a_real_prometheus_scrapes_with_the_shipped_configuration(tmp_path: Path) -> None:
    """The server over https with a token from a file, the sidecar out of its list, with the label node."""
    _shipped_into(tmp_path)
    _certificate(tmp_path)
    digest = hashlib.sha256((tmp_path / "foreshock-read.token").read_bytes()).hexdigest()
    settings = tmp_path / "foreshock.yaml"
    settings.write_text(
        f"tls: {{certificate: {tmp_path}/foreshock-ca.pem, key: {tmp_path}/key.pem}}\n"
        f"tokens: [{{name: prometheus, sha256: {digest}, scopes: [read]}}]\n"
    )
    log = tmp_path / "kern.log"
    log.touch()
    with (
        serve(f"sqlite:///{tmp_path}/site.db", tmp_path, "--config", str(settings)) as server,
        sidecar(server, tmp_path, f"file:{log}:kernel", more=("--ca-file", f"{tmp_path}/foreshock-ca.pem")) as agent,
    ):
        port, agents = server.url.rpartition(":")[2], _place(agent).replace("127.0.0.1", "localhost")
        own = tmp_path / "prometheus.yml"
        text = own.read_text().replace("foreshock.example.org:10870", f"localhost:{port}")
        own.write_text(text.replace("interval: 30s", "interval: 1s"))
        (tmp_path / "foreshock-sidecars.yaml").write_text(f"- targets: ['{agents}']\n")
        with configured_prometheus(tmp_path) as url:
            until("the server is scraped", lambda: value(url, "up{job='foreshock-server'}") == 1)
            until("the sidecar is scraped", lambda: value(url, "up{job='foreshock-sidecar',node='localhost'}") == 1)
            until("the server's own series are there", lambda: value(url, "foreshock_database_up") == 1)
            groups = asked(url, "rules")["groups"]
            broken = [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"]
            assert broken == []
