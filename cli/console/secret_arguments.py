"""Passwords of the command line: read out of a file where they can be, and hidden from who lists the processes.

    DB_OPTION = click.option("--db", cls=SecretOption, envvar="FORESHOCK_DB", ...)

`--db` wins over FORESHOCK_DB, that over the file that FORESHOCK_DB_FILE names. A password that stands in an argument
all the same is written over in this process's own copy: `ps` and `/proc/PID/cmdline` show asterisks.
"""

import os
import re
import sys
from pathlib import Path

import click

from cli.console.files import secret_file

_ADDRESS = re.compile(rb"[a-z][a-z0-9+.-]*://[^\0]*", re.IGNORECASE)
_QUERY = re.compile(rb"(?<=[?&]password=)[^&\0\s]+|(?<=[?&]sslpassword=)[^&\0\s]+")
_AFTER_COMMAND = 2  # of /proc/PID/stat: the fields before the state
_ARGUMENTS_START = 48  # numbers of fields there, from 1: proc(5)


class SecretOption(click.Option):
    """An option whose value may stand in the environment, or in a file that VARIABLE_FILE names."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """The environment's value, or the file's.

        Raises:
            Failure: the file cannot be read, or is empty.
        """
        found = super().resolve_envvar_value(ctx)
        if found is not None or not isinstance(self.envvar, str):
            return found
        variable = f"{self.envvar}_FILE"
        path = os.environ.get(variable)
        return secret_file(path, variable) if path else None


def passwords(line: bytes) -> list[tuple[int, int]]:
    """Where passwords stand in a command line, its words separated by NUL: begin and end of each."""
    spans = []
    for address in _ADDRESS.finditer(line):
        text = address.group()
        authority = text.partition(b"://")[2]
        if b"@" in authority and b":" in authority.partition(b"@")[0]:
            begin = text.index(b"://") + 3 + authority.index(b":") + 1
            spans.append((address.start() + begin, address.start() + text.rindex(b"@")))
        spans += [(address.start() + found.start(), address.start() + found.end()) for found in _QUERY.finditer(text)]
    return [span for span in spans if span[0] < span[1]]


def hide_passwords() -> None:
    """Write asterisks over the passwords of this process's arguments; Linux alone shows where they are."""
    if sys.platform != "linux" or not any("://" in word for word in sys.argv):
        return
    line = Path("/proc/self/cmdline").read_bytes()
    spans = passwords(line)
    if not spans:
        return
    import ctypes  # only here: hardly anybody writes a password there

    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    start = int(fields[_ARGUMENTS_START - 1 - _AFTER_COMMAND])
    for begin, end in spans:
        ctypes.memset(start + begin, ord("*"), end - begin)
