"""`foreshock links`: which links will flap or die, learned from the fabric's past."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from cli.commands.predict import Moment
from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text
from cli.console.store import open_store, shown
from cli.processes.workers import BACKGROUND_OPTION, give_way
from predictor.dataset.folds import NoDataError
from store.records.event import format_time

if TYPE_CHECKING:
    from store.models.scores import LinkScore


@click.command()
@DB_OPTION
@click.option("--at", type=Moment(), metavar="T", help="Score as of this time [default: the end of the data].")
@click.option("--horizon-h", type=click.IntRange(1, 24 * 90), default=24, show_default=True, help="Hours ahead.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Links in the table.")
@BACKGROUND_OPTION
@JSON_OPTION
def links(
    url: str, at: datetime | None, horizon_h: int, top: int, background: tuple[int, int] | None, as_json: bool
) -> None:
    """Learn from the past of all links, score each, with reasons, and save the scores."""
    from predictor.history.store_reader import data_span
    from predictor.links.scoring import score_links
    from predictor.model.forest import ModelError

    if background is not None:
        give_way(*background)
    engine = open_store(url)
    with engine.connect() as connection:
        span = data_span(connection)
    if span is None:
        raise Failure(f"{shown(url)} holds no data: run `foreshock ingest` first")
    try:
        found = score_links(engine, at or span[1], horizon_h)
    except (NoDataError, ModelError) as error:
        raise Failure(str(error)) from error
    if as_json:
        print_json([{**_wire(score), "why": found.why} for score in found.scores])
        return
    print_table([_row(score) for score in found.scores[:top]], ["link", "ends", "score", "reasons"])
    print_text(found.why)


def _wire(score: LinkScore) -> dict[str, Any]:
    reasons = [{"text": r.text, "contribution": r.contribution, "events": r.events} for r in score.reasons]
    named = {"link": score.link, "ends": score.ends, "horizon_h": score.horizon_h, "time": format_time(score.time)}
    risks = {"node": score.node, "own_risk": score.own_risk, "stop_risk": score.stop_risk}
    return {**named, "score": score.score, "reasons": reasons, "model": score.model, **risks}


def _row(score: LinkScore) -> dict[str, object]:
    reported = "; ".join(reason.text for reason in score.reasons[:-1]) or score.reasons[-1].text
    return {"link": score.link, "ends": " - ".join(score.ends), "score": score.score, "reasons": reported}
