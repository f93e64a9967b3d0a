"""`foreshock check`: tries the suspects of a verdict, or a node, by the site's own command; the result is evidence."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import CheckFailed, Failure
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text
from cli.console.store import open_store
from cli.replay.clock import real_clock
from schedulers.policy.settings import CHECK_NAMES

if TYPE_CHECKING:
    import sqlalchemy as sa

    from schedulers.lifecycle.active_check import CheckPlan, CheckResult


@click.command()
@click.argument("suspect", metavar="NODE|VERDICT")
@DB_OPTION
@click.option(
    "--config", type=click.Path(path_type=Path), envvar="FORESHOCK_CONFIG", help="The server's file: `checks`."
)
@click.option("--check", "name", type=click.Choice(CHECK_NAMES), help="Which one [default: by the kind of suspect].")
@click.option("--with-jobs", is_flag=True, help="Also nodes on which a job runs, which a check may disturb.")
@JSON_OPTION
def check(suspect: str, url: str, config: Path | None, name: str | None, with_jobs: bool, as_json: bool) -> None:
    """Try NODE, or the top suspects of VERDICT (its id), by the command that `checks` of the configuration names.

    What it says becomes an event that speaks for or against the verdict. Exits 3 where a check failed.
    """
    from cli.config.server import load_settings
    from diagnosis.incidents.intake import keep_found
    from schedulers.lifecycle.active_check import CheckRefusedError, begin_checks, end_check, run_checks
    from store.database.connections import transact
    from store.verdicts.verdict_log import verdict

    settings = load_settings(config, os.environ).checks
    settings = replace(settings, with_jobs=settings.with_jobs or with_jobs)
    engine, actor = open_store(url), f"cli:{getpass.getuser()}"

    def begin(connection: sa.Connection) -> CheckPlan:
        found = verdict(connection, suspect)
        return begin_checks(connection, found or suspect, settings, real_clock(), (actor, name))

    try:
        plan = transact(engine, begin)
    except CheckRefusedError as error:
        raise Failure(str(error)) from error
    for node, why in plan.left_out:
        print_text(f"{node} is not checked: {why}", err=True)
    results = []
    for result in run_checks(plan.requests, settings, real_clock):
        event = end_check(engine, actor, result)
        keep_found(engine, [] if event is None else [event], result.ended)
        results.append(result)
    rows = [_row(one) for one in results]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows, ["node", "check", "peer", "outcome", "exit_code", "said"])
    if any(one.result.passed is False for one in results):
        click.get_current_context().exit(CheckFailed.exit_code)


def _row(one: CheckResult) -> dict[str, Any]:
    from schedulers.lifecycle.active_check import last_line

    return {
        "node": one.request.node,
        "check": one.request.name,
        "peer": one.request.peer,
        "outcome": one.result.outcome,
        "exit_code": one.result.exit_code,
        "said": last_line(one),
        "verdict": one.request.verdict,
    }
