"""`foreshock train` and `score`: fit the predictor, and ask it.

What needs scikit-learn is imported where it is used: scoring does without, and starts two seconds sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, person, print_json, print_table, print_text, progress_bar
from cli.console.store import open_store, shown
from cli.processes.workers import BACKGROUND_OPTION, worker_options
from predictor.dataset.folds import NoDataError
from store.records.event import RecordError, format_time, parse_time
from store.records.score import Score

if TYPE_CHECKING:
    import sqlalchemy as sa


class Moment(click.ParamType[datetime]):
    """A time in RFC 3339 as a command takes it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The text as an aware moment in UTC."""
        try:
            return value if isinstance(value, datetime) else parse_time(value)
        except RecordError as error:
            self.fail(str(error), param, ctx)


@click.command()
@DB_OPTION
@click.option("--until", type=Moment(), metavar="T", help="Learn from what was known at this time [default: all].")
@click.option("--window-days", type=click.IntRange(1), help="Learn from so many days alone [default: all].")
@click.option(
    "--role",
    type=click.Choice(["champion", "challenger"]),
    default="champion",
    show_default=True,
    help="A challenger serves once it has shown itself better.",
)
@worker_options
@BACKGROUND_OPTION
@JSON_OPTION
def train(url: str, until: datetime | None, as_json: bool, background: tuple[int, int] | None, **chosen: Any) -> None:
    """Fit a model for 24 hours and one for 7 days, judge them on a hold-out, and register them."""
    from cli.processes.workers import give_way, workers
    from predictor.live.training import TrainSettings
    from predictor.live.training import train as learn
    from predictor.model.forest import ModelError
    from store.models.registry import list_models, serving_model

    settings = TrainSettings(
        chosen["window_days"], role=chosen["role"], by=person() if background is None else give_way(*background)
    )
    if background is not None and until is not None:
        settings = replace(settings, now=until)
    engine = open_store(url)
    try:
        with progress_bar("Learning") as progress, workers(engine, chosen["processes"], chosen["ray"]) as run:
            names = learn(engine, until, settings, progress, run)
    except (NoDataError, ModelError) as error:
        raise Failure(str(error)) from error
    with engine.connect() as connection:
        rows = [_row(model) for name in names for model in list_models(connection, ident=name)]
        for row in rows:
            serves = serving_model(connection, row["horizon_h"])
            row["serves"] = None if serves is None else serves.id
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row |= {f"holdout_{name}": (row["holdout"] or {}).get(name) for name in ("roc_auc", "average_precision")}
    columns = ["model", "horizon_h", "role", "trained_until", "rows", "positives", "prevalence"]
    print_table(rows, [*columns, "holdout_roc_auc", "holdout_average_precision"])
    for row in rows:
        print_text(f"{row['model']}: {row['why']}")
        if row["kind"] == "prior":
            why = "too few outages to show that what is learned here is better"
            print_text(f"{row['horizon_h']} h: {why}: {row['serves']} serves")


def _row(model: Mapping[str, Any]) -> dict[str, Any]:
    figures = {name: model["metrics"].get(name) for name in ("rows", "positives", "prevalence", "holdout")}
    until = format_time(model["trained_until"])
    named = {name: model[name] for name in ("horizon_h", "kind", "role", "why")}
    return {"model": model["id"], **named, "trained_until": until, **figures}


@click.command()
@DB_OPTION
@click.option("--at", type=Moment(), metavar="T", help="Score as of this time [default: the end of the data].")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Nodes in the table.")
@JSON_OPTION
def score(url: str, at: datetime | None, top: int, as_json: bool) -> None:
    """Score every node in service, with reasons, and save the scores."""
    from predictor.dataset.labels import HORIZONS_H
    from predictor.history.store_reader import data_span
    from predictor.live.scoring import score_nodes
    from predictor.model.forest import ModelError
    from store.models.registry import serving_model
    from wire.words.values import many

    engine = open_store(url)
    with engine.connect() as connection:
        span = data_span(connection)
        if span is None:
            raise Failure(f"{shown(url)} holds no data: run `foreshock ingest` first")
        moment = at or _just_after(span[1])
        model = serving_model(connection, HORIZONS_H[0], moment)
    if at is not None and model is not None and model.trained_until > moment:
        print_text(f"Note: model {model.id} learned until {format_time(model.trained_until)}, after --at", err=True)
    try:
        scores = score_nodes(engine, moment)
    except ModelError as error:
        raise Failure(str(error)) from error
    with engine.connect() as connection:
        withheld = _withheld(connection, moment, [one.node for one in scores])
    if as_json:
        print_json([_wire(one, withheld.get(one.node)) for one in scores])
        return
    if withheld:
        left_out = f"{many(len(withheld), 'node is', 'nodes are')} not listed"
        print_text(f"{left_out}: a score of one that has failed, or is silent, says nothing")
    scores = [one for one in scores if one.node not in withheld]
    ranked = _ranked(scores)
    print_table(ranked[:top], ["node", "score_24h", "score_7d", "reasons"])
    if len(ranked) > top:
        print_text(f"and {len(ranked) - top} more: --top {len(ranked)} lists all")


def _just_after(moment: datetime) -> datetime:
    """The next whole second: features see only what lies before it."""
    return moment.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)


def _withheld(connection: sa.Connection, moment: datetime, nodes: list[str]) -> dict[str, str]:
    """Whose scores are not told, and why; of the past nobody knows any more who was silent."""
    from api.answers.node_states import present
    from api.server.settings import ApiSettings
    from store.nodes.fleet import withheld_scores

    fleet = present(connection, ApiSettings(), moment)
    if abs(datetime.now(UTC) - moment) > timedelta(seconds=ApiSettings().silent_after_s):
        fleet = replace(fleet, silent_before=None)
    return withheld_scores(connection, fleet, nodes)


def _wire(score: Score, withheld: str | None) -> dict[str, Any]:
    return {
        "node": score.node,
        "time": format_time(score.time),
        "horizon_h": score.horizon_h,
        "score": None if withheld else score.score,
        "withheld": withheld,
        "reasons": []
        if withheld
        else [{"text": r.text, "contribution": r.contribution, "events": r.events} for r in score.reasons],
        "model": score.model,
    }


def _ranked(scores: list[Score]) -> list[dict[str, Any]]:
    """One row a node, riskiest first; the reasons are those of the shortest horizon that there is."""
    from predictor.dataset.labels import HORIZONS_H

    rows: dict[str, dict[str, Any]] = {}
    for one in sorted(scores, key=lambda score: score.horizon_h):
        row = rows.setdefault(one.node, {"node": one.node, "reasons": "; ".join(r.text for r in one.reasons[:3])})
        row["score_24h" if one.horizon_h == HORIZONS_H[0] else "score_7d"] = one.score
    return sorted(rows.values(), key=lambda row: (-(row.get("score_24h") or row.get("score_7d") or 0.0), row["node"]))
