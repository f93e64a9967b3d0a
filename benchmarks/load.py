"""12,500 simulated sidecars and a burst of 5,000 events/s, over loopback, against the real server and PostgreSQL.

`python -m benchmarks load` runs a minute of each; LOAD_STEADY_S, LOAD_BURST_S, LOAD_NODES, LOAD_RATE and
LOAD_PROCESSES (of the server) set others (the full form is 300 and 300).
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import psycopg
from real.fleet import Program, children, cpu_s, fleet
from real.fleet_postgres import FleetPostgres, fleet_postgres

from benchmarks.fleet_load import Fleet, Tally
from benchmarks.load_bodies import PREFIX
from benchmarks.load_probe import NODE, Probe
from benchmarks.result import Result, Verdict, quantile
from diagnosis.incidents.incident import NO_FAULT_KINDS
from store.records.event_sources import NO_FAULT

WHAT = "12,500 sidecars reporting: a line read by a sidecar until GET /events shows it"
BUDGET = "p99 < 2 s at the steady rate, nothing lost"
NODES = int(os.environ.get("LOAD_NODES", "12500"))
STEADY_S = float(os.environ.get("LOAD_STEADY_S", "60"))
BURST_S = float(os.environ.get("LOAD_BURST_S", "60"))
RATE = float(os.environ.get("LOAD_RATE", "5000"))
PROCESSES = int(os.environ.get("LOAD_PROCESSES", "2"))
_FULL_S, _FULL_NODES, _FULL_RATE = 300.0, 12_500, 5000.0
_SETTLE_S = 120.0


@dataclass(slots=True)
class Watch:
    """What is measured beside: processor seconds by phase, memory in MB, the intake's backlog."""

    cpu: dict[str, dict[str, float]] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)
    intake_s: dict[str, float] = field(default_factory=dict)
    intake_events: dict[str, int] = field(default_factory=dict)


def measure(folder: Path) -> Iterator[Result]:
    """Run it all; then count."""
    with fleet(folder) as programs, fleet_postgres(programs) as database:
        server = programs.server(database.url, "api", "--processes", str(PROCESSES))
        _warm(server)
        log = folder / "probe.log"
        log.touch()
        programs.sidecar([server.url], NODE, "--source", f"file:{log}:kernel")
        address = urlsplit(server.url)
        sidecars = Fleet(str(address.hostname), int(address.port or 0), NODES, heartbeats=_takes_heartbeats(server))
        watch, phase = Watch(), [sidecars.phase]
        probe = Probe(server.url, log, phase)
        probe.start()
        with _watching(server, database, sidecars, phase, watch):
            tally = asyncio.run(sidecars.run(STEADY_S, BURST_S, RATE))
        probe.stop()
        settled_s, wrong = _settle(database, tally, len(probe.took) + probe.lost)
    yield from _results(tally, watch, probe, settled_s, wrong)


def _warm(server: Program) -> None:
    """What only a server's first requests cost is none of the measure."""
    for path in ("/api/v1/events?limit=1", "/api/v1/cluster"):
        server.running.text(path)


def _takes_heartbeats(server: Program) -> bool:
    try:
        server.running.post("/api/v1/heartbeats", b"[]", {"Content-Type": "application/json"})
    except HTTPError as error:
        error.close()
        return error.code != 404
    return True


class _watching:  # noqa: N801  # a context manager
    """A thread that looks every second."""

    def __init__(
        self, server: Program, database: FleetPostgres, sidecars: Fleet, phase: list[str], watch: Watch
    ) -> None:
        self._programs: dict[str, Callable[[], list[int]]] = {
            "server": lambda: [server.pid, *children(server.pid)],
            "PostgreSQL": lambda: [database.program.pid, *children(database.program.pid)],
            "generator": lambda: [os.getpid()],
        }
        self._database, self._sidecars, self._phase, self._watch = database, sidecars, phase, watch
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._seen: dict[int, float] = {}

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_exception: object) -> None:
        self._stop_event.set()
        self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._database.dsn, autocommit=True) as connection:
            while not self._stop_event.wait(1.0):
                self._phase[0] = self._sidecars.phase
                self._look(connection, self._phase[0])

    def _look(self, connection: "psycopg.Connection[tuple[object, ...]]", phase: str) -> None:
        watch = self._watch
        cpu = watch.cpu.setdefault(phase, dict.fromkeys(self._programs, 0.0))
        for name, pids in self._programs.items():
            memory = 0.0
            for pid in pids():
                try:
                    used, share = cpu_s(pid), _pss_mb(pid)
                except (OSError, StopIteration):
                    continue  # a backend that has ended since
                cpu[name] += used - self._seen.get(pid, used if name != "PostgreSQL" else 0.0)
                self._seen[pid] = used
                memory += share
            watch.memory_mb[name] = max(memory, watch.memory_mb.get(name, 0.0))
        query = "SELECT coalesce(extract(epoch FROM now() - min(received)), 0), coalesce(sum(count), 0) FROM intake"
        row = connection.execute(query).fetchone()
        assert row is not None
        watch.intake_s[phase] = max(float(str(row[0])), watch.intake_s.get(phase, 0.0))
        watch.intake_events[phase] = max(int(str(row[1])), watch.intake_events.get(phase, 0))


def _pss_mb(pid: int) -> float:
    """A process's share of resident memory: what several share is split among them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


def _settle(database: FleetPostgres, tally: Tally, probes: int) -> tuple[float, list[str]]:
    """Seconds until the incidents count every event, and what is wrong after that."""
    began = time.monotonic()
    while (left := _uncounted(database)) and time.monotonic() - began < _SETTLE_S:
        time.sleep(0.5)
    settled_s = time.monotonic() - began
    wrong = [left] if left else []
    taken = tally.taken["events"]
    query = (
        "SELECT count(*), count(DISTINCT pid), coalesce(min(pid), 1), coalesce(max(pid), 0) "
        "FROM (SELECT (attributes->>'pid')::bigint pid FROM events WHERE node LIKE %s"
        " AND attributes->>'load' IS NOT NULL) found"  # the server makes some of its own: ports that flap
    )
    held = tuple(int(str(value)) for value in database.rows(query, f"{PREFIX}%")[0])
    if held != (taken, taken, 1, taken):
        wrong.append(f"{taken} events were taken, serials 1 to {taken}; stored are {held}")
    seen = int(str(database.rows("SELECT count(*) FROM events WHERE node = %s", NODE)[0][0]))
    if seen != probes:
        wrong.append(f"the probe wrote {probes} lines, {seen} are stored")
    return settled_s, wrong


def _uncounted(database: FleetPostgres) -> str:
    query = (
        "SELECT (SELECT count(*) FROM events WHERE severity <> 'info' AND NOT source = ANY(%s) AND NOT kind = ANY(%s)),"
        " (SELECT coalesce(sum(count), 0) FROM incidents), (SELECT count(*) FROM intake)"
    )
    if int(str(database.rows("SELECT count(*) FROM intake")[0][0])):
        return "batches wait in the intake"
    faults, counted, waiting = database.rows(query, sorted(NO_FAULT), sorted(NO_FAULT_KINDS))[0]
    return "" if (faults == counted and not waiting) else f"incidents count {counted} of {faults} faults"


def _results(tally: Tally, watch: Watch, probe: Probe, settled_s: float, wrong: list[str]) -> Iterator[Result]:
    whole = NODES >= _FULL_NODES and STEADY_S >= _FULL_S and BURST_S >= _FULL_S and RATE >= _FULL_RATE
    form = f"{NODES} sidecars, {STEADY_S:.0f} s steady, {BURST_S:.0f} s of {RATE:.0f} events/s"
    for phase, length_s in (("steady", STEADY_S), ("burst", BURST_S)):
        took = [each for name, each in probe.took if name == phase]
        if not took or not length_s:
            continue
        p99 = quantile(took, 0.99)
        verdict: Verdict = "not met" if (p99 >= 2 and phase == "steady") or probe.lost else "met"
        yield Result(
            f"{WHAT}, {phase}",
            BUDGET if phase == "steady" else "-",
            f"p50 {_ms(quantile(took, 0.5))}, p99 {_ms(p99)}, max {_ms(max(took))}",
            "-",
            None,
            verdict if whole or verdict == "not met" else "not measured",
            f"{len(took)} lines through a real sidecar, {probe.lost} not seen; {form}; "
            + _beside(tally, watch, phase, length_s),
        )
    taken = ", ".join(f"{count} {path}" for path, count in sorted(tally.taken.items()))
    yield Result(
        "12,500 sidecars: everything acknowledged is stored and counted",
        "nothing lost",
        "all" if not wrong else "; ".join(wrong),
        "-",
        None,
        "not met" if wrong else "met" if whole else "not measured",
        f"taken: {taken}; incidents agree {settled_s:.1f} s after the last; "
        f"memory (Pss, highest) {_listed(watch.memory_mb, 0)} MB; {form}",
    )


def _beside(tally: Tally, watch: Watch, phase: str, length_s: float) -> str:
    parts = [f"retries {dict(sorted(r for r in tally.retries.items() if r[0].startswith(phase)))}"]
    for path in ("heartbeats", "telemetry", "events"):
        took = list(tally.took.get(f"{phase} {path}", ()))
        if took:
            parts.append(
                f"{path} {len(took) / length_s:.0f}/s, p50 {_ms(quantile(took, 0.5))}, "
                f"p99 {_ms(quantile(took, 0.99))}, max {_ms(max(took))}"
            )
    if phase == "burst" and tally.acknowledged_s:
        waits = list(tally.acknowledged_s)
        parts.append(
            f"{len(waits) / length_s:.0f} events/s, each acknowledged p50 {_ms(quantile(waits, 0.5))}, "
            f"p99 {_ms(quantile(waits, 0.99))} after it was made, "
            f"the last {max(0.0, tally.wall_s - STEADY_S - BURST_S):.0f} s after the burst"
        )
    busy = {name: used / length_s for name, used in watch.cpu.get(phase, {}).items()}
    parts.append(f"processors {_listed(busy, 2)}")
    parts.append(f"intake at most {watch.intake_events.get(phase, 0)} events, {watch.intake_s.get(phase, 0.0):.1f} s")
    return "; ".join(parts)


def _listed(values: dict[str, float], digits: int) -> str:
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())


def _ms(value_s: float) -> str:
    return f"{value_s * 1000:.0f} ms"
