"""How a command fails: in one sentence on stderr, with an exit code that programs can rely on."""

import click


class Failure(click.ClickException):
    """Bad usage or input: one sentence on stderr that names the file, line and remedy; exit 2."""

    exit_code = 2


class CheckFailed(click.ClickException):
    """A check that did not pass: exit 3."""

    exit_code = 3
