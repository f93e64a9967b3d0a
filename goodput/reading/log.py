"""Reading a run's log from the store in the order in which it was written: all of it, or what came in since."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import orjson
import sqlalchemy as sa

from goodput.log.folded_log import Chapter, FoldedLog, PrunedError, StaleError, continued, folded, with_news
from goodput.log.median import FigureCounts, MedianWindow
from goodput.log.sources import directory_saves, merged, with_saves, without_torn
from goodput.log.training_log import KINDS, IterationPace, LogRow, TrainingLine, known_at, order_of, pace_of, row_of
from goodput.timeline import from_ms, to_ms
from goodput.wall_time.attempts import handovers_ms
from store.events.ledger_intake import NewLogLines, read_news
from store.records.event_sources import CHECKPOINTS, RUN_LOGS
from store.records.job import Job
from store.runs.run_logs import FoldedBytes, read_folded, stored_lines

# A folded log as JSON and back. Tables of a line's fields, so that a field that is added makes the rest unreadable.

# What is written otherwise is read anew from the log. Count it up when what is folded changes.
FORM = 2
_LINE = [field.name for field in fields(TrainingLine)]
_PLACE = ("received_ms", "file", "number", "stored_us", "id")
_PLAIN = ("heads", "grows", "count", "end", "end_ms", "oldest_us", "slowest_ms")


def encode(log: FoldedLog) -> bytes:
    """The text of a folded log."""
    return orjson.dumps(
        {
            "form": [FORM, *_LINE],
            "order": log.order,
            "source": log.source,
            "loaded": log.loaded,
            "windows": [[window.low, window.high] for window in log.windows],  # infinite is null
            "chapters": [_chapter(chapter) for chapter in log.chapters],
            "tail": [_columns([row.line for row in log.tail]), [[getattr(row, x) for x in _PLACE] for row in log.tail]],
        }
    )


def decode(text: bytes) -> FoldedLog | None:
    """The folded log of a text; None where another version wrote it."""
    reported = orjson.loads(text)
    if reported.get("form") != [FORM, *_LINE]:
        return None
    low, high = MedianWindow().low, MedianWindow().high
    windows = [
        MedianWindow(low if one[0] is None else one[0], high if one[1] is None else one[1])
        for one in reported["windows"]
    ]
    tail = [LogRow(line, *place) for line, place in zip(_lines(reported["tail"][0]), reported["tail"][1], strict=True)]
    chapters = [_chapter_of(one) for one in reported["chapters"]]
    return FoldedLog(
        reported["order"], (windows[0], windows[1]), chapters, tail, reported["source"], reported.get("loaded", [])
    )


def _chapter(chapter: Chapter) -> dict[str, Any]:
    previous = [] if chapter.previous is None else [chapter.previous]
    return {
        **{name: getattr(chapter, name) for name in _PLAIN},
        "lines": _columns(chapter.lines),
        "carry": _columns(chapter.carry),
        "previous": _columns(previous),
        "figures": [[one.below, one.above, [*one.inside], [*one.inside.values()]] for one in chapter.figures],
    }


def _chapter_of(reported: dict[str, Any]) -> Chapter:
    figures = [
        FigureCounts(below, above, dict(zip(values, counts, strict=True)))
        for below, above, values, counts in reported["figures"]
    ]
    plain = {name: reported[name] for name in _PLAIN}
    plain["end"] = None if plain["end"] is None else tuple(plain["end"])
    previous = _lines(reported["previous"])
    return Chapter(
        **plain,
        lines=_lines(reported["lines"]),
        carry=_lines(reported["carry"]),
        previous=previous[0] if previous else None,
        figures=(figures[0], figures[1], figures[2]),
    )


def _columns(lines: Sequence[TrainingLine]) -> list[list[Any]]:
    return [[getattr(line, name) for line in lines] for name in _LINE]


def _lines(columns: Sequence[Sequence[Any]]) -> list[TrainingLine]:
    return [TrainingLine(*values) for values in zip(*columns, strict=True)]


_READ = frozenset({*RUN_LOGS, CHECKPOINTS})


@dataclass(frozen=True, slots=True)
class RunLog:
    """A run's log. `pace` is given where `lines` are folded.

    `before` is what was folded until now, `text` what it is from now on (None: it cannot be folded), `seqs` are the
    rows of news that are in it, `fresh` how many events they hold; None where the whole log was read.
    """

    lines: Sequence[TrainingLine]
    pace: IterationPace | None = None
    before: FoldedBytes | None = None
    text: bytes | None = None
    seqs: Sequence[int] = ()
    fresh: int | None = None


def read_log(
    connection: sa.Connection, run: str, until: datetime | None = None, starts_ms: Sequence[int] = ()
) -> list[TrainingLine]:
    """The lines of a run's log, oldest first; those received or printed after `until` are left out if dated.

    Args:
        starts_ms: when the run's jobs started, for a run of which the saves alone are known.
    """
    return _joined(read_rows(connection, run), until, starts_ms)


def _joined(
    rows: Mapping[str, Sequence[LogRow]], until: datetime | None, starts_ms: Sequence[int]
) -> list[TrainingLine]:
    """One log of those of several sources."""
    by_source = {source: [row.line for row in order_of(found)[1]] for source, found in rows.items()}
    seen = by_source.pop(CHECKPOINTS, [])
    if until is not None:
        seen = known_at(seen, to_ms(until))
    by_source = {source: without_torn(lines, seen) for source, lines in by_source.items()}
    saves = directory_saves(seen)
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
        run: _with_news(connection, _StoredLog(run, own, kept.get(run), news.get(run, ())), run in anew)
        for run, own in jobs.items()
    }


@dataclass(frozen=True, slots=True)
class _StoredLog:
    """What is kept of a run's log: folded `before`, and `news` since."""

    run: str
    jobs: Sequence[Job]
    before: FoldedBytes | None
    news: Sequence[NewLogLines]

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(one.seq for one in self.news)

    def folded(self) -> FoldedLog | None:
        """What was folded, decoded anew; None where there is nothing of use."""
        return None if self.before is None or self.before.text is None else decode(self.before.text)


def _with_news(connection: sa.Connection, kept: _StoredLog, anew: bool) -> RunLog:
    log = None if anew else kept.folded()
    fresh = None if log is None else _fresh(kept.news, log.source)
    if log is None or fresh is None:
        return _whole(connection, kept)

    source, folded_before = log.source, log

    def reread(since_us: int | None) -> list[LogRow]:
        return read_rows(connection, kept.run, since_us).get(source, [])

    cuts_ms = handovers_ms(kept.jobs)
    try:
        log = with_news(log, fresh, reread, cuts_ms)
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


def _whole(connection: sa.Connection, kept: _StoredLog) -> RunLog:
    rows = read_rows(connection, kept.run)
    if len(rows) > 1 or CHECKPOINTS in rows:
        # What was folded while there was one source is not true any more.
        return RunLog(_joined(rows, None, starts_of(kept.jobs)), None, kept.before, b"{}", kept.seqs)
    source = next(iter(rows), "")
    log = folded(rows.get(source, []), source, handovers_ms(kept.jobs))
    return _of(log, RunLog((), None, kept.before, encode(log) if source else None, kept.seqs))


def _fresh(news: Sequence[NewLogLines], source: str) -> list[LogRow] | None:
    """The rows of what came in; None where it must be read from the log."""
    rows: list[LogRow] = []
    for one in news:
        if one.lines is None:
            return None
        received_us = _us(one.received)
        for origin, kind, stored_us, attributes, file, number, name in one.lines:
            if origin not in _READ or kind not in KINDS or _of_another_rank(origin, kind, attributes):
                continue
            if origin != source:
                return None
            rows.append(row_of((kind, stored_us, attributes, file, number, name), received_us))
    return rows


def read_rows(connection: sa.Connection, run: str, since_us: int | None = None) -> dict[str, list[LogRow]]:
    """The lines of each source of a run, stored for a time at or after `since_us`; in no order."""
    found: dict[str, list[LogRow]] = {}
    since = None if since_us is None else from_ms(since_us // 1000)
    for source, received_us, reported in stored_lines(connection, run, sorted(_READ), KINDS, since):
        if since_us is not None and reported[1] < since_us:
            continue
        if source == CHECKPOINTS or not _of_another_rank(source, reported[0], reported[2]):
            found.setdefault(source, []).append(row_of(reported, received_us))
    return found


def _of_another_rank(source: str, kind: str, attributes: Any) -> bool:
    """Whether a rank beside the first tells of the same work: all ranks do the same.

    The hook may write of each rank all that it does; what ended the training any rank may know.
    """
    if attributes.get("rank") in (None, 0):
        return False
    return attributes.get("iterations") is not None or (source == "hook" and kind != "training_error")


def starts_of(jobs: Sequence[Job]) -> list[int]:
    """When jobs started, milliseconds since 1970, of those that did."""
    return [to_ms(job.start) for job in jobs if job.start is not None]


def _us(moment: datetime) -> int:
    return to_ms(moment) * 1000 + moment.microsecond % 1000
