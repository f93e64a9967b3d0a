"""A long run's ledger made in a process of its own: seconds of arithmetic would hold up every request of this one.

store_apart(engine.url, "llm-70b", now, keep_on)
"""

import multiprocessing
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from goodput.account import account
from goodput.advice.run_history import checkpoint_inputs, history_of
from goodput.cluster.losses import days_of, losses_of
from goodput.cluster.mfu import facts_from
from goodput.ledger import Ledger
from goodput.reading.log import RunLog
from goodput.reading.records import NodeInventory, is_run, read_inventory, read_kept_records
from goodput.timeline import from_ms
from store.database.connections import open_database, writing
from store.events.ledger_intake import LATE, remove_news
from store.runs.jobs import job_marks
from store.runs.ledgers import StoredLedger, log_marks, records_of, save_ledgers
from store.runs.losses import Loss
from store.runs.run_logs import save_folded

# A ledger as it is stored: the account, what advice needs of it, and what there was of the run when it was made.
#
# ledger = compute(connection, "llm-70b", now)
# account_of(ledger)["goodput"]

# Ledgers of another form are made again. Count it up when what a ledger says changes.
FORM = 8


@dataclass(frozen=True, slots=True)
class ComputedLedger:
    """A ledger, and the log that it was made of."""

    ledger: StoredLedger
    log: RunLog


def compute(connection: sa.Connection, run: str, now: datetime) -> StoredLedger | None:
    """The ledger of a run from all that is stored of it; None for a run that is not known."""
    made = make(connection, run, now)
    return None if made is None else made.ledger


def make(connection: sa.Connection, run: str, now: datetime, anew: bool = False) -> ComputedLedger | None:
    """The ledger of a run from its folded log and what came in since, as `keep` stores it; None for an unknown run.

    Args:
        anew: read the whole log.
    """
    return make_all(connection, [run], now, anew={run} if anew else ()).get(run)


def make_all(
    connection: sa.Connection,
    runs: Sequence[str],
    now: datetime,
    machines: NodeInventory | None = None,
    anew: Container[str] = (),
) -> dict[str, ComputedLedger]:
    """The ledgers of some runs, in the order of their names, by few statements for all; unknown runs are left out."""
    marks = job_marks(connection, runs)
    known = [run for run in sorted(set(runs)) if run in marks or is_run(connection, run)]
    if not known:
        return {}
    machines = machines or read_inventory(connection)
    found = read_kept_records(connection, known, machines, anew)
    ledgers = {run: account(records) for run, (records, _log) in found.items()}
    losses: dict[str, list[Loss]] = {}
    for loss in losses_of(connection, *ledgers.values()):
        losses.setdefault(loss.run, []).append(loss)
    before = records_of(connection, known)
    made = {}
    for run, ledger in ledgers.items():
        records, log = found[run]
        lines, until = _reach(connection, ledger, log, before.get(run, {}))
        until = until or now
        reported = {
            "lines": lines,
            "jobs": marks.get(run),
            "form": FORM,
            "folded": log.pace is not None,
            # Faults and outages of its last hour may still come in.
            "settled": ledger.is_open or now - until > LATE,
        }
        content = {**_content(ledger), "facts": asdict(facts_from(ledger, records.jobs, machines.models))}
        made[run] = ComputedLedger(
            StoredLedger(run, now, until, reported, content, losses.get(run, ()), days_of(ledger)), log
        )
    return made


def _reach(
    connection: sa.Connection, ledger: Ledger, log: RunLog, before: Mapping[str, Any]
) -> tuple[int, datetime | None]:
    """How many events of the run are in a ledger, and until when they go; counted where it was read from the log."""
    follows = log.fresh is not None and bool(before)
    counted = None if follows and ledger.dated else log_marks(connection, run=ledger.run).get(ledger.run)
    lines = int(before.get("lines", 0)) + (log.fresh or 0) if follows else counted[0] if counted else 0
    return lines, from_ms(ledger.end_ms) if ledger.dated else counted[1] if counted else None


def keep(connection: sa.Connection, made: ComputedLedger) -> bool:
    """Store a ledger and the folded log that it was made of; False, and nothing, where another was quicker."""
    return not keep_all(connection, [made])


def keep_all(connection: sa.Connection, made: Sequence[ComputedLedger]) -> set[str]:
    """Store ledgers and the folded logs that they were made of; returns the runs where another was quicker.

    Table by table and by the runs' names: two that store the same runs do not wait for each other in a circle.
    """
    slower = set()
    ordered = sorted(made, key=lambda one: one.ledger.run)
    for one in ordered:
        log, run = one.log, one.ledger.run
        if log.text is not None and not save_folded(connection, run, log.before, log.text):
            slower.add(run)
    kept = [one for one in ordered if one.ledger.run not in slower]
    save_ledgers(connection, [one.ledger for one in kept])
    remove_news(connection, [seq for one in kept for seq in one.log.seqs])
    return slower


@contextmanager
def snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection all of whose reads see one moment of the store: `make` needs that."""
    level = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with engine.connect().execution_options(**level) as connection:
        yield connection


def _content(ledger: Ledger) -> dict[str, Any]:
    history = history_of(ledger)
    inputs = checkpoint_inputs(ledger, history)
    return {
        "account": ledger.to_json(),
        "attempts": ledger.attempts,
        "checkpoint": None if inputs is None else asdict(inputs),
        "history": None if history is None else history.to_json(),
    }


def account_of(ledger: StoredLedger) -> dict[str, Any]:
    """The object of `foreshock goodput --json`, and until when it goes."""
    return {**ledger.content["account"], "as_of": ledger.until}


_NICE = 10
_LOOK_S = 0.5


class LedgerProcessError(RuntimeError):
    """The process ended without having stored the ledger; its own words are on standard error."""


def store_in_subprocess(url: sa.URL, run: str, now: datetime, keep_on: Callable[[], bool], anew: bool = False) -> None:
    """Compute and store a run's ledger, and wait until that is done or nobody wants it any more.

    Raises:
        LedgerProcessError: it could not be done.
    """
    given = (url.render_as_string(hide_password=False), run, now, anew)
    process = multiprocessing.get_context("spawn").Process(target=_store, args=given, daemon=True)
    process.start()
    while process.is_alive():
        if not keep_on():
            process.terminate()
            process.join()
            return
        process.join(_LOOK_S)
    if process.exitcode != 0:
        raise LedgerProcessError(f"the process that computes the ledger of run {run!r} ended with {process.exitcode}")


def _store(url: str, run: str, now: datetime, anew: bool) -> None:
    os.nice(_NICE)
    engine = open_database(url)
    with snapshot(engine) as connection:
        made = make(connection, run, now, anew=anew)
    if made is not None:
        with writing(engine).begin() as connection:
            keep(connection, made)
    engine.dispose()
