"""`foreshock parse`: logs to JSON Lines."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TypedDict, Unpack, cast
from zoneinfo import ZoneInfo

import click

from cli.archive.log_input import OpenLog
from cli.console.errors import Failure
from cli.console.output import print_line, print_text
from parsers.registry import PARSERS, make_parser, misread
from parsers.site_rules.rules import RulesSource
from parsers.text.lines import ReadError, lines
from parsers.text.parser import Context, ParseError, clean, decode
from store.plural import plural
from store.records.event import RecordError, parse_time, to_wire

LOCALTIME = Path("/etc/localtime")
STDIN = "-"


class ContextOptions(TypedDict):
    """What the options tell of a log that it does not say of itself."""

    node: str | None
    year: int | None
    zone_name: str | None
    run: str | None
    boot_time: str | None
    rules_path: Path | None


@dataclass(slots=True)
class Skipped:
    """The broken lines of one file."""

    count: int = 0
    first_line: int = 0
    why: str = ""

    def add(self, line: int, error: ParseError) -> None:
        """One more."""
        if not self.count:
            self.first_line, self.why = line, str(error)
        self.count += 1

    def tell(self, name: str) -> None:
        """Once at the end, on stderr."""
        if self.count:
            noun = plural(self.count, "line")
            print_text(f"{self.count} {noun} of {name} skipped: first at line {self.first_line}: {self.why}", err=True)


@click.command()
@click.argument("format_name", metavar="FORMAT")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--node", help="The host, where lines do not name it.")
@click.option("--year", type=click.IntRange(1970, 9998), help="The year of times without one [the file's own date].")
@click.option(
    "--tz", "zone_name", envvar="TZ", help="The zone of times without one, such as UTC or Europe/Berlin [TZ]."
)
@click.option("--run", help="The training run [the file's name].")
@click.option("--boot-time", help="When the host booted, for times in seconds since then.")
@click.option("--rules", "rules_path", type=click.Path(path_type=Path), help="YAML file: how this site reads faults.")
def parse(format_name: str, files: tuple[str, ...], **options: Unpack[ContextOptions]) -> None:
    """Decode logs of FORMAT (see `foreshock formats`, or `auto`) to JSON Lines on stdout.

    FILE may be compressed with gzip or zstd; `-` or none is standard input.
    """
    if format_name != "auto" and format_name not in PARSERS:
        raise Failure(f"no format {format_name!r}: use one of auto, {', '.join(sorted(PARSERS))}")
    context = Context(
        node=options["node"],
        year=options["year"],
        zone=zone_of(options["zone_name"]),
        boot_time=_boot(options["boot_time"]),
        run=options["run"],
    )
    rules = None
    if options["rules_path"] is not None:
        from cli.commands.rules import open_rules  # only here: most logs are read without

        rules = open_rules(options["rules_path"])
    names = files or (STDIN,)
    try:
        read = [_parse_file(format_name, name, context, rules, several=len(names) > 1) for name in names]
    except BrokenPipeError:  # the reader (`head`) went away: no error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    if not all(read):
        sys.exit(2)


def _parse_file(format_name: str, name: str, context: Context, rules: RulesSource | None, several: bool) -> bool:
    """Print one file's events; False where it could not be read to its end."""
    skipped, failures = Skipped(), list[ReadError]()
    label = "standard input" if name == STDIN else name
    try:
        with _opened(name) as (stream, until):
            local = replace(context, until=until, run=context.run or _run_of(name))
            log = OpenLog(stream, label, failures)
            chosen = log.format() if format_name == "auto" else format_name
            parser = make_parser(chosen, local, rules)
            # A site's patterns may be in any line, and those of a log that is followed may yet come.
            texts = log.lines(chosen, every=rules is not None and (log.live or bool(rules().patterns)))
            quiet = True
            for event in decode(parser, texts, skipped.add, name if several else None):
                quiet = False
                print_line(to_wire(event))
                if log.live:
                    sys.stdout.flush()
            if quiet and not (log.live or failures or skipped.count):
                _doubt(stream, label, chosen)
        sys.stdout.flush()
    except ReadError as error:
        failures.append(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        failures.append(ReadError(f"cannot read {label}: {error.strerror or error}"))
    skipped.tell(label)
    for failure in failures:
        print_text(f"Error: {failure}", err=True)
    return not failures


def _doubt(stream: io.BufferedReader, label: str, chosen: str) -> None:
    """Say of a file that told nothing where it is of another format.

    Raises:
        ReadError: it is no text at all.
    """
    from collectors.files.archive import NO_TEXT, looks_binary  # only here: most logs tell something

    stream.seek(0)
    if looks_binary(stream, label):
        raise ReadError(f"{label}: {NO_TEXT}")
    stream.seek(0)
    if chosen in PARSERS and (why := misread(chosen, map(clean, lines(stream, label)))) is not None:
        print_text(f"{label}: {why}", err=True)


@contextmanager
def _opened(name: str) -> Iterator[tuple[io.BufferedReader, datetime]]:
    """The file's bytes, and the newest moment that it can speak of."""
    if name == STDIN:
        yield cast("io.BufferedReader", sys.stdin.buffer), datetime.now(UTC)
        return
    path = Path(name)
    if path.is_dir():
        raise ReadError(f"{name} is a directory: name the files in it")
    with path.open("rb") as file:
        yield file, datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _run_of(name: str) -> str | None:
    """The run that a training log is named after: llm-70b of runs/llm-70b.log.gz."""
    stem = Path(name).name
    for suffix in (".gz", ".zst", ".log", ".out", ".txt"):
        stem = stem.removesuffix(suffix)
    return None if name == STDIN else stem or None


def zone_of(name: str | None) -> tzinfo:
    """The zone of a name or, as TZ may hold one, of a zone file; without one this machine's.

    Raises:
        Failure: there is no such zone.
    """
    bare = (name or "").removeprefix(":")
    try:
        if bare and not bare.startswith("/"):
            return ZoneInfo(bare)
        with Path(bare or LOCALTIME).open("rb") as file:
            return ZoneInfo.from_file(file)
    except (ValueError, OSError, KeyError) as error:
        if not bare:
            return UTC
        raise Failure(f"no time zone {name!r}: use a name such as UTC or Europe/Berlin (--tz or TZ)") from error


def _boot(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_time(text)
    except RecordError as error:
        raise Failure(f"--boot-time {error}") from error
