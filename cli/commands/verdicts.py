"""`foreshock verdicts`: what the server holds to be the cause of what is seen, as a list or as it changes."""

import time
import urllib.parse
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import click
import orjson

from cli.console.errors import Failure
from cli.console.output import JSON_OPTION, print_json, print_line, print_table, print_text
from cli.console.server import access_of, open_api, server_options, what_failed
from collectors.ship.transport import ServerAccess

_STATES = ("open", "revised", "explained", "closed")
_STANDING = ("open", "revised")
_COLUMNS = ["rank", "probability", "class", "name", "state", "since", "nodes", "reason"]
# A stream that says nothing for so long, not even its heartbeat of 15 s, is cut: the way is broken.
_SILENT_S = 45.0
_AGAIN_S = 2.0
_MOST_BYTES = 64 * 2**20


@click.command()
@server_options
@click.option("--state", type=click.Choice(_STATES), help="Only these; `open`: all that stand.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="The newest so many.")
@click.option("--watch", is_flag=True, help="What stands, then each change as it comes, until Ctrl-C.")
@JSON_OPTION
def verdicts(
    server: str, state: str | None, limit: int, watch: bool, as_json: bool, insecure_http: bool, **files: Path | None
) -> None:
    """List the verdicts of a server, the newest last, or watch them change.

    With --watch and --json each change is one line. A server that goes away is asked again, from where it ended.
    """
    access = access_of(_SILENT_S, insecure_http, **files)
    if watch:
        for change in _changes(server, access):
            if state is None or change["state"] == state or (state == "open" and change["state"] in _STANDING):
                print_line(change) if as_json else print_text(_sentence(change))
        return
    query = {"limit": str(limit)} | ({} if state is None else {"state": state})
    try:
        with open_api(server, access, f"verdicts?{urllib.parse.urlencode(query)}") as reply:
            found = orjson.loads(reply.read(_MOST_BYTES))["items"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        raise Failure(what_failed(error, server, access)) from error
    if as_json:
        print_json(found)
    else:
        print_table([_row(one) for one in found], _COLUMNS)


def _row(one: dict[str, Any]) -> dict[str, Any]:
    return one | {
        "probability": f"{one['probability']:.2f}",
        "since": one["since"][:19] + "Z",
        "nodes": len(one["nodes"]),
    }


def _sentence(one: dict[str, Any]) -> str:
    """One change in a line."""
    cause = f"{one['class']} {one['name']}"
    return f"{one['state']} {one['probability']:.2f} {cause}: {one['what']}: {one['reason']} [{one['id']}]"


def _changes(server: str, access: ServerAccess) -> Iterator[dict[str, Any]]:
    """What stands, then every change, over whatever comes between; the first connection must succeed."""
    last: str | None = None
    heard = False
    while True:
        try:
            with open_api(server, access, "verdicts/stream", {} if last is None else {"Last-Event-ID": last}) as reply:
                heard = True
                for ident, change in stream_events(reply):
                    last = ident
                    yield change
            print_text("foreshock: the server ended the stream; asking again", err=True)
        except (OSError, HTTPException, ValueError) as error:
            refused = isinstance(error, HTTPError) and error.code < 500 and error.code != 429
            why = what_failed(error, server, access)
            if refused or not heard:
                raise Failure(why) from error
            print_text(f"foreshock: {why}; asking again", err=True)
        time.sleep(_AGAIN_S)


def stream_events(reply: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """The number and the data of each event of a stream of server-sent events, up to its end.

    Raises:
        OSError: it was cut.
        ValueError: it holds what is none.
    """
    ident, data = "", b""
    while line := reply.readline(_MOST_BYTES):
        if not line.endswith(b"\n"):
            raise ConnectionError("the stream was cut within a line")
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id":
            ident = value.decode("ascii")
        elif name == b"data":
            data += value
        elif not name and not value:
            if data:
                yield ident, orjson.loads(data)
            data = b""
