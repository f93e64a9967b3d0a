"""`foreshock check`: tries the suspects of a verdict, or a node, by the site's own command; the result is evidence."""

from __future__ import annotations

import getpass
import hashlib
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

    from schedulers.lifecycle.active_check import CheckRequest, CheckResult
    from store.records.event import Event

_MOST_SAID = 400
# The events of which cause a failure is, by the device that was tried.
_VARIANTS = {"gpu": "gpu", "hca": "fabric", "nic": "fabric", "port": "fabric"}


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
    from schedulers.lifecycle.active_check import CheckRefusedError, plan_checks, run_checks
    from store.verdicts.verdict_log import verdict

    settings = load_settings(config, os.environ).checks
    settings = replace(settings, with_jobs=settings.with_jobs or with_jobs)
    engine = open_store(url)
    try:
        with engine.connect() as connection:
            found = verdict(connection, suspect)
            plan = plan_checks(connection, found or suspect, settings, real_clock(), name)
    except CheckRefusedError as error:
        raise Failure(str(error)) from error
    for node, why in plan.left_out:
        print_text(f"{node} is not checked: {why}", err=True)
    actor = f"cli:{getpass.getuser()}"
    _audit(engine, actor, [("begun", one, {"command": " ".join(one.words)}) for one in plan.requests])
    results = []
    for result in run_checks(plan.requests, settings, real_clock):
        keep_result(engine, actor, result)
        results.append(result)
    rows = [_row(one) for one in results]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows, ["node", "check", "peer", "outcome", "exit_code", "said"])
    if any(one.result.passed is False for one in results):
        click.get_current_context().exit(CheckFailed.exit_code)


def _row(one: CheckResult) -> dict[str, Any]:
    said = one.result.output.strip().splitlines()[-1:] or [""]
    return {
        "node": one.request.node,
        "check": one.request.name,
        "peer": one.request.peer,
        "outcome": one.result.outcome,
        "exit_code": one.result.exit_code,
        "said": said[0][-_MOST_SAID:],
        "verdict": one.request.verdict,
    }


def keep_result(engine: sa.Engine, actor: str, result: CheckResult) -> None:
    """Store what a check said as evidence, for incidents and verdicts, and in the audit who asked for it."""
    from diagnosis.incidents.intake import put_faults
    from store.database.connections import writing
    from store.events.append import append_events

    event = event_of(result)
    if event is not None:
        with writing(engine).begin() as connection:
            new = append_events(connection, [event], received=result.ended, note_nodes=False).new
            put_faults(connection, new, received=result.ended)
    detail = {"exit_code": result.result.exit_code, "output": result.result.output.strip()[-200:]}
    _audit(engine, actor, [(result.result.outcome, result.request, detail)])


def event_of(result: CheckResult) -> Event | None:
    """What a check says of its node; nothing where it could not be made, or was put off."""
    from store.records.event import Event
    from store.records.fault_catalog import with_kind_meaning

    asked, passed = result.request, result.result.passed
    if passed is None:
        return None
    said = result.result.output.strip().splitlines()[-1:] or [""]
    attributes: dict[str, Any] = {"check": asked.name, "exit_code": result.result.exit_code}
    attributes |= {"peer": asked.peer, "verdict": asked.verdict}
    ident = f"{asked.name} {asked.node} {asked.device.key()} {result.ended.isoformat()}"
    event = Event(
        time=result.ended,
        node=asked.node,
        source="check",
        kind="check_passed" if passed else "check_failed",
        device=asked.device,
        message=f"{asked.name}: {result.result.outcome}: {said[0]}"[:_MOST_SAID],
        attributes={key: value for key, value in attributes.items() if value is not None},
        id=hashlib.blake2b(ident.encode(), digest_size=12).hexdigest(),
    )
    return with_kind_meaning(event, "" if passed else _VARIANTS.get(asked.device.type, ""))


def _audit(engine: sa.Engine, actor: str, said: list[tuple[str, CheckRequest, dict[str, Any]]]) -> None:
    """A row for each step of each check."""
    from store.database.audit_chain import AuditEntry, append_audit
    from store.database.connections import writing

    now = real_clock()
    entries = [
        AuditEntry(
            now,
            actor,
            f"check {word}",
            one.verdict or one.node,
            {"node": one.node, "check": one.name, "peer": one.peer, **detail},
        )
        for word, one, detail in said
    ]
    if entries:
        with writing(engine).begin() as connection:
            append_audit(connection, entries)
