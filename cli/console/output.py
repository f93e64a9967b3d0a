"""How commands print: JSON for programs, an aligned table for people."""

import getpass
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import orjson

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
DB_OPTION = click.option(
    "--db",
    "url",
    required=True,
    envvar="FORESHOCK_DB",
    help="Database: sqlite:///PATH or postgresql+psycopg://...",
)


def print_json(value: Any) -> None:
    """One JSON document, indented, on stdout."""
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))


def print_line(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Rows under their column names, aligned; an unknown value is a dash."""
    cells = [[name.upper().replace("_", " ") for name in columns]]
    cells += [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def span(seconds: float) -> str:
    """A length of time as people say it: 3d 04:05:06."""
    days, rest = divmod(round(seconds), 86_400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}d {clock}" if days else clock


# Who runs a command, for the audit.


def person() -> str:
    """The name of the user; `cli` where the machine knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"
