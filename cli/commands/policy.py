"""`foreshock policy check`, `show`, `dry-run`: a policy tried before it is in force, and which ones were when."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import orjson

from cli.config.policy_table import check_policy_file, policy_of, read_yaml
from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, PRICE_OPTION, print_json, print_table, print_text
from cli.console.store import open_store
from schedulers.policy.settings import Policy, canonical, version_of
from schedulers.policy.thresholds import steps
from store.plural import many
from store.records.event import RecordError, format_time, parse_time

_FILE = click.argument("file", type=click.Path(path_type=Path))
_SIZES = (8, 256, 1024, 10_000)
_SAVINGS = (
    "policy",
    "averted",
    "averted_gpu_h",
    "saved_by_checkpoint_gpu_h",
    "saved_by_move_gpu_h",
    "held_gpu_h",
    "checkpoint_gpu_h",
    "moves_gpu_h",
    "net_gpu_h",
    "avoided_gpu_h",
)


@click.group()
def policy() -> None:
    """Try a policy, and see which was in force when."""


def read_policy_file(file: Path) -> Policy:
    """The policy of a file, as the server reads it.

    Raises:
        Failure: it cannot be read, or does not hold; names file and key.
    """
    table = read_yaml(file)
    check_policy_file(table, str(file))
    return policy_of(table, str(file))


@policy.command("check")
@_FILE
@JSON_OPTION
def check(file: Path, as_json: bool) -> None:
    """Read a policy file as the server does, and tell what it comes to; exit 2 where it does not hold."""
    found = read_policy_file(file)
    rows = [_thresholds(found, gpus) for gpus in _SIZES]
    if as_json:
        whole = orjson.loads(canonical(found))
        print_json({"file": str(file), "version": version_of(found), "policy": whole, "thresholds": rows})
        return
    print_text(f"{file} holds: version {version_of(found)}, mode {found.mode}")
    print_table(rows, ("job_gpus", "watch", "avoid", "checkpoint"))


def _thresholds(found: Policy, gpus: int) -> dict[str, Any]:
    limits = steps(found.thresholds, found.costs, gpus, found.costs.node_gpus)
    return {"job_gpus": gpus, **asdict(limits)}


@policy.command("show")
@DB_OPTION
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="The newest so many.")
@JSON_OPTION
def show(url: str, limit: int, as_json: bool) -> None:
    """Which policies came into force when, the newest first, and what each changed."""
    from store.hints.policy_history import policies_page

    engine = open_store(url)
    with engine.connect() as connection:
        rows = policies_page(connection, limit + 1)
    engine.dispose()
    texts = [orjson.loads(row["text"]) for row in rows]
    shown = [
        {
            "time": format_time(row["time"]),
            "version": row["version"],
            "mode": text.get("mode"),
            "changes": _changes(texts[place + 1], text) if place + 1 < len(texts) else [],
            "policy": text,
        }
        for place, (row, text) in enumerate(zip(rows, texts, strict=True))
    ][:limit]
    if as_json:
        print_json(shown)
        return
    print_table(
        [{**row, "changes": ", ".join(row["changes"])} for row in shown], ("time", "version", "mode", "changes")
    )


def _days(days: float) -> str:
    """Few with their tenths: of a young store they are the answer."""
    return f"{days:.0f}" if days >= 10 or days == int(days) else f"{days:.1f}"


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What is otherwise: `budgets.nodes 8 -> 4`."""
    before, after = _flat(old), _flat(new)
    keys = sorted({*before, *after})
    return [f"{key} {before.get(key)} -> {after.get(key)}" for key in keys if before.get(key) != after.get(key)]


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": it for inner, it in value.items()}
        else:
            found[key] = value
    return found


@policy.command("dry-run")
@_FILE
@DB_OPTION
@click.option("--since", help="From this time on. [default: 28 days before --until, or the oldest record]")
@click.option("--until", help="Before this time. [default: the newest record]")
@click.option(
    "--step-min", type=click.IntRange(1, 24 * 60), default=60, show_default=True, help="Minutes between decisions."
)
@click.option(
    "--scores",
    "scores_file",
    type=click.Path(path_type=Path),
    help="Scores of `foreshock backtest --horizon-h 24 --scores FILE` instead of those stored.",
)
@click.option("--avoid-takes", is_flag=True, help="A scheduler takes nodes for an avoid (Slurm's soft: reservation).")
@PRICE_OPTION
@JSON_OPTION
def dry_run(file: Path, url: str, as_json: bool, **given: Any) -> None:
    """What a policy would have asked over the stored history, whether it would have been right, and what it would
    have saved and taken.

    Nothing is written or sent. Every hint counts as carried out at once, and the breaker as reset by a person after a
    day. Beside it: no action, a cordon at every fatal Xid, and the policy without budgets, breaker and quorum.
    """
    from cli.config.policy_trial import TrialSpan, read_scores, try_policy
    from wire.money.price import with_money

    found = read_policy_file(file)
    requested = TrialSpan(
        _moment(given["since"], "--since"),
        _moment(given["until"], "--until"),
        timedelta(minutes=given["step_min"]),
        None if given["scores_file"] is None else read_scores(given["scores_file"]),
        given["avoid_takes"],
    )
    engine = open_store(url)
    try:
        with engine.connect() as connection:
            report = try_policy(connection, found, requested)
    finally:
        engine.dispose()
    for part in ("table", "savings"):
        report[part] = report[part] and [with_money(row, given["price"]) for row in report[part]]
    if as_json:
        print_json({"file": str(file), **report})
        return
    _print_trial(file, report)


def _print_trial(file: Path, report: Mapping[str, Any]) -> None:
    """The report for people."""
    print_text(
        f"{file}, version {report['version']}: {report['since']} to {report['until']}, "
        f"{many(report['moments'], 'decision')}"
    )
    days = _days(report["node_days"])
    print_text(f"{many(report['nodes'], 'node')}, {days} node-days, {many(report['outages'], 'unplanned outage')}")
    print_table(report["table"], ("policy", "asked", "count", "right", "false", "caught", "held_gpu_h", "lead_h_p50"))
    if report["savings"] is None:
        print_text("what it would have saved is not known: `foreshock goodput --db URL` makes the runs' ledgers first")
    else:
        first = report["savings"][0]
        unknown = f", {first['unknown']} of them of unknown size" if first["unknown"] else ""
        lost = f"{first['lost_gpu_h']:,.0f} GPU-hours{_in_money(first, 'lost_money')}"
        print_text(f"{many(first['interruptions'], 'interruption')} cost {lost}{unknown}")
        print_table(report["savings"], _SAVINGS)
        for row in report["savings"]:
            if "net_money" in row:
                print_text(f"{row['policy']}: net{_in_money(row, 'net_money')[1:]}")
    for row in report["held_back"]:
        print_text(f"held back: {row['count']} by {row['limit']}, as {row['example']}")
    for trip in report["trips"]:
        print_text(f"tripped: {trip['time']} {trip['why']}")


def _in_money(row: Mapping[str, Any], name: str) -> str:
    from wire.money.price import shown

    return f", {shown(row[name])}" if row.get(name) else ""


def _moment(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parse_time(text)
    except RecordError as error:
        raise Failure(f"{option}: {error}") from error
    return moment.astimezone(UTC)
