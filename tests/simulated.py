"""Small simulated clusters for the simulator's tests, and the ways to read their text back."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from hypothesis import strategies as some

from parsers.registry import PARSERS
from parsers.text.parser import Context, ParseError, parse
from simulator.simulation import SimulatedCluster, simulate
from simulator.site import SimulationSettings
from store.records.event import Event

# Small, and with as many failures as may be asked for: a cluster takes some hundredths of a second.
SIZES = some.tuples(some.sampled_from([8, 9, 17, 33]), some.integers(2, 6), some.integers(0, 10_000))


@cache
def cluster_of(nodes: int, days: int, seed: int, rate: float = 50.0) -> SimulatedCluster:
    """A cluster by its size and seed; nobody changes it."""
    return simulate(SimulationSettings(nodes, days, seed, rate_per_1000_node_days=rate))


def events_of(name: str, lines: Iterable[str], context: Context | None = None) -> list[Event]:
    """Lines decoded by the project's own parser; a line that it finds broken fails the test."""

    def complain(number: int, error: ParseError) -> None:
        raise AssertionError(f"{name}:{number}: {error}")

    return list(parse(PARSERS[name].make(context or Context(year=2025, run="r")), lines, complain))


def events_in(path: Path, name: str) -> list[Event]:
    """A file decoded as `foreshock ingest` does: its own name and time stand for what its lines leave unsaid."""
    until = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    context = Context(node=path.stem, run=path.stem, year=until.year, until=until)
    return events_of(name, path.read_text(encoding="utf-8").splitlines(), context)


def lines_in(path: Path) -> list[str]:
    """A file's lines; none where there is no file."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
