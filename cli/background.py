"""A command that a server runs beside itself: it gives way to others, and ends when the server does."""

import ctypes
import getpass
import os
import signal
import sys

import click

_PR_SET_PDEATHSIG = 1
BACKGROUND_OPTION = click.option(
    "--background", type=click.IntRange(0, 19), hidden=True, help="Give way so far to others, and end with the parent."
)


def give_way(nice: int) -> str:
    """Take a smaller share of the processor, and have the kernel end this process with its parent; whom it is for."""
    os.nice(nice)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == 1:  # the parent was gone before
            sys.exit(1)
    return "server"


def user_name() -> str:
    """Who runs the command, for the audit."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"
