"""`foreshock backtest`: what the predictor would have said in the past, judged by what came, and what that is worth.

What needs scikit-learn is imported where it is used, so that other commands start without it.
"""

import csv
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.predict import Moment
from cli.console.errors import CheckFailed, Failure
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text, progress_bar
from cli.console.store import open_store
from cli.processes.workers import worker_options
from predictor.dataset.folds import BacktestSettings, NoDataError
from store.plural import many
from store.records.event import RecordError, format_time, parse_time

if TYPE_CHECKING:
    from predictor.evaluate.backtest import Backtest

_POSITIVE = click.FloatRange(min=0, min_open=True)

# Of fewer rows that are followed by an outage one more or less moves every figure.
_TELLING = 20


@click.command()
@DB_OPTION
@click.option("--horizon-h", type=click.IntRange(1, 24 * 90), default=24, show_default=True, help="Hours ahead.")
@click.option("--cadence-h", type=click.FloatRange(min=0.25), default=24.0, show_default=True, help="Hours a moment.")
@click.option("--test-start", type=Moment(), metavar="T", help="First moment judged [default: half of the data].")
@click.option("--test-end", type=Moment(), metavar="T", help="Moments judged lie before this [default: the end].")
@click.option("--fold-days", type=_POSITIVE, help="Learn anew this often [default: 14 days, or two horizons].")
@click.option("--purge-h", "least_purge_h", type=click.IntRange(0), help="Hours left out [default: horizon + 12].")
@click.option(
    "--moments", "moments_file", type=click.Path(path_type=Path), help="Judge the moments of this file, one a line."
)
@click.option("--job-gpus", type=click.IntRange(1), default=1024, show_default=True, help="GPUs a failure stops.")
@click.option(
    "--mtt-checkpoint-h", type=click.FloatRange(min=0), default=0.15, show_default=True, help="Hours of work lost."
)
@click.option("--restart-h", type=click.FloatRange(min=0), default=0.1, show_default=True, help="Hours to restart.")
@click.option("--action-h", type=_POSITIVE, default=2.2, show_default=True, help="Node-hours that acting once costs.")
@click.option(
    "--averted", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="Share of failures acting averts."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="P",
    help="Replay a policy: top=1%|threshold=.02,hold_h=24,budget=5%.",
)
@click.option("--links", is_flag=True, help="Judge links, which flap or die, in place of nodes.")
@click.option("--truth", "truth_dir", type=click.Path(path_type=Path), help="Folder `truth` of a simulated cluster.")
@click.option("--scores", "scores_file", type=click.Path(path_type=Path), help="Write time,node,score to this CSV.")
@worker_options
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write the report as a page.")
@JSON_OPTION
def backtest(url: str, scores_file: Path | None, html_file: Path | None, as_json: bool, **chosen: Any) -> None:
    """Say what would have been said in the past, learned from what came before, and judge it by what came.

    Exits with 3 where something has seen the future: then there is no report.
    """
    from predictor.evaluate.report import curves, to_html

    found = _judged(url, chosen)
    seen = found.judged.known
    _write(scores_file, lambda path: _write_scores(found, path))
    if html_file is not None:
        lines = curves(found.judged.only(seen), {name: rank[seen] for name, rank in found.ranks.items()})
        _write(html_file, lambda path: path.write_text(to_html(found.report, lines), encoding="utf-8"))
    if as_json:
        print_json(found.report)
    else:
        _print_report(found.report)


def _judged(url: str, chosen: dict[str, Any]) -> "Backtest":
    """The backtest, with what it is worth; every way to fail as a command fails."""
    from cli.processes.workers import workers
    from predictor.evaluate.backtest import WorthSettings, run_backtest, with_worth
    from predictor.evaluate.cost import CostSettings, PolicyError, parse_policy
    from predictor.evaluate.leakage import LeakageError
    from predictor.evaluate.truth import TruthError, read_truth
    from predictor.links.subjects import LINKS, NODES
    from predictor.model.forest import ModelError

    moments_file, truth = chosen.pop("moments_file"), chosen.pop("truth_dir")
    subjects = LINKS if chosen.pop("links") else NODES
    policies, costs = chosen.pop("policies"), ("job_gpus", "mtt_checkpoint_h", "restart_h", "action_h", "averted")
    settings = CostSettings(**{name: chosen.pop(name) for name in costs})
    try:
        worth = WorthSettings(settings, tuple(parse_policy(text) for text in policies), truth)
        moments = None if moments_file is None else read_moments(moments_file)
        if truth is not None:
            read_truth(truth, ())  # said before minutes of work, not after
        engine, where = open_store(url), (chosen.pop("processes"), chosen.pop("ray"))
        with progress_bar("Looking back") as progress, workers(engine, *where) as run:
            found = run_backtest(engine, BacktestSettings(moments=moments, **chosen), progress, subjects, run)
        return with_worth(found, worth)
    except (NoDataError, ModelError, PolicyError, TruthError) as error:
        raise Failure(str(error)) from error
    except LeakageError as error:
        raise CheckFailed(f"leakage, so there is no report: {error}") from error


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
    import numpy as np

    from predictor.history.arrays import from_ms
    from store.visible_text import csv_value

    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("time", "node", "score"))
        judged = found.judged
        for row in np.flatnonzero(np.isfinite(judged.scores)):
            moment = format_time(from_ms(int(judged.time_ms[row])))
            writer.writerow((moment, csv_value(found.nodes[judged.node[row]]), f"{judged.scores[row]:.8g}"))


def _print_report(report: dict[str, Any]) -> None:
    """The figures for people: the model beside what needs no learning."""
    print_text(
        f"{many(report['rows'], 'row')} of {many(report['nodes'], 'node')}, {report['positives']} followed "
        f"by an unplanned outage within {report['horizon_h']} h; "
        f"{many(len(report['folds']), 'fold')}, purge {report['purge_h']} h"
    )
    if report["positives"] < _TELLING:
        print_text(f"with fewer than {_TELLING} such rows the figures say little: load a longer history or more nodes")
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
    if report["lists"]:
        held = f"how many hold one that fails within {report['horizon_h']} h, and how many the scores said"
        print_text()
        print_text(f"lists of the riskiest nodes: {held}")
        print_table(report["lists"], ["nodes", "lists", "hit", "share", "low", "high", "said", "failing"])
    if classes := report.get("lead_time_h_by_class"):
        print_text()
        rows = [{"what_failed": name, **one} for name, one in classes.items()]
        print_table(rows, ["what_failed", "outages", "foreseen", "p10", "p50", "p90"])
        print_text()
    lead = report["lead_time_h"]
    values = (report["lift"], report["false_cordons_per_1000_node_days"], *lead.values())
    lift, false, p10, p50, p90 = ("unknown" if value is None else f"{value:.3g}" for value in values)
    print_text(f"Lift {lift}; {false} false cordons per 1000 node-days; lead time p10/p50/p90 {p10}/{p50}/{p90} h")
