"""`foreshock health`: what a node's own health check asks, for Slurm's HealthCheckProgram and node health check (NHC).

HealthCheckProgram=/usr/local/sbin/foreshock-health        deploy/slurm/foreshock-health
"""

import os
import urllib.parse
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

import click
import orjson

from cli.console.errors import CheckFailed
from cli.console.output import print_text
from cli.console.server import access_of, open_api, server_options, what_failed
from collectors.ship.transport import ServerAccess
from schedulers.reconcile.actuator import Order, SchedulerAwayError
from schedulers.slurm.actuator import Slurm
from schedulers.slurm.commands import SlurmSettings
from schedulers.slurm.health import NodeHints, judge

# slurmd ends its HealthCheckProgram after 60 s.
_MOST_S = 25.0
_MOST_BYTES = 2**20
_MOST_HINTS = 50


@click.command()
@click.argument("node", envvar="SLURMD_NODENAME", required=False)
@server_options
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1, _MOST_S), default=10.0, show_default=True)
@click.option("--drain", is_flag=True, help="Drain it in Slurm (SLURM_CONF), and take our drain off once it is over.")
def health(
    node: str | None,
    server: str,
    timeout_s: float,
    drain: bool,
    insecure_http: bool,
    **files: Path | None,
) -> None:
    """Whether NODE (SLURMD_NODENAME) is to take no work: prints why and exits 3, else 0.

    A server or scheduler that does not answer is no fault of the node: exit 0, and a word on stderr.
    """
    name = node or os.uname().nodename.partition(".")[0]
    access = access_of(timeout_s, insecure_http, **files)
    try:
        found = judge(_hints(name, server, access), name, datetime.now(UTC))
    except (OSError, HTTPException, ValueError) as error:
        print_text(f"foreshock: nothing is known of {name}: {what_failed(error, server, access)}", err=True)
        return
    if drain:
        _settle(name, found, SlurmSettings(timeout_s=timeout_s, soft="mark"))
    if found.open is not None:
        print_text(f"ERROR:  foreshock:  {found.open.reason.removeprefix('foreshock:').strip()} id={found.open.hint}")
        click.get_current_context().exit(CheckFailed.exit_code)


def _hints(name: str, server: str, access: ServerAccess) -> object:
    """The items that the server tells of a node.

    Raises:
        OSError: it does not answer with them.
        ValueError: its answer is no JSON.
    """
    query = urllib.parse.urlencode({"node": name, "limit": _MOST_HINTS})
    with open_api(server, access, f"hints?{query}") as reply:
        answer = orjson.loads(reply.read(_MOST_BYTES))
    items = answer.get("items") if isinstance(answer, dict) else None
    if items == []:
        _check_known(name, server, access)
    return items


def _check_known(name: str, server: str, access: ServerAccess) -> None:
    """A node that is well has no hints, and neither has one whose name is wrong.

    Raises:
        OSError: the server has not heard of it, or does not answer.
    """
    try:
        open_api(server, access, f"nodes/{urllib.parse.quote(name, safe='')}/gpus").close()
    except HTTPError as error:
        if error.code != 404:
            raise
        raise OSError(f"the server knows no such node; {server}/api/v1/nodes lists those it knows") from None


def _settle(name: str, found: NodeHints, settings: SlurmSettings) -> None:
    """Bring this node to where the server wants it, by the same rules: read first, nothing of another's touched."""
    if found.open is None and not found.over:
        return
    slurm = Slurm(settings)
    try:
        orders = [found.open] if found.open is not None else _releases(name, found, slurm)
        for report in slurm.carry_out(orders):
            if report.result != "done":
                print_text(f"foreshock: {name} in Slurm: {report.result}: {report.detail}", err=True)
    except SchedulerAwayError as error:
        print_text(f"foreshock: Slurm does not answer: {error}", err=True)


def _releases(name: str, found: NodeHints, slurm: Slurm) -> list[Order]:
    held = slurm.look([name]).get(name)
    if held is None or held.hint not in found.over or held.action not in ("cordon", "drain"):
        return []
    return [Order(name, held.hint, "release", "foreshock: over", datetime.now(UTC))]
