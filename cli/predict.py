"""`foreshock train`, `score` and `backtest`: fit the predictor, ask it, and see how far it can be trusted.

What needs scikit-learn is imported where it is used: scoring does without, and starts two seconds sooner.
"""

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from cli.errors import Failure
from cli.open import open_store
from cli.output import DB_OPTION, JSON_OPTION, print_json, print_table
from predictor.folds import BacktestSettings, NoDataError
from predictor.forest import ModelError
from predictor.history import from_ms
from predictor.labels import HORIZONS_H
from predictor.reading import data_span
from predictor.scoring import score_nodes
from store.event import RecordError, format_time, parse_time
from store.read_scores import serving_model
from store.score import Score

if TYPE_CHECKING:
    from predictor.backtest import Backtest


class Moment(click.ParamType[datetime]):
    """A time in RFC 3339 as a command takes it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The text as an aware moment in UTC."""
        try:
            return value if isinstance(value, datetime) else parse_time(value)
        except RecordError as error:
            self.fail(str(error), param, ctx)


@contextmanager
def _bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def progress(done: int, whole: int) -> None:
            bar.length = max(whole, 1)
            bar.update(done - bar.pos)

        yield progress


@click.command()
@DB_OPTION
@click.option("--until", type=Moment(), metavar="T", help="Learn from what was known at this time [default: all].")
@JSON_OPTION
def train(url: str, until: datetime | None, as_json: bool) -> None:
    """Fit a model for 24 hours and one for 7 days, judge them on a hold-out, and register them."""
    from predictor import training

    engine = open_store(url)
    try:
        with _bar("Learning") as progress:
            names = training.train(engine, until, progress=progress)
    except (NoDataError, ModelError) as error:
        raise Failure(str(error)) from error
    with engine.connect() as connection:
        stored = [serving_model(connection, horizon_h) for horizon_h in HORIZONS_H]
    rows = [
        {
            "model": model.id,
            "horizon_h": model.horizon_h,
            "trained_until": format_time(model.trained_until),
            **{name: model.metrics[name] for name in ("rows", "positives", "prevalence", "holdout")},
        }
        for model in stored
        if model is not None and model.id in names
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row |= {f"holdout_{name}": (row["holdout"] or {}).get(name) for name in ("roc_auc", "average_precision")}
    columns = ["model", "horizon_h", "trained_until", "rows", "positives", "prevalence"]
    print_table(rows, [*columns, "holdout_roc_auc", "holdout_average_precision"])


@click.command()
@DB_OPTION
@click.option("--at", type=Moment(), metavar="T", help="Score as of this time [default: the end of the data].")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Nodes in the table.")
@JSON_OPTION
def score(url: str, at: datetime | None, top: int, as_json: bool) -> None:
    """Score every node in service, with reasons, and save the scores."""
    engine = open_store(url)
    with engine.connect() as connection:
        span = data_span(connection)
        if span is None:
            raise Failure(f"{url} holds no data: run `foreshock ingest` first")
        moment = at or _just_after(span[1])
        model = serving_model(connection, HORIZONS_H[0], moment)
    if model is not None and model.trained_until > moment:
        click.echo(f"Note: model {model.id} learned until {format_time(model.trained_until)}, after --at", err=True)
    try:
        scores = score_nodes(engine, moment)
    except ModelError as error:
        raise Failure(str(error)) from error
    if as_json:
        print_json([_wire(one) for one in scores])
        return
    print_table(_ranked(scores)[:top], ["node", "score_24h", "score_7d", "reasons"])


def _just_after(moment: datetime) -> datetime:
    """The next whole second: features see only what lies before it."""
    return moment.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)


def _wire(score: Score) -> dict[str, Any]:
    return {
        "node": score.node,
        "time": format_time(score.time),
        "horizon_h": score.horizon_h,
        "score": score.score,
        "reasons": [{"text": r.text, "contribution": r.contribution, "events": r.events} for r in score.reasons],
        "model": score.model,
    }


def _ranked(scores: list[Score]) -> list[dict[str, Any]]:
    """One row a node, riskiest first; the reasons are those of the shortest horizon that there is."""
    rows: dict[str, dict[str, Any]] = {}
    for one in sorted(scores, key=lambda score: score.horizon_h):
        row = rows.setdefault(one.node, {"node": one.node, "reasons": "; ".join(r.text for r in one.reasons[:3])})
        row["score_24h" if one.horizon_h == HORIZONS_H[0] else "score_7d"] = one.score
    return sorted(rows.values(), key=lambda row: (-(row.get("score_24h") or row.get("score_7d") or 0.0), row["node"]))


@click.command()
@DB_OPTION
@click.option("--horizon-h", type=click.IntRange(1, 24 * 90), default=24, show_default=True, help="Hours ahead.")
@click.option("--cadence-h", type=click.FloatRange(min=0.25), default=24.0, show_default=True, help="Hours a moment.")
@click.option("--test-start", type=Moment(), metavar="T", help="First moment judged [default: half of the data].")
@click.option("--test-end", type=Moment(), metavar="T", help="Moments judged lie before this [default: the end].")
@click.option(
    "--moments", "moments_file", type=click.Path(path_type=Path), help="Judge the moments of this file, one a line."
)
@click.option("--scores", "scores_file", type=click.Path(path_type=Path), help="Write time,node,score to this CSV.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write the report as a page.")
@JSON_OPTION
def backtest(
    url: str,
    moments_file: Path | None,
    scores_file: Path | None,
    html_file: Path | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Say what would have been said in the past, learned from what came before, and judge it by what came."""
    from predictor.backtest import run_backtest
    from predictor.report import to_html

    moments = None if moments_file is None else read_moments(moments_file)
    engine = open_store(url)
    try:
        with _bar("Looking back") as progress:
            found = run_backtest(engine, BacktestSettings(moments=moments, **chosen), progress)
    except (NoDataError, ModelError) as error:
        raise Failure(str(error)) from error
    _write(scores_file, lambda path: _write_scores(found, path))
    _write(html_file, lambda path: path.write_text(to_html(found.report), encoding="utf-8"))
    if as_json:
        print_json(found.report)
    else:
        _print_report(found.report)


def read_moments(path: Path) -> tuple[datetime, ...]:
    """The moments of a file: one RFC 3339 time a line (what follows a comma is left out), `#` begins a comment.

    Raises:
        Failure: the file cannot be read, holds no moment, or a line is no time.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read {path}: {error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].partition(",")[0].strip()
        if not text or (number == 1 and text.lower() == "time"):
            continue
        try:
            found.append(parse_time(text))
        except RecordError as error:
            raise Failure(f"{path}, line {number}: {error}") from error
    if not found:
        raise Failure(f"{path} holds no moment: write one RFC 3339 time a line")
    return tuple(found)


def _write(path: Path | None, how: Callable[[Path], object]) -> None:
    """Write a file that was asked for."""
    try:
        if path is not None:
            how(path)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error


def _write_scores(found: "Backtest", path: Path) -> None:
    """One line a node at risk and moment."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("time", "node", "score"))
        for row in np.flatnonzero(np.isfinite(found.scores)):
            moment = format_time(from_ms(int(found.rows.time_ms[row])))
            writer.writerow((moment, found.nodes[found.rows.node[row]], f"{found.scores[row]:.8g}"))


def _print_report(report: dict[str, Any]) -> None:
    """The figures for people: the model beside what needs no learning."""
    click.echo(
        f"{report['rows']} rows of {report['nodes']} nodes, {report['positives']} followed by an unplanned outage "
        f"within {report['horizon_h']} h; {len(report['folds'])} folds, purge {report['purge_h']} h"
    )
    rankings = {"model": report, **report["baselines"]}
    rows = [
        {
            "ranking": name,
            **{key: judged[key] for key in ("roc_auc", "average_precision")},
            **{f"recall_top_{float(top):.0%}": value for top, value in judged["recall_at_top"].items()},
        }
        for name, judged in rankings.items()
    ]
    print_table(rows, list(rows[0]))
    lead = report["lead_time_h"]
    values = (report["lift"], report["false_cordons_per_1000_node_days"], *lead.values())
    lift, false, p10, p50, p90 = ("unknown" if value is None else f"{value:.3g}" for value in values)
    click.echo(f"Lift {lift}; {false} false cordons per 1000 node-days; lead time p10/p50/p90 {p10}/{p50}/{p90} h")
