"""`foreshock advise`: what to change, with the measured inputs, the formula and its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, PRICE_OPTION, print_json, print_table, print_text, span
from cli.console.store import open_store
from goodput.formulas.checkpoint_interval import Aims, Predictor
from store.plural import many

if TYPE_CHECKING:
    import sqlalchemy as sa

RUN_OPTION = click.option("--run", help="This training run; without it the one whose records end last.")
_AIMS = Aims()
_SHARE = click.FloatRange(0, 1)
_SECONDS = click.FloatRange(0)


@contextmanager
def reading(url: str) -> Iterator[sa.Connection]:
    """A connection; what the database cannot tell is one sentence."""
    from goodput.reading.ledgers import NoRecordsError

    with open_store(url).connect() as connection:
        try:
            yield connection
        except (NoRecordsError, ValueError) as error:
            raise Failure(str(error)) from error


def predictor_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--recall --precision --lead-s`: what a predictor of failures can do."""
    for option in (
        click.option("--lead-s", type=_SECONDS, help="A warning comes so many seconds before the failure."),
        click.option(
            "--precision", type=click.FloatRange(0, 1, min_open=True), help="Share of warnings that come true."
        ),
        click.option("--recall", type=_SHARE, help="Share of failures that a predictor foretells."),
    ):
        command = option(command)
    return command


def predictor_from(options: Mapping[str, Any]) -> Predictor | None:
    """The predictor that the options describe; None where they say nothing of one."""
    recall, precision = options.get("recall"), options.get("precision")
    if (recall is None) != (precision is None):
        raise Failure("--recall and --precision belong together: give both, or neither")
    if recall is None or precision is None:
        more = [
            f"--{name.replace('_', '-')}" for name in ("lead_s", "window_s", "save_on_warning_s") if options.get(name)
        ]
        if more:
            raise Failure(f"{more[0]} tells more of a predictor: give its --recall and --precision too")
        return None
    try:
        return Predictor(
            recall, precision, options["lead_s"], options.get("save_on_warning_s"), options.get("window_s", 0.0)
        )
    except ValueError as error:
        raise Failure(f"--recall, --precision, --window-s: {error}") from error


@click.group()
def advise() -> None:
    """What to change, with the measured inputs and the formula."""


@advise.command()
@DB_OPTION
@RUN_OPTION
@predictor_options
@click.option("--window-s", type=_SECONDS, default=0.0, help="A foretold failure comes within so many seconds.")
@click.option("--save-on-warning-s", type=_SECONDS, help="Stall of a save upon a warning; without it as any save's.")
@click.option("--registered-model", is_flag=True, help="Recall and precision of the registered model's hold-out.")
@PRICE_OPTION
@JSON_OPTION
def checkpoint(url: str, run: str | None, registered_model: bool, as_json: bool, **options: Any) -> None:
    """The checkpoint interval that loses least, from measured failures, save stalls and restarts."""
    from goodput.advice.reading import checkpoint_advice, predictor_of, priced

    predictor = predictor_from(options)
    if predictor is not None and registered_model:
        raise Failure("--registered-model has its own recall and precision: give it, or --recall and --precision")
    with reading(url) as connection:
        if registered_model:
            predictor = predictor_of(connection)
            if predictor is None:
                raise Failure("no registered model was judged on a hold-out: `foreshock train` makes one")
        found = priced(checkpoint_advice(connection, run, predictor), options["price"])
    if as_json:
        print_json(found)
        return
    print_text(f"{found['run']}: save every {span(found['interval_s'])} ({_range(found)})")
    now = found["inputs"]["interval_s"]
    if now is not None and found["goodput_now"] is not None:
        print_text(f"now every {span(now)}: goodput expected {found['goodput_now']:.2%}")
    print_text(
        f"then: goodput expected {found['goodput_advised']:.2%} "
        f"({found['goodput_low']:.2%} to {found['goodput_high']:.2%})"
    )
    if found.get("money_per_day"):
        print_text(f"worth {_shown(found['money_per_day'])} a day of its {found['gpus']} GPUs")
    _print_kinds(found)
    rate = "measured" if found["rate_is_measured"] else "no failure seen yet: a published rate, FIELD D7"
    _print_basis(found, ["formula", "goodput_formula", "source"], f"failures per node-day ({rate})")


def _shown(money: Mapping[str, str]) -> str:
    from wire.money.price import shown

    return shown(money)


def _print_kinds(found: Mapping[str, Any]) -> None:
    """What other saves and a predictor would change, one line each."""
    for kind, words in (
        ("background", "saves in the background"),
        ("memory", "saves to memory, disk saves beside them"),
    ):
        advice = found[kind]
        limit = advice["break_even_stall_s"]
        pays = "pay at no stall" if limit is None else f"pay below a stall of {limit:.3g} s"
        gain = f"at {advice['stall_s']:g} s every {span(advice['interval_s'])} {100 * advice['gain']:+.2f} points"
        print_text(f"{words} {pays}; {gain}")
    plan = found["prediction"]
    if plan is None:
        return
    if plan["use_warnings"]:
        print_text(
            f"with warnings: save every {span(plan['interval_s'])}, and upon a warning from "
            f"{span(plan['trust_after_s'])} after a save on: {100 * plan['gain']:+.2f} points"
        )
    else:
        print_text(f"warnings are no reason to save: {plan['why']}")


def _range(advice: Mapping[str, Any]) -> str:
    return (
        f"{span(advice['interval_shortest_s'])} to {span(advice['interval_longest_s'])} within the rate's 95 % interval"
    )


@advise.command()
@DB_OPTION
@RUN_OPTION
@click.option(
    "--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.99, show_default=True
)
@JSON_OPTION
def spares(url: str, run: str | None, confidence: float, as_json: bool) -> None:
    """How many spare nodes cover nearly every moment, from measured outages and repair times."""
    from goodput.advice.reading import spares_advice

    with reading(url) as connection:
        advice = spares_advice(connection, confidence, run)
    if as_json:
        print_json(advice)
        return
    who = f"run {run!r}" if run else "the cluster"
    inputs = advice["inputs"]
    if inputs["outages"]:
        print_text(
            f"{who}: keep {many(advice['spares'], 'spare node')} for {inputs['nodes']} "
            f"({advice['spares_low']} to {advice['spares_high']} within the rate's 95 % interval)"
        )
        print_text(f"{advice['expected_down']:.2f} nodes are down on average; this covers {confidence:.1%} of the time")
    else:
        print_text(
            f"{who}: how many spare nodes to keep for {inputs['nodes']} is not known: no unplanned outage is told of "
            f"{inputs['node_days']:.4g} node-days; up to {advice['spares_high']}, where a repair takes "
            f"{span(inputs['mttr_s'])}"
        )
    print_text()
    print_table(advice["curve"], ["nodes", "spares", "low", "high"])
    _print_basis(advice, ["formula", "source"], "outages per node-day")


@advise.command()
@DB_OPTION
@RUN_OPTION
@click.option("--target", type=click.FloatRange(0, 1, max_open=True), default=0.95, show_default=True)
@JSON_OPTION
def budget(url: str, run: str | None, target: float, as_json: bool) -> None:
    """The minutes that one failure may cost if the run is to reach a target goodput, and what it costs now."""
    from goodput.advice.reading import budget_advice, read_history

    with reading(url) as connection:
        advice = budget_advice(read_history(connection, run), target)
    if as_json:
        print_json(advice)
        return
    most = "" if advice["allowed_high_s"] is None else f" to {span(advice['allowed_high_s'])}"
    print_text(
        f"{advice['run']}: a goodput of {target:.1%} on {many(advice['nodes'], 'node')} "
        f"allows {span(advice['allowed_s'])} a failure "
        f"({span(advice['allowed_low_s'])}{most} within the rate's 95 % interval)"
    )
    sure = (
        "" if advice["spent_low_s"] is None else f" ({span(advice['spent_low_s'])} to {span(advice['spent_high_s'])})"
    )
    print_text(
        f"now a failure costs {span(advice['spent_s'])}{sure}: the target is {'met' if advice['met'] else 'missed'}"
    )
    print_text()
    print_table([{"part": part, "time": span(s)} for part, s in advice["parts_s"].items()], ["part", "time"])
    print_text()
    rows = [{"nodes": row["nodes"], "allowed": span(row["allowed_s"])} for row in advice["at_scale"]]
    print_table(rows, ["nodes", "allowed"])
    advice["inputs"] = {name: advice[name] for name in ("nodes", "failures", "node_days")}
    _print_basis(advice, ["formula", "source"], "failures per node-day")


@advise.command()
@DB_OPTION
@RUN_OPTION
@predictor_options
@click.option("--detection-s", type=_SECONDS, default=_AIMS.detection_s, show_default=True, help="Detection aimed at.")
@click.option(
    "--restart-s", type=_SECONDS, default=_AIMS.restart_s, show_default=True, help="Startup and load aimed at."
)
@click.option("--worst", type=click.IntRange(1), default=_AIMS.worst, show_default=True, help="Nodes taken out.")
@PRICE_OPTION
@JSON_OPTION
def gains(url: str, run: str | None, as_json: bool, **options: Any) -> None:
    """What each change would gain, ranked: detection, waiting, restart, saves, the worst nodes, prediction."""
    from goodput.advice.reading import gains_advice, priced, read_history

    aims = Aims(detection_s=options["detection_s"], restart_s=options["restart_s"], worst=options["worst"])
    predictor = predictor_from(options)
    with reading(url) as connection:
        found = priced(gains_advice(connection, read_history(connection, run), aims, predictor), options["price"])
    if as_json:
        print_json(found)
        return
    inputs = found["inputs"]
    print_text(
        f"{found['run']}: goodput {inputs['goodput_measured']:.2%}, by the formula {inputs['goodput_model']:.2%}"
    )
    print_text("each change alone, in points of goodput with its 95 % interval; together they gain less than their sum")
    print_text()
    for gain in found["gains"]:
        worth = gain.get("money_per_day")
        print_text(gain["says"] + (f", {_shown(worth)} a day" if worth else ""))
    print_text()
    print_table([{"input": name, "value": value} for name, value in inputs.items()], ["input", "value"])
    print_text(f"formula: {found['formula']}")
    print_text(f"source: {found['source']}")


@advise.command()
@DB_OPTION
@JSON_OPTION
def mtbf(url: str, as_json: bool) -> None:
    """The time between failures by component, with exact intervals, and whether it falls with the nodes as 1 / N."""
    from goodput.advice.reading import mtbf_advice

    with reading(url) as connection:
        advice = mtbf_advice(connection)
    if as_json:
        print_json(advice)
        return
    columns = ["component", "failures", "per_1000_node_days", "low", "high", "mtbf_h", "mtbf_low_h", "mtbf_high_h"]
    for part, words in (("runs", "stops of the runs"), ("cluster", "unplanned outages of the cluster")):
        if advice[part] is not None:
            nodes, days = advice[part]["nodes"], advice[part]["node_days"]
            print_text(f"{words}, {days:.4g} node-days; hours between two on {many(nodes, 'node')}")
            print_table(advice[part]["components"], columns)
            print_text()
    law = advice["scale_law"]
    if law is None:
        print_text("the law with scale: runs of at least two sizes and a failure are needed")
    else:
        verdict = "agrees with" if law["holds"] else "speaks against"
        exponent = f"{law['exponent']:.2f} ({law['low']:.2f} to {law['high']:.2f})"
        print_text(
            f"failures grow with nodes to the power {exponent}: {verdict} MTBF ~ 1 / N (p = {law['p_value']:.2g})"
        )
    print_text(f"formula: {advice['formula']}")
    print_text(f"source: {advice['source']}")


def _print_basis(advice: Mapping[str, Any], notes: Sequence[str], rate_name: str) -> None:
    """The inputs, the rate with its interval, the formula and its source."""
    print_text()
    rows = [{"input": name, "value": value} for name, value in advice["inputs"].items()]
    rows.append({"input": rate_name, "value": advice["rate_per_node_day"]})
    rows.append({"input": "  lowest, 95 %", "value": advice["rate_low"]})
    rows.append({"input": "  highest, 95 %", "value": advice["rate_high"]})
    print_table(rows, ["input", "value"])
    for name in notes:
        print_text(f"{name.replace('_', ' ')}: {advice[name]}")
