"""`foreshock hints ...`: what is asked of the scheduler, what holds it back, and your word on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, PRICE_OPTION, person, print_json, print_table, print_text
from cli.console.store import change_store, open_store
from store.records.event import format_time
from store.records.hint import OPEN_STATES, Hint, HintState

if TYPE_CHECKING:
    import sqlalchemy as sa

    from schedulers.lifecycle.hindsight import Hindsight, HintTally
    from store.hints.holds import SchedulerHold
    from store.hints.stops import Backlog, Trip
    from wire.money.price import GpuHourPrice

# `foreshock hints stop|resume|breaker`: what holds hints back, and your word on it.

_CONTROL_COLUMNS = ("seq", "time", "kind", "name", "count", "reset", "reset_by", "backlog", "why")
_MOST = 1000
_REASON = click.option("--reason", required=True, help="Why: the audit keeps it.")

T = TypeVar("T")


@click.command("stop")
@DB_OPTION
@click.option("--all", "everything", is_flag=True, help="Releases wait, too: hands off.")
@_REASON
def stop_command(url: str, everything: bool, reason: str) -> None:
    """Ask nothing new of any scheduler, at once; what is held may still be released."""
    from schedulers.lifecycle.operator_actions import set_switch

    stop = _carry_out(
        url, lambda connection, now: set_switch(connection, "all" if everything else "holds", reason, now, person())
    ).stop
    print_text(f"stopped: {stop}; `foreshock hints resume` lets it go on")


@click.command("resume")
@DB_OPTION
@_REASON
def resume_command(url: str, reason: str) -> None:
    """Let go on what was stopped here or over the API."""
    from schedulers.lifecycle.operator_actions import set_switch

    _carry_out(url, lambda connection, now: set_switch(connection, "none", reason, now, person()))
    print_text("the switch stops nothing any more; a stop file, or `stop` in the policy, still does where there is one")


@click.group("breaker")
def breaker_group() -> None:
    """Groups of nodes that called for a hold at once: nothing of them is held until you have looked."""


@breaker_group.command("list")
@DB_OPTION
@click.option("--all", "everything", is_flag=True, help="Those that were reset, too.")
@JSON_OPTION
def list_trips(url: str, everything: bool, as_json: bool) -> None:
    """List the breaker's trips, the newest first."""
    from store.hints.stops import trips_page

    engine = open_store(url)
    with engine.connect() as connection:
        found = [_control_row(trip) for trip in trips_page(connection, _MOST, in_force=not everything)]
    engine.dispose()
    if as_json:
        print_json(found)
    elif found:
        print_table(found, _CONTROL_COLUMNS)
    else:
        print_text("the breaker has never tripped" if everything else "the breaker has not tripped")


@breaker_group.command("reset")
@click.argument("seq", type=click.IntRange(1))
@DB_OPTION
@click.option(
    "--backlog",
    type=click.Choice(["drop", "review"]),
    required=True,
    help="Of the nodes that had called: let go of them, or have each wait for your yes.",
)
def reset_command(seq: int, url: str, backlog: Backlog) -> None:
    """End a trip."""
    from schedulers.lifecycle.operator_actions import reset_breaker

    trip = _carry_out(url, lambda connection, now: reset_breaker(connection, seq, backlog, now, person()))
    print_text(f"trip {trip.seq} of {trip.kind} {trip.name} is reset; backlog: {trip.backlog}")


def _control_row(trip: Trip) -> dict[str, Any]:
    times = {"time": format_time(trip.time), "reset": None if trip.reset is None else format_time(trip.reset)}
    return {**asdict(trip), **times}


# `foreshock hints deliveries` and `foreshock hints replay`: what receivers were sent, and once more by hand.

_DELIVERY_COLUMNS = ("time", "delivery", "outcome", "status", "duration_s", "detail")


@click.command("deliveries")
@click.argument("ident", metavar="[ID]", required=False)
@DB_OPTION
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Without an ID: so many.")
@JSON_OPTION
def deliveries_command(ident: str | None, url: str, limit: int, as_json: bool) -> None:
    """Show the attempts to deliver a hint (or the last ones of all), the oldest first, and what is still owed."""
    from store.hints.hint_log import read_hint
    from store.hints.outbox import attempts_of, deliveries_of, newest_attempts

    engine = open_store(url)
    with engine.connect() as connection:
        if ident is not None and read_hint(connection, ident) is None:
            raise Failure(f"no hint has the id {ident!r}: `foreshock hints list --state all` shows those there are")
        attempts = newest_attempts(connection, limit) if ident is None else attempts_of(connection, ident)
        owed = [] if ident is None else [one for one in deliveries_of(connection, ident) if one.state == "owed"]
    engine.dispose()
    rows = [asdict(one) | {"time": format_time(one.time), "duration_s": round(one.duration_s, 3)} for one in attempts]
    if as_json:
        print_json(rows)
        return
    if rows:
        print_table(rows, _DELIVERY_COLUMNS)
    else:
        print_text("no attempts")
    for one in owed:
        print_text(f"owed to {one.scheduler}: {one.id}, due {format_time(one.due)}")


@click.command("replay")
@click.argument("delivery")
@DB_OPTION
def replay_command(delivery: str, url: str) -> None:
    """Deliver once more, under the same webhook-id; the server does it within seconds."""
    from schedulers.lifecycle.operator_actions import redeliver

    # The mode is the server's to know: in shadow mode it sends nothing either way.
    made = _carry_out(url, lambda connection, now: redeliver(connection, delivery, now, person(), "approve"))
    print_text(f"{made.id} is owed to {made.scheduler} again")


# `foreshock hints validated|outcomes`: what a test said of a held node, and whether hints were right.

_TEST_COLUMNS = ("action", "basis", "judged", "right", "precision", "lead", "held GPU-h", "saved GPU-h")


@click.command("validated")
@click.argument("node")
@DB_OPTION
@click.option("--passed/--failed", "passed", default=None, help="What the node's test said.")
@click.option("--detail", default="", help="What was seen: kept with the result.")
def validated_command(node: str, url: str, passed: bool | None, detail: str) -> None:
    """Say that a held node has passed its test, or has not."""
    from schedulers.lifecycle.operator_actions import report_node

    if passed is None:
        raise click.UsageError("say what its test said: --passed or --failed")
    row = _carry_out(url, lambda connection, now: report_node(connection, node, (passed, detail), now, person()))
    after = "it is released once its healthy time is over" if passed else "it stays held"
    print_text(f"hint {row.hint} of node {node}: its test has {'passed' if passed else 'failed'}; {after}")


@click.command("outcomes")
@DB_OPTION
@click.option("--days", type=click.FloatRange(0.0, 3650.0, min_open=True), default=30.0, show_default=True)
@PRICE_OPTION
@JSON_OPTION
def outcomes_command(url: str, days: float, price: GpuHourPrice | None, as_json: bool) -> None:
    """Tell whether hints were right: those of shadow mode, and of nodes that nobody acted on."""
    from schedulers.lifecycle.hindsight import hindsight
    from wire.money.price import with_money

    now = datetime.now(UTC)
    engine = open_store(url)
    with engine.connect() as connection:
        found = hindsight(connection, now - timedelta(days=days), now)
    engine.dispose()
    if as_json:
        times = {"since": format_time(found.since), "until": format_time(found.until)}
        tallies = [with_money(asdict(one), price) for one in found.tallies]
        print_json({**asdict(found), "tallies": tallies, **times})
        return
    _print(found, days)
    _print_money(found, price)


def _print_money(found: Hindsight, price: GpuHourPrice | None) -> None:
    from wire.money.price import shown

    if price is None:
        return
    for one in found.tallies:
        held, saved = (shown(price.of(hours)) for hours in (one.held_gpu_h, one.saved_gpu_h))
        print_text(f"{one.action}, {one.basis}: held {held or '-'}, saved {saved or '-'}")


def _print(found: Hindsight, days: float) -> None:
    if not found.tallies:
        print_text(f"no hint of the last {days:g} days has been judged: that is done 24 h after it was made")
        return
    print_table([_test_row(tally) for tally in found.tallies], _TEST_COLUMNS)
    if found.false_holds_per_1000_node_days is not None:
        print_text()
        print_text(
            f"{found.false_holds_per_1000_node_days:.3g} false holds per 1000 node-days, over {found.node_days:.0f}"
        )
    if any(tally.basis == "acted" for tally in found.tallies):
        print_text("acted: a held node cannot show whether it would have failed; it counts for no precision")


def _test_row(tally: HintTally) -> dict[str, object]:
    reported = None if tally.precision is None else f"{tally.precision:.0%} ({tally.low:.0%} to {tally.high:.0%})"
    return {
        "action": tally.action,
        "basis": tally.basis,
        "judged": tally.judged,
        "right": tally.right,
        "precision": reported,
        "lead": None if tally.lead_s is None else f"{tally.lead_s / 3600:.1f} h",
        "held GPU-h": None if tally.unknown_held == tally.judged else f"{tally.held_gpu_h:.1f}",
        "saved GPU-h": None if tally.unknown_saved == tally.judged else f"{tally.saved_gpu_h:.1f}",
    }


_COLUMNS = ("id", "node", "action", "state", "schedulers", "created", "valid_until", "reason")
_PLACED = ("scheduler", "action", "state", "attempts", "detail")


@click.group()
def hints() -> None:
    """What Foreshock asks of the scheduler."""


_MORE = (stop_command, resume_command, breaker_group, validated_command, outcomes_command, deliveries_command)
for _command in (*_MORE, replay_command):
    hints.add_command(_command)


@hints.command("list")
@DB_OPTION
@click.option("--state", type=click.Choice(["open", "all", *get_args(HintState)]), default="open", show_default=True)
@click.option("--node", help="Of this node alone.")
@JSON_OPTION
def list_command(url: str, state: str, node: str | None, as_json: bool) -> None:
    """List hints, the oldest first."""
    from store.hints.hint_log import read_hints
    from store.hints.holds import holds_of

    states = {"open": OPEN_STATES, "all": None}.get(state, (state,))
    engine = open_store(url)
    with engine.connect() as connection:
        listed = read_hints(connection, states, node)
        placed = holds_of(connection, [hint.id for hint in listed])
    engine.dispose()
    found = [_hint_row(hint, placed.get(hint.id, ())) for hint in listed]
    if as_json:
        print_json(found)
    elif found:
        print_table([{**row, "schedulers": _hold_states(placed.get(str(row["id"]), ()))} for row in found], _COLUMNS)
    else:
        print_text("no hints" if state == "all" else f"no hints ({state}); --state all shows those that have ended")


@hints.command("approve")
@click.argument("ident", metavar="ID")
@DB_OPTION
def approve_command(ident: str, url: str) -> None:
    """Let a proposed hint be sent; a large approval needs another person, too."""
    from schedulers.lifecycle.approval import HintApprover, approve, given_of
    from schedulers.policy.kill_switch import effective_stop
    from schedulers.policy.settings import ApprovalRule, Policy, Stop
    from store.hints.policy_history import newest_policy_keys
    from wire.words.values import HELD_BACK, is_held_back

    def yes(connection: sa.Connection, now: datetime) -> tuple[Hint, Stop]:
        # Whether the server is in shadow mode is the server's to know: in that mode it sends nothing either way.
        keys = newest_policy_keys(connection)
        approval = ApprovalRule(keys.get("approval", {}).get("two_people_above_nodes"))
        stops = {"stop": keys.get("stop", "none"), "stop_file": Path(file) if (file := keys.get("stop_file")) else None}
        policy = Policy(mode="approve", approval=approval, **stops)
        who = HintApprover(person(), f"login:{person()}")
        return approve(connection, ident, now, who, policy), effective_stop(connection, policy)

    hint, stop = _carry_out(url, yes)
    if is_held_back(hint.state, hint.action, stop):
        print_text(f"{_named(hint)} is {HELD_BACK}: `foreshock hints resume` lets it go on")
        return
    _say([hint])
    if hint.state == "proposed":
        print_text(f"approved by {', '.join(each.by for each in given_of(hint))}: another person must approve it, too")


@hints.command("withdraw")
@click.argument("ident", metavar="ID")
@DB_OPTION
def withdraw_command(ident: str, url: str) -> None:
    """End a hint; a scheduler that took it is told to release the node."""
    from schedulers.lifecycle.operator_actions import withdraw

    _say(_carry_out(url, lambda connection, now: [withdraw(connection, ident, now, person())]))


@hints.command("release")
@click.argument("node")
@DB_OPTION
def release_command(node: str, url: str) -> None:
    """Say that a node is well: ends our open hints of it."""
    from schedulers.lifecycle.operator_actions import release_node
    from store.database.known_nodes import known_names
    from store.nodes.known_names import KnownNames
    from store.records.event import RecordError

    def release(connection: sa.Connection, now: datetime) -> list[Hint]:
        try:
            name = KnownNames(known_names(connection)).canonical(node)
        except RecordError as error:
            raise Failure(str(error)) from error
        return release_node(connection, name, now, person())

    _say(_carry_out(url, release))


def _carry_out(url: str, word: Callable[[sa.Connection, datetime], T]) -> T:
    from schedulers.lifecycle.approval import RequestRefusedError

    return change_store(url, word, RequestRefusedError)


def _say(changed: list[Hint]) -> None:
    for hint in changed:
        print_text(f"{_named(hint)} is {hint.state}")


def _named(hint: Hint) -> str:
    return f"hint {hint.id} of node {hint.node} ({hint.action})"


def _hint_row(hint: Hint, placements: Sequence[SchedulerHold]) -> dict[str, object]:
    times = {"created": format_time(hint.created), "valid_until": format_time(hint.valid_until)}
    placed = [{name: getattr(each, name) for name in _PLACED} for each in placements]
    return {**hint.to_row(), **times, "placements": placed}


def _hold_states(placements: Sequence[SchedulerHold]) -> str | None:
    """What each scheduler that is read back has of a hint, in few words; None where none was asked."""
    return ", ".join(f"{each.scheduler}: {each.state}" for each in placements) or None
