"""The account of a run: its records split into a ledger, every millisecond of wall time in one bucket.

    ledger = account(RunRecords(run="llm-70b", jobs=jobs, log=lines, faults=faults))
    sum(ledger.buckets_ms.values()) == ledger.wall_ms      # always

A log without times is placed by what its lines cover.
"""

from goodput.ledger import Ledger, RunRecords
from goodput.log.training_log import known_at, pace_of, sessions, shape_in, with_reported_ends
from goodput.timeline import merged
from goodput.wall_time.attempt_painter import AttemptPainter, BlameEvidence, faults_by_time
from goodput.wall_time.attempts import PaintedAttempt, attempts_of
from goodput.wall_time.saves import saves_now
from goodput.wall_time.wall import (
    details_of,
    gpus_of,
    held_gpus,
    interruptions_of,
    lay,
    nodes_in,
    settle,
    sized,
    spans_of,
)


def account(records: RunRecords, until_ms: int | None = None) -> Ledger:
    """Split a run's wall time.

    Args:
        until_ms: account as of this moment, milliseconds since 1970: what was known later is left out.
    """
    known = records.log if until_ms is None else known_at(records.log, until_ms)
    log = with_reported_ends(known)
    phases = [line for line in log if line.kind == "training_phase"]
    attempts = attempts_of(records.jobs, sessions(log), until_ms, phases)
    begins = [attempt.begin_ms for attempt in attempts if attempt.begin_ms is not None]
    start_ms = min(begins, default=0)
    # A log without any date counts from its own beginning: no moment of the calendar bounds it.
    limit_ms = until_ms if begins else None
    evidence = BlameEvidence(faults_by_time(records.faults), records.outages, records.leaves, records.verdicts)
    walker = AttemptPainter(log, evidence, limit_ms, records.pace or pace_of(known))
    walked: list[PaintedAttempt] = []
    cursor = start_ms
    for attempt in attempts:
        walked.append(walker.walk(attempt, cursor))
        cursor = max(cursor, walked[-1].end_ms)
    settle(walked, walker.tells_saves)
    wall = lay(walked, start_ms)
    interruptions = sized(interruptions_of(walked, wall), walked, records.gpus)
    return Ledger(
        run=records.run,
        nodes=max(map(nodes_in, attempts), default=0) or None,
        gpus=gpus_of(max(attempts, key=nodes_in), records.gpus) if attempts else None,
        dated=bool(begins),
        start_ms=start_ms,
        end_ms=cursor,
        segments=merged(piece.segment for piece in wall),
        interruptions=interruptions,
        saves=tuple(save for one in walked for save in one.saves),
        spans=spans_of(walked, interruptions, records.gpus),
        is_open=bool(attempts) and attempts[-1].end_ms is None,
        held=held_gpus(walked, wall, records.gpus),
        iteration_ms=walker.median_ms,
        shape=shape_in(log),
        saves_now=saves_now([one.saves for one in walked]),
        unfinished_saves=tuple(save for one in walked for save in one.unfinished),
        details=details_of(walked, log),
    )
