"""`foreshock rules check`, `history`: how this site reads faults, tried before it is in force, and since when it is."""

import difflib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text
from cli.console.secret_arguments import SecretOption
from parsers.site_rules.rules import RulesError, RulesFile, RulesSource, SiteRules
from store.plural import many
from store.records.fault_catalog import kind_meanings

RULES_OPTION = click.option(
    "--rules", "rules_path", type=click.Path(path_type=Path), help="YAML file: how this site reads faults."
)
_MOST_SHOWN = 100
# Kinds that are judged by their codes: the table of kinds has no rows of them.
_CODED = frozenset(("xid", "sxid", "sxid_detail", "quoted_xid", "fabricmanager_nvswitch"))


def open_rules(path: Path | None) -> RulesSource | None:
    """The rules of a file, followed; None without one.

    Raises:
        Failure: it cannot be read, or does not hold.
    """
    try:
        return None if path is None else RulesFile(path).current
    except RulesError as error:
        raise Failure(str(error)) from error


@click.group()
def rules() -> None:
    """Try a site's rules, and see which were in force when."""


@rules.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--db",
    "url",
    cls=SecretOption,
    envvar="FORESHOCK_DB",
    help="Also tell which events of this database the rules would judge otherwise.",
)
@click.option(
    "--days",
    type=click.IntRange(min=1),
    default=28,
    show_default=True,
    help="How far back to look from the newest event.",
)
@JSON_OPTION
def check(file: Path, url: str | None, days: int, as_json: bool) -> None:
    """Read a rules file as the server does, and tell what it changes; exit 2 where it does not hold."""
    source = open_rules(file)
    found = source() if source is not None else SiteRules()
    for doubt in _misspelt(found):
        print_text(f"Doubtful: {file}: {doubt}", err=True)
    since, changes = (None, []) if url is None else _changes(found, url, days)
    if as_json:
        counts = {"faults": len(found.faults), "patterns": len(found.patterns)}
        looked = {"since": None if since is None else f"{since:%Y-%m-%dT%H:%M:%SZ}"}
        print_json({"file": str(file), "version": found.version, **counts, **looked, "changes": changes})
        return
    print_text(
        f"{file} holds: version {found.version}, {many(len(found.faults), 'fault')}, "
        f"{many(len(found.patterns), 'pattern')}"
    )
    if since is not None:
        told = sum(row["events"] for row in changes)
        print_text(f"events of the last {days} days, since {since:%Y-%m-%d %H:%MZ}, that it judges otherwise: {told}")
        print_table(changes[:_MOST_SHOWN], ("kind", "code", "was", "becomes", "events"))


def _misspelt(found: SiteRules) -> Iterator[str]:
    """Of which kinds that the rules judge no event is known to be."""
    known = {kind for kind, _variant in kind_meanings()} | _CODED | {pattern.kind for pattern in found.patterns}
    for kind in sorted({kind for kind, _code in found.faults} - known):
        near = difflib.get_close_matches(kind, known, n=1)
        hint = f": did you mean {near[0]!r}?" if near else ": docs/formats.md has them all"
        yield f"faults: no event that is known here is of the kind {kind!r}{hint}"


def _changes(found: SiteRules, url: str, days: int) -> tuple[datetime, list[dict[str, Any]]]:
    """Since when events were looked at, and what the rules would have made of them, most frequent first.

    The days end with the newest event: those of an archive may be long past.
    """
    from cli.console.store import open_store  # only here: a node that has the sidecar alone can check its rules too
    from store.events.event_pages import judgements_since, newest_time

    engine = open_store(url)
    with engine.connect() as connection:
        now = datetime.now(UTC)
        since = min(newest_time(connection) or now, now) - timedelta(days=days)
        rows = judgements_since(connection, since)
    engine.dispose()
    counted: Counter[tuple[str, int | None, str, str]] = Counter()
    for event, count in rows:
        judged = found.judge(event)
        if judged != event:
            was, becomes = (f"{e.severity} {e.cause} {e.action}" for e in (event, judged))
            counted[event.kind, event.code, was, becomes] += count
    return since, [
        {"kind": kind, "code": code, "was": was, "becomes": becomes, "events": count}
        for (kind, code, was, becomes), count in counted.most_common()
    ]


@rules.command("history")
@DB_OPTION
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="The newest so many.")
@JSON_OPTION
def history(url: str, limit: int, as_json: bool) -> None:
    """Which rules came into force when, the newest first."""
    from cli.console.store import open_store
    from store.hints.policy_history import rules_page
    from store.records.event import format_time

    engine = open_store(url)
    with engine.connect() as connection:
        rows = [{**row, "time": format_time(row["time"])} for row in rules_page(connection, limit)]
    engine.dispose()
    if as_json:
        print_json(rows)
        return
    print_table([{**row, "lines": len(row["text"].splitlines())} for row in rows], ("time", "version", "lines"))
