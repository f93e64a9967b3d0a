"""`foreshock ingest prometheus:URL` on a real Prometheus with the past of real nodes: what an archive of it gives."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from real.patience import patience
from real.postgres import Postgres
from real.programs import wait_for
from real.prometheus_history import PastPrometheus, past_prometheus, tape_as_openmetrics

from cli.commands.ingest import ingest_archive
from cli.console.errors import Failure
from cli.history import windows
from cli.history.intake import HistoryIntake, HistorySummary, whole_hours
from cli.history.server import HistoryAccess, HistoryServer
from cli.history.windows import HistoryChoice, HistoryReader
from store.database.connections import migrate, open_database
from store.tables import schema

TAPES = Path(__file__).parents[2] / "fixtures/real/gwdg/tapes"
CHOSEN = (
    "ggpu139_2025-03-21_gpus-dropped-off-bus-maybe",
    "ggpu142_2025-02-17_gpus-fallen-off-bus",
    "ggpu142_2025-03-21_gpus-fell-off-bus",
    "ggpu149_2025-06-12_gpus-dropped-off-bus",
)
SINCE, UNTIL = datetime(2025, 2, 9, tzinfo=UTC), datetime(2025, 6, 16, tzinfo=UTC)
ROLLUPS = (
    "SELECT node, time, samples, gpus_seen, gpu_temp_mean_c, gpu_temp_max_c, gpu_temp_spread_c, memory_temp_max_c,"
    " power_mean_w, power_max_w, gpu_util_mean, sm_clock_min_mhz FROM telemetry ORDER BY node, time"
)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of a Prometheus that has four tapes."""
    folder = tmp_path_factory.mktemp("past")
    with (folder / "past.txt").open("w", encoding="utf-8") as file:
        tape_as_openmetrics([TAPES / name for name in CHOSEN], file)
    with past_prometheus(folder, folder / "past.txt"):
        pass
    return folder / "data"


@pytest.fixture
def prometheus(past: Path, tmp_path: Path) -> Iterator[PastPrometheus]:
    """One of its own with that data."""
    folder = tmp_path / "prometheus"
    folder.mkdir()
    shutil.copytree(past, folder / "data")
    with past_prometheus(folder, None) as server:
        yield server


@pytest.fixture
def database(migrated_file: Path, tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty one."""
    shutil.copy(migrated_file, tmp_path / "history.db")
    engine = open_database(f"sqlite:///{tmp_path / 'history.db'}")
    yield engine
    engine.dispose()


def taken(engine: sa.Engine, url: str, until: datetime = UNTIL, waits_s: tuple[float, ...] = ()) -> HistorySummary:
    """What an import in this process does."""
    server = HistoryServer(HistoryAccess(url), waits_s=waits_s)
    server.first_contact()
    return HistoryIntake(engine, HistoryReader(server, HistoryChoice()), "prometheus:gwdg").run(SINCE, until)


def rows(file: Path, query: str) -> list[tuple[object, ...]]:
    """Of a database file."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchall()


def content(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything but the moments at which rows were received."""
    return {
        "events": rows(file, "SELECT id, time, node, source, kind, code, device, message FROM events ORDER BY id"),
        "telemetry": rows(file, "SELECT * FROM telemetry ORDER BY node, time"),
        "incidents": rows(file, "SELECT start, node, kind FROM incidents ORDER BY start, node, kind"),
        "histories": rows(file, "SELECT since, until, samples, skipped, state FROM histories"),
    }


@pytest.mark.integration
def test_a_prometheus_gives_the_events_and_roll_ups_of_the_archive(
    prometheus: PastPrometheus, database: sa.Engine, tmp_path: Path, migrated_file: Path
) -> None:
    """Of four tapes, two of them of one time: Xid 79, vanished GPUs, reboots, nodes of which only the BMC answers."""
    archive = tmp_path / "archive"
    (archive / "telemetry").mkdir(parents=True)
    for name in CHOSEN:
        for part in ("gpu", "host"):
            shutil.copy(
                TAPES / name / "telemetry" / f"{part}.parquet", archive / "telemetry" / f"{name}-{part}.parquet"
            )
    shutil.copy(migrated_file, tmp_path / "archive.db")
    ingest_archive(open_database(f"sqlite:///{tmp_path / 'archive.db'}"), archive)
    summary = taken(database, prometheus.url)
    ours, theirs = tmp_path / "history.db", tmp_path / "archive.db"
    events = "SELECT kind, code, node, source, device, time, message FROM events ORDER BY time, kind, node, device, id"
    assert rows(ours, events) == rows(theirs, events)
    assert ("xid", 79) in rows(ours, "SELECT kind, code FROM events")
    assert rows(ours, "SELECT id FROM events ORDER BY id") == rows(theirs, "SELECT id FROM events ORDER BY id")
    assert rows(ours, ROLLUPS) == rows(theirs, ROLLUPS)
    assert summary.samples > 400_000
    assert (summary.skipped, summary.troubles) == (0, {})


@pytest.mark.integration
def test_any_cut_gives_the_same_and_a_second_import_asks_for_nothing(
    prometheus: PastPrometheus,
    database: sa.Engine,
    tmp_path: Path,
    migrated_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows of at most three hours, and a range in three parts; a server that gets few samples a question."""
    middle = datetime(2025, 2, 16, 7, tzinfo=UTC)
    until = datetime(2025, 2, 21, tzinfo=UTC)
    whole = taken(database, prometheus.url, until)
    again = taken(database, prometheus.url, until)
    assert (again.samples, again.questions, again.taken_before) == (0, 0, whole.hours)
    shutil.copy(migrated_file, tmp_path / "cut.db")
    cut = open_database(f"sqlite:///{tmp_path / 'cut.db'}")
    monkeypatch.setattr(windows, "MOST_HOURS", 3)
    monkeypatch.setattr(windows, "QUESTION_SAMPLES", 500)
    parts = [taken(cut, prometheus.url, end) for end in (middle, middle + timedelta(hours=5), until)]
    assert sum(part.samples for part in parts) == whole.samples
    assert [part.taken_before for part in parts] == [0, parts[0].hours, parts[0].hours + 5]
    first, second = content(tmp_path / "history.db"), content(tmp_path / "cut.db")
    assert first["events"] == second["events"]
    assert first["telemetry"] == second["telemetry"]
    assert first["incidents"] == second["incidents"]


@pytest.mark.integration
def test_a_history_goes_into_postgresql(
    prometheus: PastPrometheus, database: sa.Engine, postgres_server: Postgres
) -> None:
    """The same rows as into SQLite, in two parts; a second time nothing."""
    engine = open_database(postgres_server.new_database())
    migrate(engine)
    until = datetime(2025, 2, 21, tzinfo=UTC)
    for end in (datetime(2025, 2, 13, 5, tzinfo=UTC), until, until):
        summary = taken(engine, prometheus.url, end)
    whole = taken(database, prometheus.url, until)
    assert (summary.samples, summary.taken_before) == (0, whole.hours)
    with engine.connect() as theirs, database.connect() as ours:
        for table in (schema.events, schema.telemetry):
            more = ("id", "kind") if "id" in table.c else ("samples", "gpu_temp_max_c")
            query = sa.select(*(table.c[name] for name in ("time", "node", *more))).order_by(table.c.time, table.c.node)
            query = query.order_by(table.c[more[0]])
            assert theirs.execute(query).all() == ours.execute(query).all()
    engine.dispose()


def command(url: str, file: Path) -> list[str]:
    """The whole range, by the program."""
    program = str(Path(sys.executable).parent / "foreshock")
    times = ["--since", SINCE.isoformat(), "--until", UNTIL.isoformat()]
    return [program, "ingest", f"prometheus:{url}", *times, "--db", f"sqlite:///{file}"]


def begun(file: Path, windows_done: int) -> bool:
    """Whether so many windows are written: the stretch grows in each."""
    try:
        found = rows(file, "SELECT samples FROM histories")
    except sqlite3.OperationalError:
        return False
    return bool(found) and int(str(found[0][0])) > windows_done * 10_000


def killed(words: list[str], file: Path, windows_done: int) -> None:
    """Start an import and kill it once so many windows are written."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for("some windows are written", lambda: begun(file, windows_done) or process.poll() is not None)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait(patience(10))


@pytest.fixture(scope="module")
def whole(past: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[object, ...]]]:
    """What an import of the whole range gives that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copytree(past, folder / "data")
    with past_prometheus(folder, None) as server:
        words = command(server.url, folder / "whole.db")
        subprocess.run(words, check=True, capture_output=True, timeout=patience(120))
    return content(folder / "whole.db")


@pytest.mark.integration
def test_an_import_that_is_killed_anywhere_goes_on_where_it_was(
    prometheus: PastPrometheus, tmp_path: Path, whole: dict[str, list[tuple[object, ...]]]
) -> None:
    """kill -9 at three moments; in the end the rows are those of an import that was never killed."""
    broken = tmp_path / "broken.db"
    for done in (0, 5, 15):
        killed(command(prometheus.url, broken), broken, done)
    last = subprocess.run(
        command(prometheus.url, broken), check=True, capture_output=True, text=True, timeout=patience(120)
    )
    assert "were taken before" in last.stdout
    assert content(broken) == whole


@pytest.mark.integration
def test_a_prometheus_that_dies_in_mid_range_is_waited_for(
    prometheus: PastPrometheus, tmp_path: Path, whole: dict[str, list[tuple[object, ...]]]
) -> None:
    """It comes back at the same address: the import ends well, and with the same rows."""
    broken = tmp_path / "broken.db"
    process = subprocess.Popen(command(prometheus.url, broken), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for("some windows are written", lambda: begun(broken, 1) or process.poll() is not None)
    prometheus.kill()
    prometheus.start()
    _out, said = process.communicate(timeout=patience(180))
    assert process.returncode == 0, said
    assert content(broken) == whole


@pytest.mark.integration
def test_a_prometheus_that_stays_dead_is_told_and_the_rest_is_taken_later(
    prometheus: PastPrometheus, database: sa.Engine, tmp_path: Path, whole: dict[str, list[tuple[object, ...]]]
) -> None:
    """The sentence says until when the history is taken, and what to do."""
    part = datetime(2025, 3, 1, tzinfo=UTC)
    taken(database, prometheus.url, part)

    read: list[int] = []

    class Dying(HistoryServer):
        """Is gone after a megabyte of answers."""

        def _once(self, path: str, parameters: object, get: bool = False) -> bytes:
            if sum(read) > 1_000_000:
                prometheus.kill()
            answer = super()._once(path, parameters, get)  # type: ignore[arg-type]
            read.append(len(answer))
            return answer

    one = Dying(HistoryAccess(prometheus.url), waits_s=(0.1,))
    dying = HistoryIntake(database, HistoryReader(one, HistoryChoice()), "prometheus:gwdg")
    with pytest.raises(Failure, match=r"gives no answer any more .*refused.*is taken; run the same command again"):
        dying.run(SINCE, UNTIL)
    [(until,)] = rows(tmp_path / "history.db", "SELECT until FROM histories")
    assert part.timestamp() * 1e6 < int(str(until)) < UNTIL.timestamp() * 1e6
    prometheus.start()
    rest = taken(database, prometheus.url)
    assert rest.taken_before * 3600 == int(str(until)) / 1e6 - SINCE.timestamp()
    ours = content(tmp_path / "history.db")
    assert ours["events"] == whole["events"]
    assert ours["telemetry"] == whole["telemetry"]


def test_a_range_is_cut_to_whole_hours_that_are_over() -> None:
    """A roll-up of half an hour would be taken for the whole one."""
    now = datetime(2025, 3, 1, 12, 30, tzinfo=UTC)
    hour = timedelta(hours=1)
    ten = datetime(2025, 3, 1, 10, tzinfo=UTC)
    assert whole_hours(ten + hour / 3, now, now) == (ten, ten + 2 * hour)
    assert whole_hours(ten, ten + hour / 3, now) == (ten, ten + hour)
    assert whole_hours(ten, ten + hour, now) == (ten, ten + hour)
    with pytest.raises(Failure, match="hold no whole hour that is over"):
        whole_hours(now - hour / 3, now, now)
