"""Whatever a node, run or message is called: no command writes a control character, a forged line or a formula."""

import ast
import csv
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sqlalchemy as sa
from attacks.hostile_texts import hidden_in, hostile
from click.testing import CliRunner, Result
from fleet_store import fill
from hypothesis import HealthCheck, example, given, settings
from stored_run import store_run

from cli.main import COMMANDS, foreshock
from store.database.connections import migrate, open_database, writing
from store.hints.hint_log import save_hint
from store.records.hint import Evidence, Hint
from store.tables import schema
from store.visible_text import visible

ROOT = Path(__file__).parents[2]
FORGED = "FORGED line of a log"
# Columns that hold words of others; keys that join tables are changed in all of them alike.
FREE = {
    "node",
    "rack",
    "leaf",
    "gpu_model",
    "driver",
    "run",
    "message",
    "reason",
    "user",
    "owner",
    "name",
    "why",
    "file",
}
KEPT = {"leases", "marks", "keys", "inventory", "tokens", "audit"}
# What each command is run with; DB and FOLDER stand for the database and a folder of the test's own.
RUNS = (
    "hints list --state all --db DB", "hints list --state all --json --db DB", "hints outcomes --db DB",
    "hints deliveries --db DB", "hints breaker list --db DB", "hints approve EVIL --db DB",
    "hints release EVIL --db DB", "lemons --db DB --rma FOLDER/rma.csv --tickets FOLDER/tickets.csv",
    "lemons --json --db DB", "goodput --db DB", "goodput --json --db DB", "goodput --by node --db DB",
    "goodput --by driver --db DB", "goodput --cluster --db DB", "goodput --html FOLDER/report.html --db DB",
    "goodput --run EVIL --db DB", "diagnose --db DB", "diagnose --json --db DB", "diagnose --run EVIL --db DB",
    "advise checkpoint --run EVIL --db DB", "advise spares --db DB", "what-if --run EVIL --db DB",
    "models list --db DB", "models show EVIL --db DB", "db status --db DB", "db status --db sqlite:///EVIL/x",
    "links --db DB", "score --db DB", "doctor --db DB", "formats", "audit verify --db DB", "token list --db DB",
    "deploy write EVIL FOLDER/units",
    "policy check FOLDER/EVIL", "rules check FOLDER/EVIL", "parse kernel FOLDER/EVIL", "parse EVIL FOLDER/kern.log",
    "parse kernel FOLDER/kern.log", "parse auto FOLDER/kern.log", "ingest FOLDER/EVIL --db DB",
    "ingest FOLDER --db DB --tz EVIL",
    "health EVIL --server http://127.0.0.1:9 --timeout 1", "links --EVIL", "EVIL", "backtest --EVIL",
    "consume --EVIL", "dashboard --EVIL", "demo --EVIL", "serve --EVIL", "sidecar --EVIL", "simulate --EVIL",
    "train --EVIL", "study FOLDER/EVIL", "check EVIL --db DB", "outages --db DB", "outages --json --db DB",
    "rma EVIL --db DB --out FOLDER/rma.zip", "rma gpu-001 --db DB --out FOLDER/rma.zip --json",
    "verdicts --server http://127.0.0.1:9", "prior import FOLDER/EVIL --db DB", "worlds FOLDER/EVIL --worlds EVIL",
)  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a fleet, a run and hints."""
    path = tmp_path_factory.mktemp("template") / "site.db"
    engine = open_database(f"sqlite:///{path}")
    migrate(engine)
    fill(engine, nodes=16, days=30)
    store_run(engine)
    now = datetime.now(UTC)
    with writing(engine).begin() as connection:
        for ident, node, state in (
            ("h1", "gpu-001", "proposed"),
            ("h2", "gpu-002", "sent"),
            ("h3", "gpu-003", "expired"),
        ):
            until = now + timedelta(hours=5)
            hint = Hint(ident, node, "cordon", state, "foreshock: test", "foreshock", now, until, Evidence(score=0.5))  # type: ignore[arg-type]
            save_hint(connection, hint, now, {})
    engine.dispose()
    return path


def spoilt(template: Path, folder: Path, text: str) -> str:
    """A copy of the database in which every name and message ends in a text; its URL."""
    path = folder / "site.db"
    for leftover in folder.glob("site.db*"):
        leftover.unlink()
    shutil.copyfile(template, path)
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        for table in schema.metadata.sorted_tables:
            for column in table.c:
                if table.name not in KEPT and column.name in FREE and isinstance(column.type, sa.String):
                    change = {column.name: column.concat(text)}
                    connection.execute(table.update().where(column.is_not(None)).values(change))
    engine.dispose()
    return f"sqlite:///{path}"


def ran(line: str, text: str, url: str, folder: Path) -> Result:
    """One command, as the program runs it."""
    name = text.replace("/", "")[:60] or "x"
    words = [word.replace("EVIL", name).replace("FOLDER", str(folder)).replace("DB", url) for word in line.split()]
    return CliRunner().invoke(foreshock, words)


class Tags(HTMLParser):
    """The tags of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag begins."""
        self.found |= {tag, *(f"{tag}.{name}" for name, _ in attrs)}


def cells(path: Path) -> Iterator[str]:
    """Every cell of a CSV file, but for the header's."""
    with path.open(newline="", encoding="utf-8") as stream:
        for row in list(csv.reader(stream))[1:]:
            yield from row


def test_every_command_is_tried() -> None:
    """A new one is not forgotten."""
    assert set(COMMANDS) <= {line.split()[0] for line in RUNS}


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@example(text="\xa2?")
@example(text="?\xb0\x0b\xc9=0")
@example(text=f"\x1b[2J\x9b31m\u202e\u200b\r\n{FORGED}\n=cmd()\t<img src=x onerror=alert(1)>")
@given(text=hostile())
def test_no_command_prints_what_acts_on_a_terminal(template: Path, tmp_path: Path, text: str) -> None:
    """Tables, sentences, errors, JSON; what is written for spreadsheets and browsers."""
    text = f"{text}\n{FORGED}"
    url = spoilt(template, tmp_path, text)
    (tmp_path / "kern.log").write_bytes(
        f"2025-03-01T04:05:06Z gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, {text}\n".encode() * 2
    )
    printed = 0
    for line in RUNS:
        done = ran(line, text, url, tmp_path)
        assert done.exception is None or isinstance(done.exception, SystemExit), (line, done.exception)
        said = done.stdout_bytes.decode() + done.stderr_bytes.decode()
        assert hidden_in(said) == [], line
        assert [one for one in said.splitlines() if one.startswith(FORGED)] == [], line
        printed += FORGED in said or visible(text)[:8] in said  # a long name is cut before its end
    assert printed >= 10  # the names did come out, and not only headers
    tags = Tags((tmp_path / "report.html").read_text()).found
    assert not {"img", "script", "iframe", "a"} & tags
    assert [tag for tag in tags if ".on" in tag] == []
    assert hidden_in((tmp_path / "report.html").read_text()) == []
    for path in (tmp_path / "rma.csv", tmp_path / "tickets.csv"):
        assert [cell for cell in cells(path) if cell.startswith(("=", "@", "+", "\t", "\r"))] == []
        assert hidden_in(path.read_text(), "\n\r") == []


def test_nothing_of_cli_prints_but_by_the_one_function() -> None:
    """click.echo and print stand in cli/console/output.py alone."""
    found = []
    for path in sorted((ROOT / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in ("print", "click.echo", "click.secho", "sys.stdout.write", "click.confirm", "click.prompt"):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert [one for one in found if not one.startswith("cli/console/output.py")] == []
