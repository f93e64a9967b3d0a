"""`foreshock dashboard`: runs Streamlit as a child, says where it is once it answers, and takes it down with itself."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import click

from api.server.people_settings import PeopleSettings
from cli.config.dashboard import DashboardSignIn, read_dashboard, write_secrets
from cli.console.errors import Failure
from cli.console.output import print_text
from cli.processes.children import end_with_parent, free_port
from wire.access.address import INSECURE_OPTION, clear_text, is_loopback, shared_secret

START_S = 60.0
STOP_S = 5.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class DashboardAddress:
    """Where the dashboard listens, and which API it asks: `server`, unless `sign_in` names clusters."""

    server: str = ""
    host: str = "127.0.0.1"
    port: int = 8501
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_http: bool = False
    sign_in: DashboardSignIn = field(default_factory=DashboardSignIn)
    people: PeopleSettings | None = None
    secrets: Path | None = None  # Streamlit's, where people sign in

    @property
    def handed_on(self) -> list[str]:
        """What the child is told of the API; the token stays in its file."""
        files = {name: getattr(self, name) for name in ("token_file", "ca_file", "cert_file", "key_file")}
        named = {f"--{name.replace('_', '-')}": str(file.resolve()) for name, file in files.items() if file is not None}
        given = [word for pair in named.items() for word in pair]
        insecure = ["--insecure-http"] if self.insecure_http else []
        asked = ["--server", self.server, *given, *insecure]
        if self.sign_in.clusters:
            asked = [f"--cluster={each.described(name)}" for name, each in self.sign_in.clusters.items()]
        return [*asked, *self.sign_in.options]

    @property
    def url(self) -> str:
        """The address that a browser on this machine opens."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104  # compared, not bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def command(place: DashboardAddress) -> list[str]:
    """The child's command line: Streamlit without telemetry, e-mail prompt, file watcher or traceback pages.

    It answers to its own names alone, which DNS rebinding cannot take, and to no program but a browser.
    """
    spec = importlib.util.find_spec("dashboard")
    if spec is None or spec.origin is None:
        raise Failure("the package `dashboard` is not installed: install foreshock[dashboard]")
    settings = {
        "server.address": place.host,
        "server.port": str(place.port),
        "server.headless": "true",
        "server.showEmailPrompt": "false",
        "server.fileWatcherType": "none",
        "server.enableXsrfProtection": "true",
        "server.enableCORS": "true",
        "server.enableAgentApi": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "logger.level": "warning",
        # Python searches for garbage by itself: after each part of a page it would search what all sessions hold.
        "runner.postScriptGC": "false",
    }
    flags = [f"--{name}={value}" for name, value in settings.items()]
    flags += [f"--server.allowedHosts={name}" for name in place.sign_in.served_hosts(place.host)]
    flags += [] if place.secrets is None else [f"--secrets.files={place.secrets}"]
    app = str(Path(spec.origin).with_name("app.py"))
    return [sys.executable, "-m", "streamlit", "run", app, *flags, "--", *place.handed_on]


@contextmanager
def running(place: DashboardAddress) -> Iterator[subprocess.Popen[bytes]]:
    """The dashboard as a child process, answering; stopped at the end by its process id.

    Raises:
        Failure: the port is taken, or Streamlit ends or does not answer.
    """
    _check_free(place)
    # The address of a client is that of its connection, whatever X-Forwarded-For says: proxies are told by it.
    environment = {**os.environ, "FORWARDED_ALLOW_IPS": ""}
    with tempfile.TemporaryDirectory(prefix="foreshock-dashboard-") as folder:
        if place.sign_in.sign_in == "oidc" and place.people is not None:
            write_secrets(place.sign_in, place.people, Path(folder) / "secrets.toml")
            place = replace(place, secrets=Path(folder) / "secrets.toml")
        # A session of its own: Ctrl-C reaches this program alone, which then stops the child in order.
        child = subprocess.Popen(  # noqa: S603  # our own interpreter and script
            command(place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_parent,
            env=environment,
        )
        try:
            _await_health(place, child)
            yield child
        finally:
            stop(child)


def stop(child: subprocess.Popen[bytes]) -> None:
    """Ask the child to end, and end it where it does not within `STOP_S`."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _check_free(place: DashboardAddress) -> None:
    """Refuse a port on which somebody else answers: his health would be taken for ours."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((place.host, place.port))
        except OSError as error:
            raise Failure(
                f"cannot listen on {place.host}:{place.port} ({error.strerror}): choose another --port or --host"
            ) from error


def _await_health(place: DashboardAddress, child: subprocess.Popen[bytes]) -> None:
    import httpx2

    deadline = time.monotonic() + START_S
    with httpx2.Client(timeout=2.0, trust_env=False) as client:  # one: each reads the machine's authorities anew
        while time.monotonic() < deadline:
            if child.poll() is not None:
                raise Failure(
                    f"Streamlit ended with status {child.returncode} before it answered: see its message above"
                )
            with suppress(httpx2.HTTPError):
                if client.get(f"{place.url}/_stcore/health").status_code == 200:
                    return
            time.sleep(_POLL_S)
    raise Failure(f"Streamlit did not answer at {place.url} within {START_S:.0f} s: the machine may be overloaded")


@contextmanager
def _stopping_on_signals() -> Iterator[None]:
    """SIGTERM and SIGINT unwind this program, so that the child goes first."""

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0 if number == signal.SIGINT else 128 + number)

    former: dict[int, Callable[..., object] | int | None] = {
        number: signal.signal(number, unwind) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--server", envvar="FORESHOCK_SERVER", help="The API: http://HOST:PORT; or --config with `clusters`.")
@click.option("--port", default=8501, show_default=True, help="Port of the dashboard; 0 takes any free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that the dashboard listens on.")
@click.option(
    "--token-file",
    envvar="FORESHOCK_TOKEN_FILE",
    type=_FILE,
    help="File with the API token: scope `read`, and `act` to approve and withdraw hints.",
)
@click.option("--ca-file", envvar="FORESHOCK_CA_FILE", type=_FILE, help="Authorities to trust for https.")
@click.option("--cert-file", envvar="FORESHOCK_CERT_FILE", type=_FILE, help="Client certificate (and key) in PEM.")
@click.option("--key-file", envvar="FORESHOCK_KEY_FILE", type=_FILE, help="The client certificate's key.")
@click.option("--config", "file", type=_FILE, help="YAML file with `dashboard` and `people`: sign-in, clusters.")
@click.option(
    "--insecure-http", is_flag=True, envvar="FORESHOCK_INSECURE_HTTP", help="Send the token over http:// too."
)
def dashboard(
    server: str | None, port: int, host: str, insecure_http: bool, file: Path | None, **files: Path | None
) -> None:
    """Show the cluster in a browser: what fails, what will, where the hours went, what is asked of the scheduler."""
    sign_in, people = read_dashboard(file) if file is not None else (DashboardSignIn(), None)
    _check_sign_in(sign_in, host, files["token_file"])
    if sign_in.clusters:
        _check_alone(server, insecure_http, files)
    else:
        _check_server(server, insecure_http, files["token_file"] is not None or sign_in.sign_in != "none")
    if importlib.util.find_spec("streamlit") is None:
        raise Failure("`foreshock dashboard` needs the package streamlit: install foreshock[dashboard]")
    place = DashboardAddress(
        server or "",
        host,
        port or free_port(host=host),
        insecure_http=insecure_http,
        sign_in=sign_in,
        people=people,
        **files,
    )
    secrets = [secret for one in sign_in.clusters.values() for secret in (one.token_file, one.key_file)]
    for secret in (files["token_file"], files["key_file"], *secrets):
        if (shared := shared_secret(secret)) is not None:
            print_text(shared, err=True)
    with _stopping_on_signals(), running(place) as child:
        print_text(f"Dashboard {place.url}")
        raise Failure(f"Streamlit ended by itself with status {child.wait()}: see its message above")


def _check_server(server: str | None, insecure_http: bool, bears_token: bool) -> None:
    """Refuse an address that is none, and one over which a token may not go."""
    if server is None:
        raise Failure("--server is missing: write http://HOST:PORT, or name `clusters` in the file of --config")
    if not server.startswith(("http://", "https://")):
        raise Failure(f"--server {server!r} is no address: write http://HOST:PORT")
    why = clear_text(server) if bears_token and not insecure_http else None
    if why is not None:
        raise Failure(f"--server: {why}; or {INSECURE_OPTION}, where a mesh or tunnel encrypts the way")


def _check_alone(server: str | None, insecure_http: bool, files: Mapping[str, Path | None]) -> None:
    """With `clusters` each has its own address, token and certificates: what is given for all would go to each."""
    given = {"server": server, "insecure_http": insecure_http or None, **files}
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if named:
        raise Failure(f"{', '.join(named)}: leave it out: the file of --config names `clusters`, each with its own")


def _check_sign_in(sign_in: DashboardSignIn, host: str, token_file: Path | None) -> None:
    """Refuse what would let anybody act, or nobody."""
    if sign_in.sign_in == "none" and not is_loopback(host):
        raise Failure(
            f"--host {host}: whoever reaches it would see the cluster and act with this token: have people sign in "
            "(--config with `dashboard: {sign_in: oidc}` or `proxy`, docs/people.md), or listen on 127.0.0.1"
        )
    if sign_in.sign_in == "oidc" and token_file is not None:
        raise Failure("--token-file: leave it out with `sign_in: oidc`: each person's own sign-in goes to the API")
    if sign_in.sign_in == "proxy" and token_file is None and not sign_in.clusters:
        raise Failure("--token-file is missing: with `sign_in: proxy` the API takes a person's name from a token alone")
