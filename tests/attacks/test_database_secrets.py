"""The database's password, and what lies beside the database, are nobody's who has an account on the machine."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from real.patience import patience
from real.postgres import Postgres
from real.programs import stop, wait_for

from cli.console.secret_arguments import passwords
from store.database.connections import masked, migrate, open_database

FORESHOCK = str(Path(sys.executable).parent / "foreshock")
SECRET = "hush-hush-hush"


def environment(**more: str) -> Mapping[str, str]:
    """This one's, without ours."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("FORESHOCK_")}, **more}


def with_password(url: str) -> str:
    """A URL of the test's server with a password, which it does not ask for."""
    return url.replace("://", f"://postgres:{SECRET}@", 1) if "@" not in url else url.replace("@", f":{SECRET}@", 1)


def children(pid: int) -> Iterator[int]:
    """Every process that descends from one, itself too."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from children(int(child))


@pytest.mark.integration
@pytest.mark.parametrize(("way", "count"), [("option", 2), ("environment", 1), ("file", 1)])
def test_no_process_list_shows_the_password_of_a_server(
    tmp_path: Path, postgres_server: Postgres, way: str, count: int
) -> None:
    """Of the parent and of each process that it starts; nor does the log."""
    url, log, file = with_password(postgres_server.new_database()), tmp_path / "serve.log", tmp_path / "url"
    file.write_text(url + "\n")
    given = {"option": ["--db", url]}.get(way, [])
    settings = {"environment": {"FORESHOCK_DB": url}, "file": {"FORESHOCK_DB_FILE": str(file)}}.get(way, {})
    with log.open("wb") as out:
        command = [FORESHOCK, "serve", "--port", "0", "--processes", str(count), *given]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(**settings)
        )
    try:
        wait_for("the API answers", lambda: "API http" in log.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(process.pid)}
        assert len(lines) >= (3 if count > 1 else 1)
        assert [line for line in lines.values() if SECRET.encode() in line] == []
    finally:
        stop(process, signal.SIGTERM)
    assert SECRET not in log.read_text()


URLS = [
    f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/none",
    f"postgresql+psycopg://u@127.0.0.1:1/none?password={SECRET}",
    f"oracle://u:{SECRET}@db/x",
    f"no url://u:{SECRET}@db",
]


@pytest.mark.parametrize(
    ("command", "url"),
    [
        *((["db", "status"], url) for url in URLS),
        *(([*command], URLS[1]) for command in (("db", "migrate"), ("serve", "--port", "0"), ("doctor",))),
    ],
)
def test_no_error_shows_the_password(command: list[str], url: str) -> None:
    """A database that is away, of another kind, or no URL at all: every command opens it in one place."""
    done = subprocess.run(
        [FORESHOCK, *command],
        capture_output=True,
        text=True,
        check=False,
        env=environment(FORESHOCK_DB=url),
        timeout=patience(60),
    )
    assert done.returncode in (2, 3)
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_is_masked_wherever_its_password_stands() -> None:
    """In the authority, with an @ of its own, and in the query."""
    assert masked("postgresql://u:p@ss@h/d") == "postgresql://u:***@h/d"
    assert masked("postgresql://u@h/d?password=x&a=1") == "postgresql://u@h/d?password=***&a=1"
    assert masked("sqlite:////var/lib/x.db") == "sqlite:////var/lib/x.db"
    line = b"foreshock\0serve\0--db\0postgresql://u:p@ss@h/d?password=hush&a=1\0--port\x000\0"
    assert [line[begin:end] for begin, end in passwords(line)] == [b"p@ss", b"hush"]
    assert passwords(b"foreshock\0doctor\0--server\0https://h:10870/x\0") == []


def test_an_empty_or_missing_file_of_the_address_is_said(tmp_path: Path) -> None:
    """With the variable and the remedy; the option wins over it."""
    empty = tmp_path / "empty"
    empty.touch()
    for path, word in ((empty, "is empty"), (tmp_path / "none", "No such file")):
        done = subprocess.run(
            [FORESHOCK, "db", "status"],
            capture_output=True,
            text=True,
            check=False,
            env=environment(FORESHOCK_DB_FILE=str(path)),
            timeout=patience(60),
        )
        assert (done.returncode, "FORESHOCK_DB_FILE" in done.stderr, word in done.stderr) == (2, True, True)


def test_a_new_database_is_its_owner_s_alone(tmp_path: Path) -> None:
    """The file and what SQLite lays beside it, whatever the umask says."""
    before = os.umask(0)
    try:
        engine = open_database(f"sqlite:///{tmp_path / 'x.db'}")
        migrate(engine)
        with engine.connect():
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("x.db*")}
    finally:
        os.umask(before)
        engine.dispose()
    assert modes["x.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_what_a_sidecar_writes_is_its_user_s_alone_and_an_open_token_is_said(tmp_path: Path) -> None:
    """Spool and all in it; the token is read, for an agent that stops over a file's mode sees nothing."""
    token, log, spool = tmp_path / "token", tmp_path / "kern.log", tmp_path / "spool"
    token.write_text("a-secret-of-many-letters")
    token.chmod(0o644)
    log.write_text("")
    said = tmp_path / "said"
    command = [FORESHOCK, "sidecar", "--server", "http://127.0.0.1:1", "--token-file", token, "--node", "n1"]
    with said.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--source", f"file:{log}:kernel", "--spool", spool, "--port", "0"],
            stdout=out,
            stderr=out,
            env=environment(),
            umask=0,
        )
    try:
        with log.open("a") as lines:
            lines.write(
                "2025-03-01T04:05:06.789+00:00 n1 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off.\n"
            )
        wait_for("it is kept", lambda: any(spool.glob("events/*.seg")) or process.poll() is not None, 60)
        assert process.poll() is None, said.read_text()
        modes = {str(path.relative_to(tmp_path)): path.stat().st_mode for path in [spool, *spool.rglob("*")]}
        assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
        wait_for("it is said", lambda: "chmod 0600" in said.read_text(), 10)
        assert str(token) in said.read_text()
    finally:
        stop(process, signal.SIGTERM)
