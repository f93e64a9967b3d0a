"""A stolen token is taken back while the server runs; a broken file, or a signal at the wrong moment, ends nothing."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from real.patience import patience
from real.postgres import Postgres
from real.preloaded import Started, start
from real.programs import stop, wait_for

from cli.config.policy_table import read_yaml
from cli.console.errors import Failure

FORESHOCK = str(Path(sys.executable).parent / "foreshock")


@dataclass(frozen=True, slots=True)
class Site:
    """A server, its configuration and its log."""

    process: Started
    url: str
    file: Path
    log: Path

    def status(self, token: str, path: str = "/api/v1/cluster") -> int:
        """How a request with a token is answered."""
        return httpx.get(self.url + path, headers=bearer(token), timeout=patience(10)).status_code

    def hang_up(self) -> None:
        """SIGHUP, as `systemctl reload` sends it."""
        self.process.send_signal(signal.SIGHUP)

    def until(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait for it, while the server lives."""
        wait_for(what, lambda: ready() or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self.log.read_text()


def bearer(token: str) -> dict[str, str]:
    """A request's header."""
    return {"Authorization": f"Bearer {token}"}


def settings_of(*tokens: str, more: str = "") -> str:
    """A configuration with these tokens, each of scope `read`."""
    rows = [f"  - {{name: {t}, sha256: {hashlib.sha256(t.encode()).hexdigest()}, scopes: [read]}}" for t in tokens]
    return "\n".join(["tokens:", *rows, more])


@contextmanager
def served(tmp_path: Path, database: str, *options: str) -> Iterator[Site]:
    """`foreshock serve` with the tokens `old` and `kept`."""
    file, log = tmp_path / "server.yaml", tmp_path / "serve.log"
    file.write_text(settings_of("old", "kept"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORESHOCK_")}
    log.write_bytes(b"")
    command = ["serve", "--port", "0", "--config", file, *options]
    process = start(command, log, {**environment, "FORESHOCK_DB": database})
    try:
        wait_for("the API answers", lambda: "API http" in log.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
        line = next(line for line in log.read_text().splitlines() if line.startswith("API http"))
        yield Site(process, line.removeprefix("API "), file, log)
    finally:
        stop(process, signal.SIGTERM)


def test_a_token_is_revoked_by_a_signal_while_requests_go_on(tmp_path: Path) -> None:
    """The connection of before the reload serves on; the metric, the answer and readiness tell what is in force."""
    with served(tmp_path, f"sqlite:///{tmp_path / 'x.db'}") as site, httpx.Client(base_url=site.url) as kept:
        assert kept.get("/api/v1/cluster", headers=bearer("old")).status_code == 200
        before = kept.get("/api/v1/cluster", headers=bearer("kept")).json()["configuration"]
        assert before["problem"] is None
        assert before["place"] == str(site.file)
        site.file.write_text(settings_of("new", "kept"))
        assert site.status("old") == 200, "without a signal nothing but the policy is followed"
        site.hang_up()
        site.until("the new token holds", lambda: site.status("new") == 200)
        assert kept.get("/api/v1/cluster", headers=bearer("old")).status_code == 401
        after = kept.get("/api/v1/cluster", headers=bearer("kept")).json()["configuration"]
        assert after["version"] != before["version"]
        assert after["loaded"] > before["loaded"]


def test_a_bad_file_is_refused_with_its_line_and_the_old_one_stays(tmp_path: Path) -> None:
    """An attacker's, or an editor's, broken file opens nothing and ends nothing."""
    with served(tmp_path, f"sqlite:///{tmp_path / 'x.db'}") as site:
        for text, why in (
            (settings_of("new", more="limits:\n  max_writes: 0\n"), ":3, limits"),
            ("tokens: [\n", "no YAML"),
            (settings_of("new", more="schedulers:\n  - kind: smoke\n"), ":4, schedulers[0], kind"),
        ):
            site.file.write_text(text)
            site.hang_up()
            # The policy is followed without a signal, and says the same of the same file.
            said = rf"the configuration of before stays in force.*{re.escape(why)}"
            site.until(f"{why} is said", lambda said=said: re.search(said, site.log.read_text()))  # type: ignore[misc]
            assert [site.status("kept"), site.status("new")] == [200, 401]
        told = httpx.get(f"{site.url}/api/v1/cluster", headers=bearer("kept")).json()["configuration"]
        assert "schedulers[0]" in told["problem"]
        assert told["errors"] == 3
        metrics = httpx.get(f"{site.url}/metrics").text
        assert "foreshock_configuration_stale 1.0" in metrics
        assert "foreshock_configuration_errors 3.0" in metrics
        ready = httpx.get(f"{site.url}/readyz")
        assert (ready.status_code, "an older one is in force" in ready.json()["checks"]["configuration"]) == (200, True)
        site.file.write_text(settings_of("new", more="processes: 2\nintervals: {score_s: 5}\n"))
        site.hang_up()
        site.until("it holds again", lambda: site.status("new") == 200)
        assert "processes, intervals waits for a restart" in site.log.read_text()
        told = httpx.get(f"{site.url}/api/v1/cluster", headers=bearer("new")).json()["configuration"]
        assert (told["problem"], told["restart"]) == (None, ["processes", "intervals"])


@pytest.mark.parametrize(
    "text", ['a: "SeCrEt-1', "a: [SeCrEt-1 b: c]]", "SeCrEt-1\nb: c", "a: SeCrEt-1: 2", "a:\n\tSeCrEt-1"]
)
def test_a_broken_file_is_told_by_its_line_and_not_quoted(tmp_path: Path, text: str) -> None:
    """What is wrong with the file stands on /readyz, which asks for no token: a secret on that line must not."""
    file = tmp_path / "server.yaml"
    file.write_text(f"mode: shadow\n{text}\n")
    with pytest.raises(Failure, match=r"server.yaml:[2-4] is no YAML: \w+") as refused:
        read_yaml(file)
    assert "SeCrEt" not in str(refused.value)


def test_an_open_server_never_loses_its_last_token(tmp_path: Path) -> None:
    """On an address that others reach, a file without tokens is refused: it would let everybody in."""
    with served(tmp_path, f"sqlite:///{tmp_path / 'x.db'}", "--host", "0.0.0.0") as site:  # noqa: S104 - what is tried
        url = site.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        site.file.write_text("mode: shadow\n")
        site.hang_up()
        site.until("it is refused", lambda: "no token is configured" in site.log.read_text())
        assert httpx.get(f"{url}/api/v1/cluster").status_code == 401
        assert httpx.get(f"{url}/api/v1/cluster", headers=bearer("kept")).status_code == 200


def test_a_storm_of_signals_from_the_first_moment_on_ends_nothing(tmp_path: Path) -> None:
    """Before it has read its file, while it reads it, and after: the process that starts is not killed by one."""
    file, log = tmp_path / "server.yaml", tmp_path / "serve.log"
    file.write_text(settings_of("kept"))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [FORESHOCK, "serve", "--port", "0", "--config", str(file), "--db", f"sqlite:///{tmp_path / 'x.db'}"],
            stdout=out,
            stderr=out,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # until it has an answer of its own
        )
    try:
        ends = time.monotonic() + patience(60)
        while "API http" not in log.read_text() and process.poll() is None and time.monotonic() < ends:
            process.send_signal(signal.SIGHUP)
        for _ in range(200):
            process.send_signal(signal.SIGHUP)
        wait_for("it is said", lambda: "read again" in log.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
    finally:
        stop(process, signal.SIGTERM)
    assert process.returncode == 0


@pytest.mark.integration
def test_every_process_of_a_server_follows_a_signal_to_the_parent(tmp_path: Path, postgres_server: Postgres) -> None:
    """Whichever of them answers, the revoked token is refused."""
    with served(tmp_path, postgres_server.new_database(), "--processes", "2") as site:
        assert site.status("old") == 200
        site.file.write_text(settings_of("new", "kept"))
        site.hang_up()
        site.until("both have read it", lambda: site.log.read_text().count("read again, in force") == 2)
        for _ in range(30):  # connections of their own: the kernel hands them to either process
            assert [site.status("old"), site.status("new")] == [401, 200]
