"""`foreshock doctor`: checks this installation and says what is wrong, and what to do about it."""

import http.client
import os
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import click

from cli.console.errors import CheckFailed, Failure
from cli.console.output import JSON_OPTION, print_json, print_table
from cli.console.secret_arguments import SecretOption
from store.plural import many
from store.records import fault_catalog

_EXTRAS = {
    "server": ("alembic", "fastapi", "pandas", "psycopg", "pyarrow", "scikit-learn", "sqlalchemy", "uvicorn"),
    "dashboard": ("plotly", "streamlit"),
}
_MIN_FREE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `ok`, `absent` (not here, and that may be meant), or `wrong`."""

    check: str
    result: Literal["ok", "absent", "wrong"]
    detail: str


def installation() -> Iterator[Check]:
    """Python, the packages of each extra, the shipped tables."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", "ok" if sys.version_info >= (3, 11) else "wrong", f"{version}, 3.11 or newer is needed")
    for extra, packages in _EXTRAS.items():
        missing = [name for name in packages if not _version(name)]
        if missing:
            yield Check(
                f"extra {extra}",
                "absent",
                f"without {', '.join(missing)}: install foreshock[{extra}] where it is needed",
            )
        else:
            yield Check(f"extra {extra}", "ok", ", ".join(f"{name} {_version(name)}" for name in packages))
    known = fault_catalog.xid(79), fault_catalog.sxid(24007), fault_catalog.nvlink5()
    yield Check("fault catalogues", "ok" if all(known) else "wrong", "Xid, SXid and NVLink 5 tables are readable")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def sources() -> Iterator[Check]:
    """What the sidecar could read on this host."""
    if os.access("/dev/kmsg", os.R_OK):
        yield Check("kernel log", "ok", "/dev/kmsg is readable")
    else:
        remedy = "run the sidecar with CAP_SYSLOG, or use --source journal as a member of systemd-journal"
        yield Check("kernel log", "absent", f"/dev/kmsg is not readable: {remedy}")
    ports = sorted(str(path) for path in Path("/sys/class/infiniband").glob("*/ports/*"))
    yield Check("infiniband", "ok" if ports else "absent", ", ".join(ports) or "no port under /sys/class/infiniband")
    free = shutil.disk_usage(Path.cwd()).free
    enough = free >= _MIN_FREE_BYTES
    yield Check("disk", "ok" if enough else "wrong", f"{free / (1 << 30):.1f} GiB free here, 1 GiB is the least")


def sidecar_sources(file: Path) -> Iterator[Check]:
    """Each source of a sidecar's configuration: whose word it is, and why; wrong where it can give nothing for that.

    Raises:
        Failure: the configuration cannot be used.
    """
    from cli.config.sidecar import load, settings_from
    from collectors.trust import gives_nothing

    for source in settings_from({}, load(file), os.environ).list_sources():
        found = source.source_trust()
        name = gives_nothing(source.spec, found.trust, source.format)
        lost = f"; so nothing of the format {name} is taken from it" if name else ""
        yield Check(f"source {source.spec}", "wrong" if name else "ok", f"trust {found.trust}: {found.why}{lost}")


def database(url: str) -> Check:
    """Whether the database answers and its schema is this program's."""
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.connections import DatabaseError, masked, newest_revision, open_database, revision, too_new
    from store.database.integrity import remedy

    try:
        at = revision(open_database(url, create=False))
    except (DatabaseError, SQLAlchemyError) as error:
        return Check("database", "wrong", remedy(error) or str(error).splitlines()[0])
    if (newer := too_new(at)) is not None:
        return Check("database", "wrong", newer)
    if at != newest_revision():
        return Check(
            "database", "wrong", f"schema {at or 'nothing yet'}: run `foreshock db migrate --db {masked(url)}`"
        )
    return Check("database", "ok", f"schema {at}")


def stored(url: str) -> list[Check]:
    """The database; and what it holds, where it is in order: else each further line would say the same again."""
    found = database(url)
    return [found] if found.result != "ok" else [found, inventory(url), models(url)]


def inventory(url: str) -> Check:
    """Whether anybody says which nodes there are, and who speaks that nobody names."""
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.connections import DatabaseError, open_database
    from store.database.known_nodes import count_known, count_unknown

    try:
        with open_database(url, create=False).connect() as connection:
            known, unknown = count_known(connection), count_unknown(connection)
    except (DatabaseError, SQLAlchemyError) as error:
        return Check("inventory", "wrong", str(error).splitlines()[0])
    if not known:
        remedy = "set `inventory: {nodes: ...}`, configure the scheduler, or load nodes.csv"
        return Check(
            "inventory",
            "absent",
            f"nobody says which nodes there are: each that speaks counts, none is held without approval; {remedy}",
        )
    named = ", ".join(f"{count} by {word}" for word, count in known.items())
    if unknown:
        return Check(
            "inventory",
            "wrong",
            f"{named}; {many(unknown, 'node speaks', 'nodes speak')} that it does not know: "
            "GET /api/v1/nodes?state=unknown lists them",
        )
    return Check("inventory", "ok", named)


def models(url: str) -> Check:
    """Whether there is a model, and whether it can be trusted."""
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.connections import DatabaseError, open_database
    from store.models.registry import model_trouble

    try:
        with open_database(url, create=False).connect() as connection:
            trouble = model_trouble(connection)
    except (DatabaseError, SQLAlchemyError) as error:
        return Check("models", "wrong", str(error).splitlines()[0])
    if trouble is None:
        return Check("models", "ok", "they look as when they were trained")
    return Check("models", "absent" if trouble.startswith("none yet") else "wrong", trouble)


def server(url: str) -> Check:
    """Whether the API is ready."""
    ready = f"{url.rstrip('/')}/readyz"
    if not ready.startswith(("http://", "https://")):
        return Check("server", "wrong", f"{url!r} is no address: write http://HOST:PORT")
    try:
        with urllib.request.urlopen(ready, timeout=5.0) as answer:  # noqa: S310  # the scheme is checked above
            return Check("server", "ok", f"{ready} says {answer.status}")
    except (OSError, http.client.HTTPException) as error:
        return Check("server", "wrong", f"{ready}: {error}; is `foreshock serve` running there?")


def server_tokens(file: Path) -> Check:
    """Whether a server's configuration says of which nodes each token speaks."""
    from cli.config.server import load_settings
    from cli.config.tokens import unbound

    try:
        tokens = load_settings(file, os.environ).tokens
    except Failure as error:
        return Check("tokens", "wrong", error.message)
    if names := unbound(tokens):
        detail = f"{', '.join(names)} may report faults of every node: write `node:` there (docs/tokens.md)"
        return Check("tokens", "wrong", detail)
    if not tokens:
        return Check("tokens", "ok", f"{file} has none; `foreshock token list` shows those of the database")
    return Check("tokens", "ok", f"{file}: each says of which nodes it speaks")


@click.command()
@click.option("--db", "db_url", cls=SecretOption, envvar="FORESHOCK_DB", help="Also check this database.")
@click.option("--server", "server_url", help="Also check this API.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="Also each source of this sidecar's file.")
@click.option("--server-config", "server_file", type=click.Path(path_type=Path), help="Also the tokens of it.")
@JSON_OPTION
def doctor(
    db_url: str | None, server_url: str | None, file: Path | None, server_file: Path | None, as_json: bool
) -> None:
    """Check this installation and say what is wrong. Exit 3 if anything is."""
    found = [*installation(), *sources(), *(sidecar_sources(file) if file is not None else ())]
    found += stored(db_url) if db_url is not None else []
    found += [server(server_url)] if server_url is not None else []
    found += [server_tokens(server_file)] if server_file is not None else []
    rows = [asdict(check) for check in found]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ("check", "result", "detail"))
    if wrong := [check.check for check in found if check.result == "wrong"]:
        raise CheckFailed(f"not in order: {', '.join(wrong)}; see the table above")
