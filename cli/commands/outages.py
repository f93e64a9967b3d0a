"""`foreshock outages`: which reasons of outages were judged how, and how many no row of the table knows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cli.config.outage_reasons import CONFIG_OPTION, read_outage_reasons
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text
from cli.console.store import open_store
from store.plural import many

_MOST_SHOWN = 60
_MOST_CHARS = 70


@click.command()
@DB_OPTION
@CONFIG_OPTION
@click.option("--judge-again", is_flag=True, help="Store what the reasons mean today, also for outages taken before.")
@JSON_OPTION
def outages(url: str, config: Path | None, judge_again: bool, as_json: bool) -> None:
    """List the reasons of outages: planned or a failure, of which cause, and by whose word.

    The model learns from what is a failure here. What no row knows is one, of unknown cause.
    """
    from store.database.connections import writing
    from store.events.judged_reasons import judge_again as store_again
    from store.events.judged_reasons import judged_reasons, reasons_told

    reasons, engine, changed = read_outage_reasons(config), open_store(url), 0
    if judge_again:
        with writing(engine).begin() as connection:
            changed = store_again(connection, reasons, datetime.now(UTC))
    with engine.connect() as connection:
        found = judged_reasons(connection, reasons)
    if as_json:
        print_json({"total": reasons_told(found), "changed": changed, "reasons": [asdict(one) for one in found]})
        return
    shown = ("outages", "nodes", "planned", "cause", "by", "state", "reason")
    rows = [
        {**asdict(one), "planned": "yes" if one.planned else "no", "reason": one.reason[:_MOST_CHARS]} for one in found
    ]
    print_table([{name: row[name] for name in shown} for row in rows[:_MOST_SHOWN]], shown)
    if len(found) > _MOST_SHOWN:
        print_text(f"... and {many(len(found) - _MOST_SHOWN, 'reason')} more: --json lists them all")
    if judge_again:
        print_text(f"{many(changed, 'outage is', 'outages are')} stored anew")
    print_text(reasons_sentence(reasons_told(found)))


def reasons_sentence(told: dict[str, Any]) -> str:
    """How the reasons were judged, in one sentence, and what to do where something is amiss."""
    text = (
        f"{many(told['outages'], 'outage')} of {many(told['reasons'], 'reason')}: {told['planned']} planned; "
        f"{told['by_nothing']} with a reason that no row names, taken as failures of unknown cause (`outage_reasons` "
        "of the configuration adds rows)"
    )
    stale = told["stale"]
    return f"{text}; {stale} are stored as judged before: `foreshock outages --judge-again`" if stale else text
