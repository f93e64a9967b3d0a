"""`foreshock health`: what a node's own health check asks, for Slurm's HealthCheckProgram and node health check (NHC).

HealthCheckProgram=/usr/local/sbin/foreshock-health        deploy/slurm/foreshock-health
"""

import os
import ssl
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path

import click
import orjson

from cli.console.errors import CheckFailed, Failure
from cli.console.output import print_text
from collectors.ship.transport import ServerAccess
from schedulers.reconcile.actuator import Order, SchedulerAwayError
from schedulers.slurm.actuator import Slurm
from schedulers.slurm.commands import SlurmSettings
from schedulers.slurm.health import NodeHints, judge
from wire.access.address import INSECURE_OPTION, token_opener

_PATH = click.Path(path_type=Path)
# slurmd ends its HealthCheckProgram after 60 s.
_MOST_S = 25.0
_MOST_BYTES = 2**20
_MOST_HINTS = 50


@click.command()
@click.argument("node", envvar="SLURMD_NODENAME", required=False)
@click.option("--server", envvar="FORESHOCK_SERVER", required=True, help="The server, such as https://foreshock:18200.")
@click.option("--token-file", type=_PATH, envvar="FORESHOCK_TOKEN_FILE", help="File with a token of scope `read`.")
@click.option("--ca-file", type=_PATH, envvar="FORESHOCK_CA_FILE", help="Authorities to trust for https.")
@click.option("--cert-file", type=_PATH, envvar="FORESHOCK_CERT_FILE", help="Client certificate (and key) in PEM.")
@click.option("--key-file", type=_PATH, envvar="FORESHOCK_KEY_FILE", help="The client certificate's key.")
@click.option(
    "--insecure-http", is_flag=True, envvar="FORESHOCK_INSECURE_HTTP", help="Send the token over http:// too."
)
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
    certificates = (files["ca_file"], files["cert_file"], files["key_file"])
    access = ServerAccess(files["token_file"], timeout_s, *certificates, insecure_http=insecure_http)
    if (why := access.refusal(server)) is not None:
        raise Failure(f"--server: {why}; or {INSECURE_OPTION}, where a mesh or tunnel encrypts the way")
    try:
        found = judge(_hints(name, server, access), name, datetime.now(UTC))
    except (OSError, HTTPException, ValueError) as error:
        print_text(f"foreshock: nothing is known of {name}: {error}", err=True)
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
    if not server.startswith(("http://", "https://")):
        raise Failure(f"--server {server}: expected an address such as https://foreshock:18200")
    query = urllib.parse.urlencode({"node": name, "limit": _MOST_HINTS})
    request = urllib.request.Request(f"{server.rstrip('/')}/api/v1/hints?{query}")  # noqa: S310 - http or https
    if access.token_file is not None:
        request.add_header("Authorization", f"Bearer {access.token_file.read_text(encoding='utf-8').strip()}")
    context = ssl.create_default_context(cafile=access.ca_file) if server.startswith("https://") else None
    if context is not None and access.cert_file is not None:
        context.load_cert_chain(access.cert_file, access.key_file)
    with token_opener(context).open(request, timeout=access.timeout_s) as reply:
        answer = orjson.loads(reply.read(_MOST_BYTES))
    return answer.get("items") if isinstance(answer, dict) else None


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
