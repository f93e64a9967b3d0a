"""A machine of one's own in a folder, on which the commands of a page of docs are run as they stand there.

Stand-ins: `sudo -u postgres` runs its command as that user where it can, `pip` and `python3 -m venv` install nothing
unless they shall, `systemctl` writes down what it is asked, and `obey` then starts the commands of the units, with
their credentials.
`walk` goes through a page and takes the time of each step.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from real.nats import Nats
from real.patience import patience
from real.postgres import Postgres
from real.programs import bound, need, stop, wait_for
from real.prometheus import alertmanager, asked_of, configured_prometheus

# What a reader's shell holds from the first blocks of a page on.
SETTING = "export PATH=/opt/foreshock/.venv/bin:$PATH\nexport FORESHOCK_DB_FILE=/etc/foreshock/database.url\n"
DOCS = Path(__file__).parents[1] / "docs"
SHIMS = {
    # As root, really as that user: it cannot read root's own folders.
    "sudo": '[ "$(id -u)" != 0 ] || as="setpriv --reuid=$2 --regid=$2 --clear-groups"; shift 2; exec $as "$@"',
    "systemctl": 'echo "$@" >> "$ASKED"',
}
INSTALLED_ALREADY = {"pip": "exit 0", "python3": f'[ "$2" = venv ] || exec {sys.executable} "$@"'}
_NGINX = (
    "pid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\nevents {{}}\nhttp {{\n{places}include {conf}/*.conf;\n}}\n"
)


class InstalledSite:
    """The paths of the units and of the page, in a folder; PostgreSQL is a real one. `installs`: pip is real, too."""

    nats: Nats  # of a site that has one

    def __init__(self, folder: Path, server: Postgres, page: str, *, installs: bool = False) -> None:
        self.folder, self.server, self.page = folder, server, DOCS / page
        self.paths = {f"/{name}": folder / name.replace("/", "-") for name in (
            "etc/foreshock", "etc/systemd/system", "etc/nginx/conf.d", "etc/prometheus", "etc/slurm", "etc/nats",
            "var/lib/foreshock-server", "var/lib/grafana/dashboards", "var/lib/foreshock",
        )}  # fmt: skip
        for path in (folder / "bin", folder / "home", *self.paths.values()):
            path.mkdir()
        for name, script in (SHIMS if installs else SHIMS | INSTALLED_ALREADY).items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / "bin" / name).chmod(0o755)
        (folder / "asked").touch()
        self.here: dict[str, str] = {str(known): str(path) for known, path in self.paths.items()}
        programs = folder / "venv/bin" if installs else Path(sys.executable).parent
        self.here["/opt/foreshock/.venv/bin:"] = f"{folder / 'bin'}:{programs}:"
        if installs:  # with what the page says that NATS needs besides
            self.here["/opt/foreshock/.venv"] = str(folder / "venv")
            self.here["./foreshock[server,dashboard]"] = f"{DOCS.parent}[server,dashboard,nats]"
        self.units: dict[str, subprocess.Popen[bytes]] = {}
        self.options: dict[str, list[str]] = {}
        self._obeyed = 0
        self.parts = ExitStack()  # what a site has besides, and what it starts of it
        self.alerts = self.prometheus = ""  # where they answer
        self.said: dict[str, list[str]] = {}
        self.step_s: dict[str, float] = {}
        self.began = time.monotonic()
        self.moments: dict[str, float] = {}  # fault, shown, out: since the first command

    def postgres(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's own programs."""
        subprocess.run([self.server.bin / program, *arguments], check=True, env=self.environment())

    def environment(self) -> dict[str, str]:
        """What a shell is told: nothing of ours but the paths."""
        found = {name: value for name, value in os.environ.items() if not name.startswith(("FORESHOCK_", "PG"))}
        path = f"{self.folder / 'bin'}:{self.server.bin}:{found['PATH']}:/usr/sbin"
        own = {"PGHOST": str(self.server.folder), "PGUSER": "postgres", "ASKED": str(self.folder / "asked")}
        return {**found, **own, "PATH": path}

    def blocks(self, heading: str = "") -> list[str]:
        """The shell blocks under a heading of the page; those before the first for none."""
        parts = re.split(r"^## (.+)$", self.page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        text = parts[0] if not heading else parts[parts.index(heading) + 1]
        return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def headings(self) -> dict[str, int]:
        """How many shell blocks stand under each heading that has some."""
        names = re.findall(r"^## (.+)$", self.page.read_text(encoding="utf-8"), re.MULTILINE)
        return {name: len(found) for name in names if (found := self.blocks(name))}

    def placed(self, text: str) -> str:
        """A text of the page or of a unit, with its paths here; of two names the longer."""
        known = "|".join(map(re.escape, sorted(self.here, key=len, reverse=True)))
        return re.sub(known, lambda one: self.here[one[0]], text)

    def walk(self) -> None:
        """Each block of the page, in its order, and what a reader does between them."""
        self.began = time.monotonic()
        for heading in self.headings():
            began = time.monotonic()
            for block in self.blocks(heading):
                self.said.setdefault(heading, []).append(self.run(self.before(block)))
                self.after(block)
            self.step_s[heading] = time.monotonic() - began

    def before(self, block: str) -> str:
        """The block as a reader runs it, when it is time for it."""
        return block

    def after(self, block: str) -> None:
        """What the machine does of a block, and how long a reader waits for it."""

    def fault_behind_nats(self) -> None:
        """One more, on another node, once the page has put NATS in between; until it is shown."""
        raise NotImplementedError

    def moment(self, name: str) -> None:
        """Now is that moment; the first counts."""
        self.moments.setdefault(name, time.monotonic() - self.began)

    def start_alertmanager(self) -> str:
        """One that tells nobody; its host and port."""
        quiet = "route: {receiver: none}\nreceivers: [{name: none}]\n"
        self.alerts = self.parts.enter_context(alertmanager(self.folder, quiet))
        return self.alerts.removeprefix("http://")

    def start_prometheus(self, folder: Path) -> None:
        """With the `prometheus.yml` that the page has made; until it scrapes our server and knows whom to alert."""
        for file in folder.glob("*.y*ml"):
            file.write_text(self.placed(file.read_text()).replace("scrape_interval: 30s", "scrape_interval: 1s"))
        self.prometheus = self.parts.enter_context(configured_prometheus(folder))
        query = "/api/v1/query?query=up%7Bjob=%22foreshock-server%22%7D==1"
        wait_for("Prometheus scrapes the server", lambda: asked_of(self.prometheus + query)["data"]["result"] != [])
        known = asked_of(f"{self.prometheus}/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
        assert [one["url"] for one in known] == [f"{self.alerts}/api/v2/alerts"]

    def alerted(self) -> set[str]:
        """The nodes of which Alertmanager holds a verdict."""
        held = asked_of(f"{self.alerts}/api/v2/alerts")
        return {one["labels"].get("node", "") for one in held if one["labels"]["alertname"] == "ForeshockVerdict"}

    def run(self, text: str) -> str:
        """Run a block as the page has it; what it prints."""
        script = self.placed(f"set -euo pipefail\n{SETTING}{text}")
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder / "home", env=self.environment(), capture_output=True, text=True,
            timeout=patience(120), check=False,
        )  # fmt: skip
        assert done.returncode == 0, (script, done.stdout[-1000:], done.stderr[-2000:])
        return done.stdout

    def asked(self) -> list[str]:
        """What systemd was asked."""
        return (self.folder / "asked").read_text().splitlines()

    def obey(self) -> None:
        """Do what systemd was asked since the last time; `options` are more of a unit's, for ports that are free."""
        asked = self.asked()
        for line in asked[self._obeyed :]:
            words = line.split()
            if words[:2] == ["enable", "--now"]:
                self._start(words[2], self.options.get(words[2], []))
            elif words[0] == "restart" and words[1] in self.units:
                stop(self.units.pop(words[1]), signal.SIGTERM)
                self._start(words[1], self.options.get(words[1], []))
            elif words == ["restart", "prometheus"]:
                self.start_prometheus(self.paths["/etc/prometheus"])
            elif words == ["restart", "nats-server"]:
                self.parts.callback(self.nats.end)
                self.nats.start()
            elif words == ["reload", "nginx"]:
                self._start_nginx()
        self._obeyed = len(asked)

    def _start(self, unit: str, more: list[str]) -> None:
        folder = self.paths["/etc/systemd/system"]
        files = [folder / f"{unit}.service", *sorted((folder / f"{unit}.service.d").glob("*.conf"))]
        lines = [line for file in files for line in self.placed(file.read_text()).splitlines()]
        settings = [line.partition("=")[::2] for line in lines if "=" in line and not line.startswith("#")]
        credentials = self.folder / f"credentials-{unit}"
        credentials.mkdir(exist_ok=True)
        environment, unset = self.environment(), set[str]()
        for name, value in settings:
            if name == "LoadCredential" and not value:  # those before it are not loaded
                for file in credentials.iterdir():
                    file.unlink()
            elif name == "LoadCredential":
                ident, _, path = value.partition(":")
                (credentials / ident).write_bytes(Path(path).read_bytes())
            elif name == "Environment":
                environment |= dict(word.split("=", 1) for word in value.replace("%d", str(credentials)).split())
            elif name == "UnsetEnvironment":
                unset |= set(value.split())
            elif name == "StateDirectory":
                environment["STATE_DIRECTORY"] = self.placed(f"/var/lib/{value}")
        command = [value for name, value in settings if name == "ExecStart"][-1]
        environment = {name: value for name, value in environment.items() if name not in unset}
        words = [*shlex.split(command.replace("%d", str(credentials))), *more]
        with (self.folder / f"{unit}.log").open("wb") as log:
            self.units[unit] = subprocess.Popen(
                bound(words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def _start_nginx(self) -> None:
        conf = self.folder / "nginx.conf"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "access_log off;\n" + "".join(f"{kind}_temp_path {self.folder}/nginx-{kind};\n" for kind in kinds)
        conf.write_text(_NGINX.format(folder=self.folder, places=places, conf=self.paths["/etc/nginx/conf.d"]))
        where = ["-c", str(conf), "-p", str(self.folder), "-e", str(self.folder / "nginx.log")]
        command = [need("nginx", "nginx-light"), *where, "-g", "daemon off;"]
        with (self.folder / "nginx.out").open("wb") as log:
            self.units["nginx"] = subprocess.Popen(bound(command), stdout=log, stderr=log)

    def end(self) -> None:
        """Stop what was started, the newest first."""
        for process in reversed(self.units.values()):
            stop(process, signal.SIGTERM)
        self.parts.close()
