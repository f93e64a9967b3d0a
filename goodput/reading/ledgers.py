"""Reading the store: the ledgers of the runs. What advice reads is in `goodput/advice/reading.py`.

with engine.begin() as connection:
    for ledger in read_ledgers(connection): print(ledger.to_json())
"""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from goodput.account import account
from goodput.ledger import Ledger
from goodput.reading.records import (
    NodeInventory,
    is_run,
    parts,
    read_inventory,
    read_kept_records,
    read_records,
    run_names,
)
from goodput.timeline import to_ms
from store.runs.jobs import run_names_of_jobs

_NAMED = 1_000  # runs that are counted for a sentence


class NoRecordsError(LookupError):
    """What was asked for is not in the store; the message says what is missing and the remedy."""


def read_ledgers(connection: sa.Connection, run: str | None = None, until: datetime | None = None) -> list[Ledger]:
    """The ledger of each run (or of one) as of `until`, by run name; none where no such run is known."""
    wanted = run_names(connection) if run is None else [run] if is_run(connection, run) else []
    if not wanted:
        return []
    machines = read_inventory(connection)
    if until is None:
        return [ledger for part in parts(wanted) for ledger in _accounts(connection, part, machines)]
    until_ms = to_ms(until)
    return [account(read_records(connection, name, until, machines), until_ms) for name in wanted]


def _accounts(connection: sa.Connection, runs: Sequence[str], machines: NodeInventory) -> list[Ledger]:
    return [account(records) for records, _log in read_kept_records(connection, runs, machines).values()]


def no_such_run(connection: sa.Connection, run: str | None) -> str:
    """The sentence for a run that is not known: what is there instead, or how to get one."""
    # The events of a year are not searched for a sentence, unless nothing else names a run.
    names = run_names_of_jobs(connection, "", _NAMED) or run_names(connection)
    if not names:
        return "the database knows no training run: ingest jobs.csv or a training log first"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"the database knows no run {run!r}: it knows {', '.join(names[:5])}{more}"
