"""Reading a run's log from the store in the order in which it was written: all of it, or what came in since."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from goodput.log.fold import FoldedLog, PrunedError, StaleError, brought_up, continued, folded
from goodput.log.fold_json import decode, encode
from goodput.log.pace import Pace, pace_of
from goodput.log.rows import LogRow, order_of, row_of
from goodput.log.seen_saves import seen_saves, with_saves
from goodput.log.sources import merged
from goodput.log.training_log import KINDS, LogLine, known_at
from goodput.timeline import from_ms, to_ms
from goodput.wall_time.attempts import handovers_ms
from store.folded_logs import FoldedBytes, read_folded
from store.job import Job
from store.log_news import NewLines, read_news
from store.read_log import stored_lines
from store.sources import CHECKPOINTS, RUN_LOGS

_READ = frozenset({*RUN_LOGS, CHECKPOINTS})


@dataclass(frozen=True, slots=True)
class RunLog:
    """A run's log. `pace` is given where `lines` are folded.

    `before` is what was folded until now, `text` what it is from now on (None: it cannot be folded), `seqs` are the
    rows of news that are in it, `fresh` how many events they hold; None where the whole log was read.
    """

    lines: Sequence[LogLine]
    pace: Pace | None = None
    before: FoldedBytes | None = None
    text: bytes | None = None
    seqs: Sequence[int] = ()
    fresh: int | None = None


def read_log(
    connection: sa.Connection, run: str, until: datetime | None = None, starts_ms: Sequence[int] = ()
) -> list[LogLine]:
    """The lines of a run's log, oldest first; those received or printed after `until` are left out if dated.

    Args:
        starts_ms: when the run's jobs started, for a run of which the saves alone are known.
    """
    return _joined(read_rows(connection, run), until, starts_ms)


def _joined(rows: Mapping[str, Sequence[LogRow]], until: datetime | None, starts_ms: Sequence[int]) -> list[LogLine]:
    """One log of those of several sources."""
    by_source = {source: [row.line for row in order_of(found)[1]] for source, found in rows.items()}
    saves = seen_saves(by_source.pop(CHECKPOINTS, []))
    if until is not None:
        by_source = {source: known_at(lines, to_ms(until)) for source, lines in by_source.items()}
        saves = [save for save in saves if save.end_ms <= to_ms(until)]
    return with_saves(merged(by_source), saves, starts_ms)


def read_kept_logs(
    connection: sa.Connection, jobs: Mapping[str, Sequence[Job]], anew: Container[str] = ()
) -> dict[str, RunLog]:
    """Runs' logs as they were folded, and what came in since; all of a log, where that cannot be (or `anew`).

    A log of several sources is not folded: which of them tells of what is known of all their lines alone.

    Args:
        jobs: of each run that is wanted.
    """
    runs = list(jobs)
    news, kept = read_news(connection, runs), read_folded(connection, runs)
    return {
        run: _brought_up(connection, _Kept(run, own, kept.get(run), news.get(run, ())), run in anew)
        for run, own in jobs.items()
    }


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of a run's log: folded `before`, and `news` since."""

    run: str
    jobs: Sequence[Job]
    before: FoldedBytes | None
    news: Sequence[NewLines]

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(one.seq for one in self.news)

    def folded(self) -> FoldedLog | None:
        """What was folded, decoded anew; None where there is nothing of use."""
        return None if self.before is None or self.before.text is None else decode(self.before.text)


def _brought_up(connection: sa.Connection, kept: _Kept, anew: bool) -> RunLog:
    log = None if anew else kept.folded()
    fresh = None if log is None else _fresh(kept.news, log.source)
    if log is None or fresh is None:
        return _whole(connection, kept)

    source, folded_before = log.source, log

    def reread(since_us: int | None) -> list[LogRow]:
        return read_rows(connection, kept.run, since_us).get(source, [])

    cuts_ms = handovers_ms(kept.jobs)
    try:
        log = brought_up(log, fresh, reread, cuts_ms)
    except PrunedError:
        log = kept.folded()
        if log is None:
            return _whole(connection, kept)
        log = continued(log, fresh, cuts_ms)
    text = encode(log) if kept.news or log is not folded_before else None
    return _of(log, RunLog((), None, kept.before, text, kept.seqs, sum(one.count for one in kept.news)))


def _of(log: FoldedLog, found: RunLog) -> RunLog:
    lines = log.lines()
    try:
        pace = log.pace()
    except StaleError:  # the rest of its lines is pruned: what is there must do
        pace = pace_of(lines)
    return RunLog(lines, pace, found.before, found.text, found.seqs, found.fresh)


def _whole(connection: sa.Connection, kept: _Kept) -> RunLog:
    rows = read_rows(connection, kept.run)
    if len(rows) > 1 or CHECKPOINTS in rows:
        # What was folded while there was one source is not true any more.
        return RunLog(_joined(rows, None, starts_of(kept.jobs)), None, kept.before, b"{}", kept.seqs)
    source = next(iter(rows), "")
    log = folded(rows.get(source, []), source, handovers_ms(kept.jobs))
    return _of(log, RunLog((), None, kept.before, encode(log) if source else None, kept.seqs))


def _fresh(news: Sequence[NewLines], source: str) -> list[LogRow] | None:
    """The rows of what came in; None where it must be read from the log."""
    rows: list[LogRow] = []
    for one in news:
        if one.lines is None:
            return None
        received_us = _us(one.received)
        for origin, kind, stored_us, attributes, file, number, name in one.lines:
            if origin not in _READ or kind not in KINDS or _of_another_rank(attributes):
                continue
            if origin != source:
                return None
            rows.append(row_of((kind, stored_us, attributes, file, number, name), received_us))
    return rows


def read_rows(connection: sa.Connection, run: str, since_us: int | None = None) -> dict[str, list[LogRow]]:
    """The lines of each source of a run, stored for a time at or after `since_us`; in no order."""
    found: dict[str, list[LogRow]] = {}
    since = None if since_us is None else from_ms(since_us // 1000)
    for source, received_us, told in stored_lines(connection, run, sorted(_READ), KINDS, since):
        if since_us is not None and told[1] < since_us:
            continue
        if source == CHECKPOINTS or not _of_another_rank(told[2]):
            found.setdefault(source, []).append(row_of(told, received_us))
    return found


def _of_another_rank(attributes: Any) -> bool:
    """Whether a rank beside the first tells of the same iterations: all ranks do the same ones."""
    return attributes.get("rank") not in (None, 0) and attributes.get("iterations") is not None


def starts_of(jobs: Sequence[Job]) -> list[int]:
    """When jobs started, milliseconds since 1970, of those that did."""
    return [to_ms(job.start) for job in jobs if job.start is not None]


def _us(moment: datetime) -> int:
    return to_ms(moment) * 1000 + moment.microsecond % 1000
