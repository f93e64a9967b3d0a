"""`foreshock worlds`: simulated worlds that differ, and the predictor in those whose mechanisms it was not made on."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import CheckFailed, Failure
from cli.console.output import JSON_OPTION, print_json, print_table, print_text, progress_bar

if TYPE_CHECKING:
    from predictor.dataset.executor import Progress


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--worlds", "chosen", metavar="A,B", help="These alone; a+b has the mechanisms of both [default: all].")
@click.option("--nodes", default=400, show_default=True, help="Nodes of each world (8 to 10000).")
@click.option("--days", default=120, show_default=True, help="Days of each world (2 to 1000).")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0), help="Same seed, same worlds.")
@click.option(
    "--informed",
    "further_worlds",
    default=0,
    type=click.IntRange(0, 100),
    metavar="N",
    help="Learn from N further worlds of each, too: what one can say who knows how such a world works.",
)
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Worlds at once.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Write an SVG: what was said, what came.")
@JSON_OPTION
def worlds(
    directory: Path,
    chosen: str | None,
    further_worlds: int,
    processes: int,
    plot: Path | None,
    as_json: bool,
    **size: Any,
) -> None:
    """Simulate worlds in DIR; judge the predictor in each, as learned there and as learned elsewhere.

    Elsewhere are the worlds that share no mechanism with it. A world that is there already is not simulated again.
    """
    from cli.worlds.judged import read_world, report, with_elsewhere, with_informed
    from cli.worlds.world import WORLDS, further, make_world, worlds_of
    from predictor.dataset.executor import ExecutorError, executor
    from predictor.dataset.folds import NoDataError
    from predictor.evaluate.leakage import LeakageError
    from predictor.model.forest import ModelError

    try:
        wanted = worlds_of(chosen.split(",") if chosen else WORLDS, **size)
        with executor(processes) as run, progress_bar("Worlds") as progress:
            made = partial(_told, progress, len(wanted))
            more = [other for world in wanted for other in further(world, further_worlds)]
            run.map(partial(make_world, directory), [*wanted, *more], made(0))
            read = run.map(partial(read_world, directory), wanted, made(1))
            whole = run.map(partial(with_elsewhere, read), read, made(2))
            if further_worlds:
                whole = run.map(partial(with_informed, directory, further_worlds), whole)
    except (ValueError, ExecutorError, ModelError, NoDataError) as error:
        if isinstance(error, LeakageError):
            raise CheckFailed(f"leakage, so there is no report: {error}") from error
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot write to {directory}: {error.strerror or error}") from error
    found = report(whole)
    if plot is not None:
        _draw(found, plot)
    if as_json:
        print_json(found)
        return
    _print(found)


def _draw(found: dict[str, Any], path: Path) -> None:
    """The reliability of the model, over all worlds but the usual one."""
    from predictor.evaluate.report import reliability_plot
    from store.svg_plot import standalone

    model = (found["away"] or {"rankings": {}})["rankings"].get("model")
    if model is None:
        raise Failure("there is nothing to draw: no world but the usual one has a model and outages to judge it by")
    try:
        path.write_text(standalone(reliability_plot(model)), encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error


def _told(progress: "Progress | None", worlds: int, turn: int) -> "Progress | None":
    """Progress of one of three turns over all worlds."""
    if progress is None:
        return None
    return lambda done, of: progress(turn * worlds + done * worlds // of, 3 * worlds)


def _print(found: dict[str, Any]) -> None:
    """One line a world and ranking."""
    rows = [row for one in found["worlds"] for row in _rows(one["world"], one)]
    if found["away"]:
        rows += _rows("all but usual", found["away"])
    print_text("24 hours ahead, the later half of each world, daily; intervals by node.")
    columns = ["world", "rows", "positives", "ranking", "roc_auc", "average_precision", "of_oracle"]
    print_table(rows, [*columns, "top_1_said", "top_1_came"])


def _rows(name: str, figures: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "world": name,
            "rows": figures["rows"],
            "positives": figures["positives"],
            "ranking": ranking,
            **{figure: _sure(one, figure) for figure in ("roc_auc", "average_precision")},
            "of_oracle": one["of_oracle"],
            "top_1_said": one["top_1"] and one["top_1"]["said"],
            "top_1_came": one["top_1"] and one["top_1"]["came"],
        }
        for ranking, one in figures["rankings"].items()
    ]


def _sure(one: dict[str, Any], figure: str) -> str:
    sure = one["intervals"][figure]
    return f"{one[figure]:.3f}" + (f" [{sure[0]:.3f}, {sure[1]:.3f}]" if sure else "")
