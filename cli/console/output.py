"""How commands print: JSON for programs, an aligned table for people. Nothing else of `cli` writes to the terminal.

Names and messages come from logs and requests of others: a control character in one is printed as an escape.
"""

import getpass
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
import orjson

from cli.console.errors import indented
from cli.console.secret_arguments import SecretOption
from store.visible_text import visible, visible_json


class PriceText(click.ParamType[Any]):
    """The price of a GPU-hour on the command line."""

    name = "price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """It as a `GpuHourPrice`."""
        from wire.money.price import parse_price

        try:
            return parse_price(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
DB_OPTION = click.option(
    "--db",
    "url",
    cls=SecretOption,
    required=True,
    envvar="FORESHOCK_DB",
    help="Database: sqlite:///PATH or postgresql+psycopg://...; a password belongs into FORESHOCK_DB_FILE.",
)

PRICE_OPTION = click.option(
    "--gpu-hour-price",
    "price",
    type=PriceText(),
    envvar="FORESHOCK_GPU_HOUR_PRICE",
    metavar="PRICE",
    help="What a GPU-hour costs, as 2.50 EUR: GPU-hours are told in money, too.",
)


def print_text(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """One line for people; a line break in it is that of a name or message, and printed as an escape."""
    click.echo(visible(text), err=err, nl=nl)


def print_json(value: Any) -> None:
    """One JSON document, indented, on stdout."""
    click.echo(visible_json(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)))


def print_line(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.buffer.write(visible_json(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Rows under their column names, aligned; an unknown value is a dash."""
    cells = [[name.upper().replace("_", " ") for name in columns]]
    cells += [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print_text("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))


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


class LogFormatter(logging.Formatter):
    """Log lines, one a message. The lines of a traceback are indented: none of them can pass for a message."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging calls it so
        """A message on one line."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging calls it so
        """A traceback."""
        return "    " + indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802  # logging calls it so
        """A stack."""
        return "    " + indented(super().formatStack(stack_info))


def log_to_stderr() -> None:
    """What no command has taken over, warnings and errors, is logged on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.getLogger().addHandler(handler)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal, told (done, whole) as often as there is news; None elsewhere."""
    stream = sys.stderr
    if not stream.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=stream) as bar:

        def progress(done: int, whole: int) -> None:
            bar.length = max(whole, 1)
            bar.update(done - bar.pos)

        yield progress
