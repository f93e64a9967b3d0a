"""`foreshock simulate`: a cluster that never was, as an archive with the truth beside it."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cli.console.errors import Failure
from cli.console.output import JSON_OPTION, print_json, print_table, print_text
from store.plural import many
from store.records.event import RecordError, parse_time

_START = "2025-01-01T00:00:00Z"
_COLUMNS = [
    "horizon",
    "rows",
    "positives",
    "roc_auc",
    "average_precision",
    "lift",
    "recall_1%",
    "recall_2%",
    "recall_5%",
]


def _midnight(_context: click.Context, _option: click.Parameter, text: str) -> datetime:
    try:
        return parse_time(text)
    except RecordError as error:
        raise Failure(f"--start: {error}") from error


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--nodes", default=64, show_default=True, help="Nodes of eight GPUs (8 to 10000).")
@click.option("--days", default=30, show_default=True, help="Days to simulate (2 to 1000).")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0), help="Same seed, same cluster.")
@click.option("--start", default=_START, show_default=True, callback=_midnight, help="The first midnight, in UTC.")
@click.option(
    "--rate",
    "rate_per_1000_node_days",
    default=3.8,
    show_default=True,
    help="Unplanned hardware failures per 1000 node-days.",
)
@click.option(
    "--training",
    type=click.Choice(["steady", "varied"]),
    default="steady",
    show_default=True,
    help="Varied: runs that save, wait for data, change size and lose records in many ways.",
)
@click.option(
    "--calibration",
    type=click.Choice(["published", "real"]),
    default="published",
    show_default=True,
    help="Whose figures: published ones, or those of three real sites (their rate, too, without --rate).",
)
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    metavar="NAME",
    help="How this world differs (ramps, bursts, log_habits ...); may be given again. See the docs of the simulator.",
)
@JSON_OPTION
def simulate(directory: Path, as_json: bool, **chosen: Any) -> None:
    """Simulate a cluster: its logs go to DIRECTORY/archive, its ground truth to DIRECTORY/truth.

    Prints the oracle: how well a reader of the hidden state would have foretold the outages.
    """
    from simulator.calibration import real_rate
    from simulator.output.archive import write_archive
    from simulator.output.truth import write_truth
    from simulator.simulation import simulate as simulate_cluster
    from simulator.site import SimulationSettings

    _check_empty(directory / "archive")
    given = click.get_current_context().get_parameter_source("rate_per_1000_node_days")
    if chosen["calibration"] == "real" and given is ParameterSource.DEFAULT:
        chosen["rate_per_1000_node_days"] = real_rate()
    try:
        settings = SimulationSettings(**chosen)
        cluster = simulate_cluster(settings)
    except ValueError as error:
        raise Failure(str(error)) from error
    try:
        write_archive(cluster, directory / "archive")
        hidden = write_truth(cluster, directory / "truth")
    except OSError as error:
        raise Failure(f"cannot write to {directory}: {error.strerror or error}") from error
    if as_json:
        print_json({"archive": str(directory / "archive"), "truth": str(directory / "truth"), "oracle": hidden})
        return
    visible = sum(failure.visible for failure in cluster.outages)
    print_text(
        f"{directory / 'archive'}: {many(settings.nodes, 'node')}, {many(settings.days, 'day')}, "
        f"{many(len(cluster.outages), 'unplanned outage')}, {visible} of them with a precursor."
    )
    print_text("The oracle, who reads the hidden state, reaches:")
    print_table([_row(horizon, figures) for horizon, figures in hidden["horizons"].items()], _COLUMNS)


def _check_empty(archive: Path) -> None:
    """Refuse to mix two clusters' files."""
    try:
        if archive.exists() and any(archive.iterdir()):
            raise Failure(f"{archive} is not empty: name another directory, or remove it first")
    except OSError as error:
        raise Failure(f"cannot write to {archive.parent}: {archive}: {error.strerror or error}") from error


def _row(horizon_h: str, figures: dict[str, Any]) -> dict[str, Any]:
    tops = {f"recall_{round(float(top) * 100)}%": recall for top, recall in figures["recall_at_top"].items()}
    return {"horizon": f"{horizon_h} h", **figures, **tops}
