"""`foreshock goodput` and `foreshock advise`: where the hours went, and what to change."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from cli.errors import Failure
from cli.open import open_store
from cli.output import DB_OPTION, JSON_OPTION, print_json, print_table
from goodput.ledger import Ledger
from goodput.reading import NoRecordsError, checkpoint_advice, no_such_run, read_ledgers, spares_advice
from store.event import RecordError, parse_time

RUN_OPTION = click.option("--run", help="Only this training run.")


@click.command()
@DB_OPTION
@RUN_OPTION
@click.option("--until", metavar="T", help="Account as of this time (RFC 3339): what came later is left out.")
@JSON_OPTION
def goodput(url: str, run: str | None, until: str | None, as_json: bool) -> None:
    """Split each run's wall time into buckets that sum to it exactly, and price each interruption."""
    try:
        moment = None if until is None else parse_time(until)
    except RecordError as error:
        raise Failure(f"--until: {error}") from error
    with open_store(url).begin() as connection:
        ledgers = read_ledgers(connection, run, moment)
        if not ledgers:
            raise Failure(no_such_run(connection, run))
    if as_json:
        print_json([ledger.to_json() for ledger in ledgers])
        return
    for i, ledger in enumerate(ledgers):
        if i:
            click.echo()
        _print_ledger(ledger)


def _print_ledger(ledger: Ledger) -> None:
    """One run for people: its span, its buckets, its interruptions."""
    told = ledger.to_json()
    share = "unknown" if ledger.goodput is None else f"{ledger.goodput:.2%}"
    span = f"{told['start']} to {told['end']}" if ledger.dated else "no date known"
    click.echo(f"{ledger.run}: goodput {share} of {_span(told['wall_s'])} ({span})")
    click.echo(f"{told['nodes'] or '?'} nodes, {told['gpus'] or '?'} GPUs, {ledger.attempts} attempts")
    wall = ledger.wall_ms or 1
    shares = [
        {"bucket": bucket, "time": _span(seconds), "share": f"{seconds * 1000 / wall:.2%}"}
        for bucket, seconds in told["buckets"].items()
        if seconds
    ]
    print_table(shares, ["bucket", "time", "share"])
    if told["interruptions"]:
        click.echo()
        print_table([_interruption_row(one) for one in told["interruptions"]], ["time", "cause", "culprit", "lost"])


def _interruption_row(told: Mapping[str, Any]) -> dict[str, Any]:
    culprit = told["culprit"]
    name = None
    if culprit is not None:
        port = None if culprit["port"] is None else f"port {culprit['port']}"
        code = culprit["kind"] if culprit["code"] is None else f"{culprit['kind']} {culprit['code']}"
        where = culprit["pci"] or culprit["uuid"] or culprit["index"]
        name = " ".join(str(x) for x in (culprit["node"], culprit["type"], where, port, f"({code})") if x is not None)
    return {"time": told["time"][:19] + "Z", "cause": told["cause"], "culprit": name, "lost": _span(told["lost_s"])}


def _span(seconds: float) -> str:
    """A length of time as people say it: 3d 04:05:06."""
    days, rest = divmod(round(seconds), 86_400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}d {clock}" if days else clock


@click.group()
def advise() -> None:
    """What to change, with the measured inputs and the formula."""


@advise.command()
@DB_OPTION
@RUN_OPTION
@JSON_OPTION
def checkpoint(url: str, run: str | None, as_json: bool) -> None:
    """The checkpoint interval that loses least, from measured failures, save stalls and restarts."""
    with open_store(url).begin() as connection:
        try:
            told = checkpoint_advice(connection, run)
        except (NoRecordsError, ValueError) as error:
            raise Failure(str(error)) from error
    if as_json:
        print_json(told)
        return
    click.echo(f"{told['run']}: save every {_span(told['interval_s'])} ({_range(told)})")
    now = told["inputs"]["interval_s"]
    if now is not None and told["goodput_now"] is not None:
        click.echo(f"now every {_span(now)}: goodput expected {told['goodput_now']:.2%}")
    click.echo(f"then: goodput expected {told['goodput_advised']:.2%}")
    rate = "measured" if told["rate_is_measured"] else "no failure seen yet: a published rate, FIELD D7"
    _print_basis(told, ["formula", "goodput_formula", "source"], f"failures per node-day ({rate})")


def _range(told: Mapping[str, Any]) -> str:
    return (
        f"{_span(told['interval_shortest_s'])} to {_span(told['interval_longest_s'])} within the rate's 95 % interval"
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
    with open_store(url).begin() as connection:
        try:
            told = spares_advice(connection, confidence, run)
        except (NoRecordsError, ValueError) as error:
            raise Failure(str(error)) from error
    if as_json:
        print_json(told)
        return
    who = f"run {run!r}" if run else "the cluster"
    click.echo(
        f"{who}: keep {told['spares']} spare nodes for {told['inputs']['nodes']} "
        f"({told['spares_low']} to {told['spares_high']} within the rate's 95 % interval)"
    )
    click.echo(f"{told['expected_down']:.2f} nodes are down on average; this covers {confidence:.1%} of the time")
    _print_basis(told, ["formula", "source"], "outages per node-day")


def _print_basis(told: Mapping[str, Any], notes: Sequence[str], rate_name: str) -> None:
    """The inputs, the rate with its interval, the formula and its source."""
    click.echo()
    rows = [{"input": name, "value": value} for name, value in told["inputs"].items()]
    rows.append({"input": rate_name, "value": told["rate_per_node_day"]})
    rows.append({"input": "  lowest, 95 %", "value": told["rate_low"]})
    rows.append({"input": "  highest, 95 %", "value": told["rate_high"]})
    print_table(rows, ["input", "value"])
    for name in notes:
        click.echo(f"{name.replace('_', ' ')}: {told[name]}")
