"""A job that changes its size, from Slurm's books and queue to the ledger: each size counts for its own time."""

from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from hand_made_run import at
from store_runs import lines

from goodput.reading.ledgers import read_ledgers
from parsers.registry import PARSERS
from parsers.text.parser import Context, parse
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.records.event import format_time
from store.records.job import Job, job_from_event
from store.records.node import Node

# As slurmdbd writes them: after a change of size the record begins, and counts as submitted, at that moment.
HEAD = "JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode"


def book(number: int, state: str, start: float, end: float | None, nodes: str) -> str:
    """A line of `sacct -P --duplicates`."""
    begun, over = (format_time(at(moment))[:19] for moment in (start, end or 0.0))
    return f"7|llm|{state}|{begun}|{begun}|{over if end else 'Unknown'}|{number}|{nodes}|0:0"


def jobs_in(text: Sequence[str]) -> list[Job]:
    """The jobs that Slurm's books tell."""
    parser = PARSERS["sacct"].make(Context())
    return [job_from_event(event) for event in parse(parser, [HEAD, *text])]


RESIZED = book(4, "RESIZING", 0, 30, "gpu-[1-4]")
QUEUED = Job("7", "llm", "RUNNING", at(0), at(0), None, 2, "gpu-[1-2]")  # as squeue shows it from then on


@pytest.mark.parametrize("queue_last", [False, True])
def test_each_size_counts_for_its_own_time(any_engine: sa.Engine, queue_last: bool) -> None:
    """Four nodes for thirty seconds, two for thirty more; what the queue still shows takes neither away."""
    jobs = jobs_in([RESIZED, book(2, "RUNNING", 30, None, "gpu-[1-2]")])
    assert len(jobs) == 2
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n}", gpus=8) for n in range(1, 5)])
        append_jobs(connection, [QUEUED])
        append_jobs(connection, jobs)
        if queue_last:
            append_jobs(connection, [QUEUED])
        append_events(connection, lines("llm", 10, 20, 30, 40, 50, 60), at(60))
        (ledger,) = read_ledgers(connection)
    assert (ledger.attempts, ledger.interruptions) == (2, ())
    assert ledger.gpu_ms is not None
    assert ledger.gpu_ms["productive"] == 30_000 * 32 + 30_000 * 16


def test_the_books_last_word_holds(any_engine: sa.Engine) -> None:
    """A record that was open is closed by the next one; one that ended otherwise is replaced as ever."""
    with writing(any_engine).begin() as connection:
        append_jobs(connection, jobs_in([book(4, "RUNNING", 0, None, "gpu-[1-4]")]))
        append_jobs(connection, jobs_in([RESIZED]))
        append_jobs(connection, jobs_in([book(4, "RESIZING", 0, 40, "gpu-[1-4]")]))
        append_events(connection, lines("llm", 10, 20, 30, 40), at(60))
        (ledger,) = read_ledgers(connection)
    assert (ledger.attempts, ledger.wall_ms) == (1, 40_000)
