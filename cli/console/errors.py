"""How a command fails: in one sentence on stderr, with an exit code that programs can rely on."""

import sys
import traceback
from types import TracebackType

import click

from store.visible_text import visible_lines


class Failure(click.ClickException):
    """Bad usage or input: one sentence on stderr that names the file, line and remedy; exit 2."""

    exit_code = 2

    def format_message(self) -> str:
        """The sentence as a terminal may get it."""
        return indented(self.message)


class CheckFailed(click.ClickException):
    """A check that did not pass: exit 3."""

    exit_code = 3

    def format_message(self) -> str:
        """The sentence as a terminal may get it."""
        return indented(self.message)


def indented(text: str) -> str:
    """Text with nothing hidden in it. Further lines stand further in: none of them can pass for one of ours."""
    return visible_lines(text).replace("\n", "\n    ")


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python prints of an error that nobody caught, in place of `sys.excepthook`."""
    sys.stderr.write(indented("".join(traceback.format_exception(kind, error, trace)).rstrip("\n")) + "\n")
