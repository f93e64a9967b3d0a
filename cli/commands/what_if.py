"""`foreshock what-if`: a run's own history lived again with other settings, beside the formula."""

from typing import Any

import click

from cli.commands.advise import RUN_OPTION, predictor_options
from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, PRICE_OPTION, print_json, print_table, print_text

_SECONDS = click.FloatRange(0)


@click.command("what-if")
@DB_OPTION
@RUN_OPTION
@click.option("--interval-s", type=click.FloatRange(0, min_open=True), help="Work between two saves.")
@click.option("--save-s", type=_SECONDS, help="Stall of a save.")
@click.option("--write-s", type=_SECONDS, help="How long after its stall a save in the background is safe.")
@click.option("--detection-s", type=_SECONDS, help="From a fault to the stop of the job.")
@click.option("--restart-s", type=_SECONDS, help="Startup and load after a stop.")
@click.option("--spares", type=click.IntRange(0), help="Nodes held ready: stops wait as the stored outages make them.")
@predictor_options
@click.option(
    "--hold-top",
    type=click.FloatRange(0, 1, min_open=True),
    help="Leave so large a share of the nodes, those with the highest stored scores, out of each start.",
)
@click.option("--move-s", type=_SECONDS, help="What moving off a node in time costs; without it a save and a start.")
@PRICE_OPTION
@JSON_OPTION
def what_if(url: str, run: str | None, hold_top: float | None, as_json: bool, **reported: Any) -> None:
    """Replay a run's stored history with another interval, detection, restart, spares or hint policy.

    The failures strike when they struck. The gain is told as replayed, with its interval, and by the formula.
    """
    from cli.commands.advise import predictor_from, reading
    from goodput.advice.reading import priced, read_history, what_if_advice
    from goodput.advice.what_if import RunChange
    from wire.money.price import shown

    predictor = predictor_from(reported)
    if predictor is not None and hold_top is not None:
        raise Failure("--hold-top goes by the stored scores, --recall by a share: give one of them")
    names = ("interval_s", "save_s", "write_s", "detection_s", "restart_s", "spares", "move_s")
    given = {name: reported[name] for name in names}
    if predictor is None and hold_top is None and all(value is None for value in given.values()):
        raise Failure("nothing would be otherwise: give --interval-s, --detection-s, --spares or another change")
    with reading(url) as connection:
        history = read_history(connection, run)
        change = RunChange(**given, predictor=predictor)
        found = priced(what_if_advice(connection, history, change, hold_top), reported["price"])
    if as_json:
        print_json(found)
        return
    replayed = found["replayed"]
    print_text(
        f"{found['run']}: goodput {replayed['as_was']:.2%} replayed as it was (measured {found['measured']:.2%}), "
        f"{replayed['changed']:.2%} with the change"
    )
    sure = f"{100 * replayed['low']:+.2f} to {100 * replayed['high']:+.2f}"
    print_text(
        f"gain: {100 * replayed['gain']:+.2f} points ({sure}); by the formula {100 * found['analytic']['gain']:+.2f}"
    )
    if replayed.get("money_per_day"):
        print_text(f"worth {shown(replayed['money_per_day'])} a day of its {found['gpus']} GPUs")
    print_text(f"failures that stop the run: {found['stops_then']:.3g} instead of {found['stops']}")
    print_text()
    rows = [{"way": way, **found[way]} for way in ("replayed", "analytic")]
    print_table(rows, ["way", "as_was", "changed", "gain", "low", "high"])
    print_text(f"formula: {found['formula']}")
    print_text(f"source: {found['source']}")
