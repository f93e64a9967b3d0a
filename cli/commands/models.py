"""`foreshock models list|show|promote|retire|judge|checks`: which model serves, which are on trial, your word on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

import click

from cli.commands.predict import Moment
from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, person, print_json, print_table, print_text
from cli.console.store import change_store, open_store
from cli.processes.workers import BACKGROUND_OPTION
from predictor.live.trial_settings import TrialSettings
from store.plural import many
from store.records.event import format_time
from store.records.score import ModelRole

if TYPE_CHECKING:
    import sqlalchemy as sa

    from store.hints.check_log import CheckRecord

_COLUMNS = ("id", "horizon_h", "kind", "role", "trained_until", "average_precision", "drift", "why")
_DAYS = click.FloatRange(min=0.0)


@click.group()
def models() -> None:
    """Which models serve, which are on trial, and what they were made of; and how good each check is here."""


@models.command("list")
@DB_OPTION
@click.option("--role", type=click.Choice(get_args(ModelRole)), help="Of this role alone.")
@JSON_OPTION
def list_command(url: str, role: str | None, as_json: bool) -> None:
    """List models: those that serve first, then those on trial, then the newest of the others."""
    from store.models.registry import last_training, list_models

    engine = open_store(url)
    with engine.connect() as connection:
        found, last = list_models(connection, role), last_training(connection)
    engine.dispose()
    if as_json:
        print_json([_wire(model) for model in found])
        return
    if not found:
        print_text("no model yet: run `foreshock train`" if role is None else f"no model is {role}")
        return
    print_table([_row(model) for model in found], _COLUMNS)
    if last is not None:
        why = f": {last.detail['why']}" if last.detail.get("why") else ""
        print_text()
        print_text(f"the server's last training, {format_time(last.time)}: {last.outcome}{why}")


@models.command("show")
@click.argument("ident", metavar="ID")
@DB_OPTION
@JSON_OPTION
def show_command(ident: str, url: str, as_json: bool) -> None:
    """All that is known of one model: its data, its code, its figures, its trial, its drift."""
    from store.models.registry import list_models

    engine = open_store(url)
    with engine.connect() as connection:
        found = list_models(connection, ident=ident)
    engine.dispose()
    if not found:
        raise Failure(f"no model has the id {ident!r}: `foreshock models list` shows those there are")
    shown = _wire(found[0])
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        if isinstance(value, dict):
            print_text(f"{name}:")
            for inner, one in value.items():
                print_text(f"  {inner}: {one}")
        else:
            print_text(f"{name}: {value}")


@models.command("promote")
@click.argument("ident", metavar="ID")
@DB_OPTION
@click.option("--why", default="promoted by hand", show_default=True, help="For the audit.")
def promote_command(ident: str, url: str, why: str) -> None:
    """Have a model serve; the champion of its horizon is retired."""
    from store.models.registry import give_role

    _carry_out(url, lambda connection, now: give_role(connection, ident, "champion", why, person(), now))
    print_text(f"model {ident} is the champion")


@models.command("retire")
@click.argument("ident", metavar="ID")
@DB_OPTION
@click.option("--why", default="retired by hand", show_default=True, help="For the audit.")
def retire_command(ident: str, url: str, why: str) -> None:
    """Take a model out of use; a champion cannot be: promote another one."""
    from store.models.registry import retire

    _carry_out(url, lambda connection, now: retire(connection, ident, why, person(), now))
    print_text(f"model {ident} is out of use")


@models.command("judge")
@DB_OPTION
@click.option("--at", type=Moment(), metavar="T", help="As of this time [default: now].")
@click.option("--every-h", type=_DAYS, default=TrialSettings().every_h, show_default=True, help="Hours a scoring.")
@click.option("--least-days", type=_DAYS, default=TrialSettings().least_days, show_default=True)
@click.option("--most-days", type=_DAYS, default=TrialSettings().most_days, show_default=True)
@click.option("--least-outages", type=click.IntRange(0), default=TrialSettings().least_outages, show_default=True)
@click.option("--sure", type=click.FloatRange(0.0, 1.0), default=TrialSettings().sure, show_default=True)
@click.option("--keep-days", type=_DAYS, default=TrialSettings().keep_days, show_default=True)
@click.option("--calibration-days", type=_DAYS, default=TrialSettings().calibration_days, show_default=True)
@BACKGROUND_OPTION
@JSON_OPTION
def judge_command(
    url: str, at: datetime | None, background: tuple[int, int] | None, as_json: bool, **chosen: Any
) -> None:
    """Have every model score beside the champion, and judge them by what came; the server does so by itself."""
    from cli.processes.workers import give_way
    from predictor.live.trial import judge, score_beside
    from predictor.model.forest import ModelError

    if background is not None:
        give_way(*background)
    settings, now = TrialSettings(**chosen), at or datetime.now(UTC)
    engine = open_store(url)
    try:
        count = score_beside(engine, now, settings)
        found = [{"model": one.model, "outcome": one.outcome, "why": one.why} for one in judge(engine, now, settings)]
    except ModelError as error:
        raise Failure(str(error)) from error
    finally:
        engine.dispose()
    if as_json:
        print_json({"scored": count, "verdicts": found})
        return
    print_text(f"{many(count, 'model')} scored" if count else "no scoring is due")
    if found:
        print_table(found, ("model", "outcome", "why"))


@models.command("checks")
@DB_OPTION
@click.option("--source", help="Of this source alone: kernel, dcgm, nhc, model ...")
@JSON_OPTION
def checks_command(url: str, source: str | None, as_json: bool) -> None:
    """What each check said of nodes within a year, what came of it, and of how many nodes it was right."""
    from store.hints.check_log import check_records

    engine = open_store(url)
    with engine.connect() as connection:
        found = [_check_row(one) for one in check_records(connection) if source in (None, one.tally.source)]
    engine.dispose()
    if as_json:
        print_json(found)
    elif found:
        print_table(found, _CHECK_COLUMNS)
    else:
        print_text(
            "no check has a record yet: the server makes them of what checks say and what comes within seven days"
        )


def _check_row(record: CheckRecord) -> dict[str, Any]:
    tally = asdict(record.tally)
    del tally["right"], tally["wrong"]
    share = {name: round(getattr(record, name), 4) for name in ("precision", "low", "high")}
    return {**tally, **share, "last": format_time(record.tally.last)}


_CHECK_COLUMNS = (
    *("source", "name", "nodes", "said", "followed", "cleared", "contradicted", "unknown", "waiting"),
    *("precision", "low", "high", "last"),
)


def _carry_out(url: str, change: Callable[[sa.Connection, datetime], None]) -> None:
    from store.models.registry import RoleError

    change_store(url, change, RoleError)


def _wire(model: dict[str, Any]) -> dict[str, Any]:
    times = {name: None if model[name] is None else format_time(model[name]) for name in _TIMES}
    return {**model, **times}


_TIMES = ("created", "trained_until", "since")


def _row(model: dict[str, Any]) -> dict[str, Any]:
    holdout = model["metrics"].get("holdout") or {}
    drift = model["checks"].get("drift", {}).get("state")
    return {**_wire(model), "average_precision": holdout.get("average_precision"), "drift": drift}
