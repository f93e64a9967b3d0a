"""TLS of the server: nobody reads along, nobody passes for it, a certificate says which node speaks."""

import hashlib
import http.client
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from real.certificates import Authority, Certificate
from real.foreshock import free_port, serve
from real.patience import patience
from real.postgres import Postgres
from real.preloaded import Started, start
from real.programs import need, stop, wait_for

from api.server.settings import TlsSettings
from cli.console.errors import Failure
from cli.processes.tls import ServerTls, extension_of
from collectors.ship.transport import ServerAccess, Transport
from dashboard.client import ApiAddress, ApiClient, ApiProblem

TOKEN = "a-secret-of-many-letters"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The site's own authority."""
    return Authority.make(tmp_path_factory.mktemp("authority"))


@dataclass(frozen=True, slots=True)
class Secured:
    """A server behind TLS."""

    process: Started
    url: str
    certificate: Certificate
    log: Path

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def serial(self, trust: ssl.SSLContext) -> str:
        """The number of the certificate that a new connection is shown."""
        with (
            socket.create_connection(("127.0.0.1", self.port), patience(10)) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            return str((secure.getpeercert() or {})["serialNumber"])


@contextmanager
def secured(tmp_path: Path, authority: Authority, client: str, *options: str) -> Iterator[Secured]:
    """`foreshock serve` with a certificate; `client` as `tls: {client: ...}`."""
    certificate = authority.sign("server", "IP:127.0.0.1,DNS:foreshock.example.org")
    file, log = tmp_path / "server.yaml", tmp_path / "serve.log"
    asks = "" if client == "none" else f", client_ca: {authority.pem}, client: {client}"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    file.write_text(
        f"tls: {{certificate: {certificate.pem}, key: {certificate.key}{asks}}}\n"
        f"tokens: [{{name: t, sha256: {digest}, scopes: [read, ingest]}}]\n"
    )
    given = options or ("--db", f"sqlite:///{tmp_path / 'x.db'}")
    log.write_bytes(b"")
    process = start(["serve", "--port", "0", "--config", file, *given], log)
    try:
        wait_for("the API answers", lambda: "API http" in log.read_text() or process.poll() is not None, 60)
        line = next((line for line in log.read_text().splitlines() if line.startswith("API ")), log.read_text())
        assert line.startswith("API https://127.0.0.1:"), line
        yield Secured(process, line.removeprefix("API "), certificate, log)
    finally:
        stop(process, signal.SIGTERM)


def test_a_client_that_rests_does_not_hold_up_the_servers_end(tmp_path: Path, authority: Authority) -> None:
    """As each sidecar does between two heartbeats: nobody waits for its goodbye, and no error is told."""
    with secured(tmp_path, authority, "none") as server:
        trust = ssl.create_default_context(cafile=authority.pem)
        client = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=patience(10), context=trust)
        client.request("GET", "/livez")
        assert client.getresponse().read()
        stop(server.process, signal.SIGTERM)
        assert "graceful shutdown exceeded" not in server.log.read_text()
        client.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_nobody_passes_for_the_server_and_no_old_protocol_is_spoken(tmp_path: Path, authority: Authority) -> None:
    """A client that trusts another authority goes away; TLS 1.1 and plain HTTP get no answer; 1.2 and 1.3 do."""
    other = Authority.make(tmp_path, "other")
    with secured(tmp_path, authority, "none") as server:
        assert httpx.get(f"{server.url}/livez", verify=trusting(authority)).status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{server.url}/livez", verify=trusting(other))
        for version, is_spoken in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
            old = trusting(authority)
            old.set_ciphers("ALL:@SECLEVEL=0")
            old.minimum_version = old.maximum_version = version
            assert answers(lambda old=old: server.serial(old)) is is_spoken  # type: ignore[misc]
        plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience(10))
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            plain.request("GET", "/livez")
            plain.getresponse()


def test_only_who_shows_a_certificate_of_the_site_is_let_in(tmp_path: Path, authority: Authority) -> None:
    """`client: required`: sidecar and dashboard show theirs; a stranger's own authority helps nobody."""
    ours, stranger = authority.sign("client", "DNS:gpu-017"), Authority.make(tmp_path, "stranger")
    theirs = stranger.sign("theirs", "DNS:gpu-017")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with secured(tmp_path, authority, "required") as server:
        found = {}
        for name, shown in (("none", None), ("theirs", theirs), ("ours", ours)):
            files = (None, None) if shown is None else (shown.pem, shown.key)
            access = ServerAccess(token, patience(10), authority.pem, *files)
            with closing(Transport(server.url, access)) as transport:
                found[name] = transport.post("/api/v1/heartbeats", []).status
        assert found == {"none": 0, "theirs": 0, "ours": found["ours"]}
        assert 200 <= found["ours"] < 300
        client = ApiClient(ApiAddress(server.url, TOKEN, authority.pem, ours.pem, ours.key))
        assert client.cluster().nodes == 0
        client.close()
        blank = ApiClient(ApiAddress(server.url, TOKEN, authority.pem))
        with pytest.raises(ApiProblem):
            blank.cluster()
        blank.close()


def test_a_certificate_is_renewed_without_a_restart_and_no_connection_is_dropped(
    tmp_path: Path, authority: Authority
) -> None:
    """Half a renewal is refused and said; then the new pair holds for new connections, and the old one goes on."""
    trust = trusting(authority)
    with secured(tmp_path, authority, "none") as server, httpx.Client(base_url=server.url, verify=trust) as kept:
        assert kept.get("/livez").status_code == 200
        before = server.serial(trust)
        new = Authority(authority.folder, authority.name).sign("renewed", "IP:127.0.0.1")
        shutil.copyfile(new.pem, server.certificate.pem)  # its key is still on the way
        wait_for("half a renewal is refused", lambda: "do not fit together" in server.log.read_text(), 30)
        assert server.serial(trust) == before
        shutil.copyfile(new.key, server.certificate.key)
        wait_for("the new one is shown", lambda: server.serial(trust) != before, 30)
        assert kept.get("/livez").status_code == 200
        assert server.log.read_text().count("the certificate was renewed") == 1


@pytest.mark.integration
def test_several_processes_share_the_certificate(
    tmp_path: Path, authority: Authority, postgres_server: Postgres
) -> None:
    """Whichever process takes the connection; after a renewal, too."""
    trust = trusting(authority)
    options = ("--db", postgres_server.new_database(), "--processes", "2")
    with secured(tmp_path, authority, "none", *options) as server:
        before = server.serial(trust)
        assert {server.serial(trust) for _ in range(20)} == {before}
        new = authority.sign("renewed-too", "IP:127.0.0.1")
        shutil.copyfile(new.key, server.certificate.key)
        shutil.copyfile(new.pem, server.certificate.pem)
        wait_for("both have renewed", lambda: server.log.read_text().count("was renewed") == 2, 30)
        assert before not in {server.serial(trust) for _ in range(20)}


@pytest.mark.parametrize("check", ["none", "optional", "required"])
def test_the_verified_names_of_a_client_reach_the_request(authority: Authority, check: Any) -> None:
    """DNS names of the subjectAltName alone; nothing of a certificate that was not asked for."""
    server = authority.sign("server-2", "IP:127.0.0.1")
    client = authority.sign("gpu-018", "DNS:gpu-017,DNS:gpu-017.cluster,URI:spiffe://a/b,IP:10.0.0.1")
    ca = None if check == "none" else authority.pem
    ours = ServerTls(TlsSettings(server.pem, server.key, ca, check))
    context = trusting(authority)
    context.load_cert_chain(client.pem, client.key)
    names = handshake(ours, context)["client_names"]
    assert names == (() if check == "none" else ("gpu-017", "gpu-017.cluster"))
    if check == "optional":
        assert handshake(ours, trusting(authority))["client_names"] == ()
    assert extension_of(lambda _name: None) is None


def test_files_that_cannot_serve_stop_the_start(tmp_path: Path, authority: Authority) -> None:
    """The key and the file are named; an encrypted key is no question on the terminal."""
    good, other = authority.sign("good", "IP:127.0.0.1"), authority.sign("wrong", "IP:127.0.0.1")
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-in", good.key, "-aes256", "-passout", "pass:secret", "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    empty = tmp_path / "empty.pem"
    empty.touch()
    for given, words in (
        (TlsSettings(tmp_path / "none.pem", good.key), ["tls, certificate", "none.pem", "No such file"]),
        (TlsSettings(good.pem, other.key), ["do not fit together", "wrong.key"]),
        (TlsSettings(good.pem, locked), ["without a password"]),
        (TlsSettings(empty, good.key), ["empty.pem", "PEM"]),
        (TlsSettings(good.pem, good.key, empty, "required"), ["client_ca", "empty.pem"]),
    ):
        with pytest.raises(Failure) as caught:
            ServerTls(given)
        assert all(word in caught.value.message for word in words), caught.value.message


def trusting(authority: Authority) -> ssl.SSLContext:
    """A client that trusts one authority."""
    return ssl.create_default_context(cafile=str(authority.pem))


def answers(connect: Callable[[], object]) -> bool:
    """Whether a connection comes about."""
    try:
        connect()
    except (ssl.SSLError, ConnectionError, httpx.TransportError):
        return False
    return True


def handshake(ours: ServerTls, theirs: ssl.SSLContext) -> dict[object, object]:
    """What the scope of a request says after a handshake in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ours.wrap_bio(there, back, server_side=True)
    client = theirs.wrap_bio(back, there, server_hostname="127.0.0.1")
    waiting: list[ssl.SSLObject] = [client, server]
    while waiting:
        for side in tuple(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    found = extension_of({"ssl_object": server}.get)
    assert found is not None
    return found


@pytest.mark.integration
def test_the_terminator_of_the_page_serves_and_asks_for_tokens(tmp_path: Path, authority: Authority) -> None:
    """nginx with the lines of docs/tls.md: a sidecar's post and a read through it; no token, no answer; no TLS 1.1."""
    certificate, port = authority.sign("nginx", "IP:127.0.0.1"), free_port()
    file = tmp_path / "server.yaml"
    file.write_text(
        f"tokens: [{{name: t, sha256: {hashlib.sha256(TOKEN.encode()).hexdigest()}, scopes: [read, ingest]}}]\n"
    )
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with (
        serve(f"sqlite:///{tmp_path / 'x.db'}", tmp_path, "--config", str(file)) as behind,
        terminator(tmp_path, certificate, port, behind.url.removeprefix("http://")),
    ):
        url, trust = f"https://127.0.0.1:{port}", trusting(authority)
        wait_for("nginx answers", lambda: answers(lambda: httpx.get(f"{url}/livez", verify=trust)), 30)
        assert httpx.get(f"{url}/api/v1/cluster", verify=trust).status_code == 401
        event = {
            "time": datetime.now(UTC).isoformat(),
            "node": "gpu-017",
            "source": "kernel",
            "kind": "xid",
            "code": 79,
        }
        rest = {"severity": "fatal", "cause": "hardware", "action": "reboot_node", "device": {"type": "gpu"}}
        items = [{**event, **rest, "message": "x" * 5000, "id": f"e{number}"} for number in range(300)]
        with closing(Transport(url, ServerAccess(token, patience(10), authority.pem))) as transport:
            assert transport.post("/api/v1/events", items).status in (200, 202)
        client = ApiClient(ApiAddress(url, TOKEN, authority.pem))
        assert len(client.events(10)) == 10
        client.close()


@contextmanager
def terminator(folder: Path, certificate: Certificate, port: int, behind: str) -> Iterator[None]:
    """nginx, with the server block that docs/tls.md shows."""
    page = (Path(__file__).parents[2] / "docs" / "tls.md").read_text(encoding="utf-8")
    block = page[page.index("server {\n") : page.index("```", page.index("server {\n"))]
    for shown, here in (
        ("listen 10443", f"listen 127.0.0.1:{port}"),
        ("/etc/foreshock/tls/server.pem", str(certificate.pem)),
        ("/etc/foreshock/tls/server.key", str(certificate.key)),
        ("127.0.0.1:10870", behind),
    ):
        assert shown in block
        block = block.replace(shown, here)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf = folder / "nginx.conf"
    conf.write_text(f"pid {folder}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{places}{block}}}\n")
    command = [need("nginx", "nginx-light"), "-c", conf, "-p", folder, "-e", folder / "nginx.log", "-g", "daemon off;"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        stop(process, signal.SIGTERM)
