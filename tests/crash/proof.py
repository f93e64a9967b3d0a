"""The comparison at the end of a crash test: what was written against what the store holds."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from crash.feeds import Feed, TrainingLog, checksum
from real.patience import patience

from diagnosis.incidents.incident import NO_FAULT_KINDS
from store.records.event_sources import NO_FAULT

Rows = Callable[[str], Sequence[Sequence[object]]]

_KERNEL = "SELECT attributes->>'pid' FROM events WHERE kind = 'xid' AND attributes->>'process' = '{name}'"
_GAPS = "SELECT message FROM events WHERE kind IN ('collector_gap', 'spool_loss') LIMIT 20"
_TRAINING = "SELECT attributes->>'iteration' FROM events WHERE kind = 'iteration' AND run = '{name}'"


def stored(rows: Rows, feed: Feed) -> list[int]:
    """The serials of a feed that the store holds, as often as it holds them."""
    query = _TRAINING if isinstance(feed, TrainingLog) else _KERNEL
    return [int(str(row[0])) for row in rows(query.format(name=feed.name))]


def differences(rows: Rows, feeds: Iterable[Feed]) -> list[str]:
    """What is missing, doubled or not ours, a sentence each feed; nothing where every serial is there once."""
    found = []
    for feed in feeds:
        held = stored(rows, feed)
        if len(held) == len(feed.written) and checksum(held) == checksum(feed.written):
            continue
        times = Counter(held)
        missing = sorted(set(feed.written) - times.keys())
        doubled = sorted(serial for serial, count in times.items() if count > 1)
        strange = sorted(times.keys() - set(feed.written))
        found.append(
            f"{feed.name}: {len(feed.written)} written, {len(held)} stored; {len(missing)} missing {spans(missing)}, "
            f"{len(doubled)} doubled {spans(doubled)}, {len(strange)} never written {spans(strange)}"
            f"{written_at(feed, [*missing, *doubled])}"
        )
    if found:
        found += [f"told of as lost: {row[0]}" for row in rows(_GAPS)]
    return found


def totals(rows: Rows, feeds: Iterable[Feed]) -> tuple[int, int]:
    """How many of the lines written are missing from the store, and how many are there more than once."""
    missing = doubled = 0
    for feed in feeds:
        times = Counter(stored(rows, feed))
        missing += len(set(feed.written) - times.keys())
        doubled += sum(count > 1 for count in times.values())
    return missing, doubled


def written_at(feed: Feed, serials: Sequence[int], most: int = 5) -> str:
    """When the first few of these lines were written."""
    moments = [datetime.fromtimestamp(feed.moments[serial], UTC) for serial in serials[:most]]
    return "; written at " + ", ".join(f"{moment:%H:%M:%S.%f}" for moment in moments) if moments else ""


def arrived(rows: Rows, feeds: Iterable[Feed]) -> int:
    """How many events of the feeds are in the store."""
    return sum(len(stored(rows, feed)) for feed in feeds)


def wait_until_all_is_stored(
    rows: Rows, feeds: Sequence[Feed], tend: Callable[[], object], patience_s: float = 60.0
) -> None:
    """Wait while more arrives; give up, for the comparison to tell why, where nothing did for so long.

    `tend` is called between two looks: it starts again what ended.
    """
    expected = sum(len(feed.written) for feed in feeds)
    most, heard = -1, time.monotonic()
    while most < expected and time.monotonic() - heard < patience(patience_s):
        tend()
        time.sleep(0.3)
        count = arrived(rows, feeds)
        if count > most:
            most, heard = count, time.monotonic()


def uncounted(rows: Rows) -> str:
    """How the incidents' counts differ from the fault events; empty where they agree and no intake is left."""
    sources, kinds = (", ".join(f"'{word}'" for word in sorted(words)) for words in (NO_FAULT, NO_FAULT_KINDS))
    faults = _number(
        rows(
            f"SELECT count(*) FROM events WHERE severity <> 'info' "  # noqa: S608  # words of our own
            f"AND source NOT IN ({sources}) AND kind NOT IN ({kinds})"
        )
    )
    counted = _number(rows("SELECT coalesce(sum(count), 0) FROM incidents"))
    waiting = _number(rows("SELECT count(*) FROM intake"))
    if faults == counted and waiting == 0:
        return ""
    return f"incidents count {counted} of {faults} fault events; {waiting} batches wait in the intake"


def wait_until_counted(rows: Rows, patience_s: float = 30.0) -> str:
    """Wait for the incidents; what is still different after so long."""
    until = time.monotonic() + patience(patience_s)
    while (left := uncounted(rows)) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def spans(serials: Sequence[int], most: int = 8) -> str:
    """Runs of numbers in short: `[3-7, 9, ...]`."""
    runs: list[list[int]] = []
    for serial in serials:
        if runs and serial == runs[-1][1] + 1:
            runs[-1][1] = serial
        else:
            runs.append([serial, serial])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:most]]
    return "[" + ", ".join(texts + ["..."] * (len(runs) > most)) + "]"


def _number(rows: Sequence[Sequence[object]]) -> int:
    return int(str(rows[0][0]))
