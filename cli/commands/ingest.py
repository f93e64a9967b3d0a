"""`foreshock ingest`: a cluster archive, or a Prometheus's history, into the database; resumable, idempotent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.outages import reasons_sentence
from cli.commands.parse import zone_of
from cli.commands.rules import RULES_OPTION, open_rules
from cli.config.outage_reasons import CONFIG_OPTION, read_outage_reasons
from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text, progress_bar
from cli.console.store import open_store
from cli.history.command import SCHEME, history_options, ingest_history, refuse_history_options
from collectors.files.archive import (
    ArchiveError,
    ArchivePart,
    context_of,
    find_parts,
    newest_dated,
    told_year,
    told_zone,
    unread_files,
)
from parsers.site_rules.rules import NO_RULES, SiteRules
from store.plural import many, plural
from store.records.outage import SHIPPED_REASONS, OutageReasons

if TYPE_CHECKING:
    import sqlalchemy as sa

    from cli.archive.parts import Digest, FileRecords, FileTask
    from cli.archive.writer import IngestTally, Writer
    from store.events.append import IngestedFile

# Below this, starting other processes takes longer than reading in this one.
WORTH_WORKERS_BYTES = 16_000_000
# Files before a new telemetry file that are read again for their last counter values and absent GPUs.
CARRY_FILES = 8
_MOST_TOLD, _MOST_UNREAD = 20, 8


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """What an archive does not say of itself: year and zone of timestamps without, and how the site reads its faults.

    Without a year it is taken from the archive's own dates, without a zone it is UTC.
    """

    year: int | None = None
    zone: tzinfo | None = None
    rules: SiteRules = NO_RULES
    reasons: OutageReasons = SHIPPED_REASONS


NOTHING_REPORTED = ArchiveOptions()


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file that could not be read to its end (`broken`), of which lines were skipped, of another format, or whose
    records are hardly meant so (`doubtful`)."""

    file: str
    detail: str
    broken: bool
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What an ingest did. `parts` is by the names of an archive's parts, `counters` the events of telemetry; `unread`
    are files that no part takes; `year` and `zone` say of which times without one are taken to be."""

    parts: dict[str, IngestTally]
    troubles: tuple[FileProblem, ...]
    incidents: int
    wall_s: float
    unread: tuple[str, ...] = ()
    year: str | None = None
    zone: str | None = None

    def total(self) -> IngestTally:
        """All parts together."""
        from cli.archive.writer import IngestTally

        sums = {name: sum(asdict(tally)[name] for tally in self.parts.values()) for name in asdict(IngestTally())}
        return IngestTally(**sums)


def ingest_archive(
    engine: sa.Engine,
    archive: Path,
    reported: ArchiveOptions = NOTHING_REPORTED,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    received: datetime | None = None,
) -> Summary:
    """Load an archive into a migrated database.

    Args:
        reported: what the archive does not say of itself.
        workers: processes that read; 1 reads in this one.
        progress: told of bytes done of bytes in all.
        received: when the archive was taken in; None is now. A replay says when it would have been.

    Raises:
        ArchiveError: the folder is no archive.
    """
    from cli.archive.names import ArchiveNames
    from cli.archive.parts import digest, in_order, take
    from cli.archive.writer import Writer
    from store.events.append import read_ingested

    started, parts = time.monotonic(), find_parts(archive)
    names, writer = ArchiveNames(engine), Writer(engine, received or datetime.now(UTC), reasons=reported.reasons)
    newest = newest_dated(parts, writer.now)
    with engine.begin() as connection:
        taken_before = read_ingested(connection)
    troubles: list[FileProblem] = []
    with _executor(workers if sum(part.size for part in parts) >= WORTH_WORKERS_BYTES else 1) as executor:
        digests = list(in_order(executor, digest, parts))
        tasks = _plan(digests, taken_before, newest and newest[0], reported)
        _count_known(writer, digests, taken_before)
        writer.expect(tasks)
        done, whole = 0, sum(task.digest.part.size for task in tasks)
        for taken in in_order(executor, take, tasks):
            named = names.named(taken)
            writer.write(named)
            troubles += _troubles(named)
            done += taken.task.digest.part.size
            if progress is not None:
                progress(done, whole)
    for each in digests:
        if each.broken is not None:
            troubles.append(FileProblem(each.part.relative, each.broken, broken=True))
            writer.tally(each.part.name).broken += 1
    incidents, unread = writer.make_incidents(), tuple(unread_files(archive, parts))
    year, zone = _assumed(parts, newest, reported)
    return Summary(writer.tallies, tuple(troubles), incidents, time.monotonic() - started, unread, year, zone)


def _assumed(
    parts: Sequence[ArchivePart], newest: tuple[datetime, str] | None, reported: ArchiveOptions
) -> tuple[str | None, str | None]:
    """What is said of the year and the zone of times without one; nothing of what was given."""
    year = told_year(parts, newest) if reported.year is None else None
    return year, told_zone(parts) if reported.zone is None else None


@contextmanager
def _executor(workers: int) -> Iterator[Executor | None]:
    if workers <= 1:
        yield None
        return
    # Spawned, not forked: the parent holds database connections and threads.
    executor = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield executor
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _plan(
    digests: Sequence[Digest],
    known: dict[tuple[str, str], IngestedFile],
    newest: datetime | None,
    reported: ArchiveOptions,
) -> list[FileTask]:
    """The files to read: new ones, telemetry in order of time, with the few before each that it follows on."""
    from cli.archive.parts import FileTask

    readable = [d for d in digests if d.broken is None]
    plain = [d for d in readable if d.part.name != "telemetry"]
    telemetry = sorted(
        (d for d in readable if d.part.name == "telemetry"), key=lambda d: (d.begins_us, d.part.relative)
    )
    new = [d for d in plain if (d.part.relative, d.sha256) not in known]
    # Jobs first: an incident tells how many nodes the job on its node had.
    new.sort(key=lambda d: d.part.name not in ("nodes", "topology", "jobs"))
    year, zone = reported.year, reported.zone or UTC
    tasks = [FileTask(d, context_of(d.part, newest, year, zone), rules=reported.rules) for d in new]
    fresh = [(d.part.relative, d.sha256) not in known for d in telemetry]
    spans = [(d.begins_us, d.ends_us) for d, new in zip(telemetry, fresh, strict=True) if new]
    for place, item in enumerate(telemetry):
        beside = any(begins <= item.ends_us and item.begins_us <= ends for begins, ends in spans)
        if beside or any(fresh[place : place + 1 + CARRY_FILES]):
            tasks.append(FileTask(item, context_of(item.part, newest, year, zone), only_carry=not fresh[place]))
    return tasks


def _count_known(writer: Writer, digests: Sequence[Digest], known: dict[tuple[str, str], IngestedFile]) -> None:
    for item in digests:
        before = known.get((item.part.relative, item.sha256))
        if before is not None:
            tally = writer.tally(item.part.name)
            tally.files += 1
            tally.records += before.records
            tally.known += before.records
            tally.skipped += before.skipped


def _troubles(taken: FileRecords) -> Iterator[FileProblem]:
    file, records = taken.task.digest.part.relative, taken.records
    if records.broken is not None:
        yield FileProblem(file, records.broken, broken=True)
    if records.skipped and not taken.task.only_carry:
        yield FileProblem(file, f"{records.skipped} skipped, the first: {records.first_skip}", broken=False)
    if records.misread is not None:
        yield FileProblem(file, records.misread, broken=False)
    if records.doubt is not None:
        yield FileProblem(file, records.doubt, broken=False, doubtful=True)


@click.command()
@click.argument("archive", metavar="ARCHIVE|prometheus:URL")
@DB_OPTION
@history_options
@click.option(
    "--year", type=click.IntRange(1970, 2200), help="Year of opensm's timestamps [default: the archive's own]."
)
@click.option("--tz", "zone_name", help="Zone of times without one, such as Europe/Berlin [default: UTC].")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that read [default: one a core].")
@RULES_OPTION
@CONFIG_OPTION
@JSON_OPTION
def ingest(archive: str, url: str, workers: int | None, as_json: bool, **given: Any) -> None:
    """Load a cluster archive: a folder of nodes.csv, kernel/, fabric/, telemetry/, training/, jobs.csv, outages.csv.

    Or the telemetry that a Prometheus has kept: prometheus:http://HOST:9090 --since 30d.

    What was taken before is passed over, so that an ingest that was broken off goes on where it was. Exits with 2
    where a file is broken; what is good is loaded.
    """
    if archive.startswith(SCHEME):
        with _broken_off():
            ingest_history(archive, url, as_json, given)
        return
    refuse_history_options(given)
    folder = Path(archive)
    try:
        find_parts(folder)
        options = _archive_options(given, read_outage_reasons(given["config"]))
        engine = open_store(url, create=True)
        with _broken_off(), progress_bar("Reading the archive") as progress:
            summary = ingest_archive(
                engine,
                folder,
                options,
                workers or len(os.sched_getaffinity(0)),
                progress,
            )
    except ArchiveError as error:
        raise Failure(str(error)) from error
    _tell(summary)
    judged = _judged(engine, options.reasons)
    if as_json:
        print_json(_as_json(folder, summary) | {"outage_reasons": judged})
    else:
        _print(summary, judged)
        if options.zone is not None and summary.total().records and not summary.total().new:
            print_text(
                "nothing was new, and what was taken before keeps its zone: for --tz to hold take a new database"
            )
    if broken := summary.total().broken:
        noun = plural(broken, "file is", "files are")
        raise Failure(f"{broken} {noun} broken, as is said above: what was good is loaded; mend it and ingest again")


@contextmanager
def _broken_off() -> Iterator[None]:
    """Ctrl-C keeps every file, or hour, that was whole."""
    try:
        yield
    except KeyboardInterrupt:
        print_text("Broken off: what was whole is loaded, and the same command goes on from there", err=True)
        click.get_current_context().exit(128 + signal.SIGINT)


def _judged(engine: sa.Engine, reasons: OutageReasons) -> dict[str, int]:
    from store.events.judged_reasons import judged_reasons, reasons_told

    with engine.connect() as connection:
        return reasons_told(judged_reasons(connection, reasons))


def _archive_options(given: Mapping[str, Any], reasons: OutageReasons) -> ArchiveOptions:
    source, name = open_rules(given["rules_path"]), given["zone_name"]
    zone = None if name is None else zone_of(name)
    return ArchiveOptions(given["year"], zone, NO_RULES if source is None else source(), reasons)


def _tell(summary: Summary) -> None:
    """Each broken file, each with skipped lines, and what was not read at all, on stderr."""
    troubles, unread = summary.troubles, summary.unread
    for trouble in troubles[:_MOST_TOLD]:
        word = "Broken" if trouble.broken else "Doubtful" if trouble.doubtful else "Skipped"
        print_text(f"{word}: {trouble.file}: {trouble.detail}", err=True)
    if len(troubles) > _MOST_TOLD:
        print_text(f"... and {many(len(troubles) - _MOST_TOLD, 'file')} more: --json lists them all", err=True)
    if unread:
        named = ", ".join(unread[:_MOST_UNREAD])
        more = f" and {len(unread) - _MOST_UNREAD} more (--json has all)" if len(unread) > _MOST_UNREAD else ""
        print_text(f"Not read: {named}{more}: no file of an archive has such a name (docs/ingest.md)", err=True)


def _as_json(archive: Path, summary: Summary) -> dict[str, Any]:
    return {
        "archive": str(archive),
        "parts": [{"part": name, **asdict(tally)} for name, tally in summary.parts.items()],
        "total": asdict(summary.total()),
        "troubles": [asdict(trouble) for trouble in summary.troubles],
        "unread": list(summary.unread),
        "year": summary.year,
        "zone": summary.zone,
        "incidents": summary.incidents,
        "wall_s": round(summary.wall_s, 3),
    }


def _print(summary: Summary, judged: dict[str, int]) -> None:
    rows = [{"part": name, **asdict(tally)} for name, tally in summary.parts.items()]
    print_table(rows, ("part", "files", "broken", "records", "new", "known", "skipped"))
    if judged["outages"]:
        print_text(f"{reasons_sentence(judged)}; `foreshock outages` lists the reasons")
    for sentence in filter(None, (summary.year, summary.zone)):
        print_text(sentence)
    total = summary.total()
    print_text(
        f"{many(total.records, 'record')} ({total.new} new, {total.known} known, {total.skipped} skipped) "
        f"of {many(total.files, 'file')} ({total.broken} broken); {many(summary.incidents, 'incident')}; "
        f"{summary.wall_s:.1f} s"
    )
