"""The `foreshock` command: each subcommand's module is loaded only when it is asked for.

A node that has the sidecar alone must not import the server's packages to start.
"""

import gc
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from cli.console.errors import Failure, indented, print_traceback
from cli.console.output import log_to_stderr, print_text
from cli.console.secret_arguments import hide_passwords

# name: module under `cli` that holds a click command or group of the same name (with - for _).
COMMANDS = {
    "advise": "cli.commands.advise",
    "audit": "cli.commands.audit",
    "backtest": "cli.commands.backtest",
    "check": "cli.commands.check",
    "consume": "cli.commands.consume",
    "dashboard": "cli.commands.dashboard",
    "db": "cli.commands.db",
    "demo": "cli.commands.demo",
    "deploy": "cli.commands.deploy",
    "diagnose": "cli.commands.diagnose",
    "doctor": "cli.commands.doctor",
    "formats": "cli.commands.formats",
    "goodput": "cli.commands.goodput",
    "health": "cli.commands.health",
    "hints": "cli.commands.hints",
    "ingest": "cli.commands.ingest",
    "lemons": "cli.commands.lemons",
    "links": "cli.commands.links",
    "models": "cli.commands.models",
    "outages": "cli.commands.outages",
    "parse": "cli.commands.parse",
    "policy": "cli.commands.policy",
    "prior": "cli.commands.prior",
    "rma": "cli.commands.rma",
    "rules": "cli.commands.rules",
    "score": "cli.commands.predict",
    "serve": "cli.commands.serve",
    "sidecar": "cli.commands.sidecar",
    "simulate": "cli.commands.simulate",
    "study": "cli.study.command",
    "token": "cli.commands.token",
    "train": "cli.commands.predict",
    "verdicts": "cli.commands.verdicts",
    "what-if": "cli.commands.what_if",
    "worlds": "cli.worlds.command",
}

# What these write (spool, database, sockets) is their user's alone.
_PRIVATE = frozenset({"serve", "sidecar", "consume"})
# New objects until garbage is looked for, and how often the older ones are: with Python's 700 and 10 that is a tenth of
# a command's start, and modules are no garbage.
_GC_AFTER = (10_000, 20, 20)
# Modules of our own: where one of these is not found, the installation is broken.
_ROOMS = {*("api", "cli", "collectors", "dashboard", "diagnosis", "goodput", "parsers"),
          *("predictor", "schedulers", "simulator", "store", "wire")}  # fmt: skip


class ReaderGoneError(Exception):
    """The reader of our output (`head`) went away: that is no error of ours. Click would make it one."""


class LazyGroup(click.Group):
    """A group that imports a subcommand's module when it is run."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any: a node that has the sidecar alone can be asked for help too."""
        names = self.list_commands(ctx)
        limit = formatter.width - 6 - max(map(len, names))
        with formatter.section("Commands"):
            formatter.write_dl([(n, click.Command(n, help=help_of(n)).get_short_help_str(limit)) for n in names])

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """As click does; here `--help` of the group is printed."""
        with _reader_gone(), _visible_errors():
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; here the subcommand runs."""
        with _reader_gone(), _visible_errors(), _broken_off(ctx), _package_needed(ctx), _whole_database():
            return super().invoke(ctx)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Every command's name, sorted."""
        return sorted(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name, imported now."""
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[name]), name.replace("-", "_"))
        return command


def help_of(name: str) -> str:
    """What a command's docstring says, read without running its module: that may need packages which are not here."""
    import ast  # only here: help is rare, every command's start is not

    spec = importlib.util.find_spec(COMMANDS[name])
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = (
        ast.get_docstring(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == name.replace("-", "_")
    )
    return next(found, None) or ""


@contextmanager
def _broken_off(ctx: click.Context) -> Iterator[None]:
    """Ctrl-C: 130, as shells have it; click's 1 would be that of a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        print_text("Broken off", err=True)
        ctx.exit(128 + signal.SIGINT)


@contextmanager
def _package_needed(ctx: click.Context) -> Iterator[None]:
    """A package that a command needs and this machine has not: the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in _ROOMS:
            raise
        extra = "dashboard" if package in ("streamlit", "plotly") else "server"
        needs = f"`foreshock {ctx.invoked_subcommand}` needs the package {error.name}"
        raise Failure(f"{needs}: install foreshock[{extra}]") from error


@contextmanager
def _whole_database() -> Iterator[None]:
    """A database file that is damaged or may not be written, in the middle of a command: what to do, no traceback."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("sqlalchemy", "sqlite3"):
            raise
        from store.database.integrity import remedy

        if (told := remedy(error)) is None:
            raise
        raise Failure(told) from error


@contextmanager
def _visible_errors() -> Iterator[None]:
    """Click repeats what a wrong argument was: nothing in it acts on the terminal."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = indented(error.message)  # Final: it is the same message, made visible
        raise


@contextmanager
def _reader_gone() -> Iterator[None]:
    """A broken pipe under a name that click does not know."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGoneError from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="foreshock")
def foreshock() -> None:
    """Which device is failing, which node fails next and why, and where the training hours went."""


def main() -> None:
    """The console entry point: exit 0 done, 2 bad usage or input, 3 a failed check, 130 broken off by Ctrl-C."""
    gc.set_threshold(*_GC_AFTER)
    hide_passwords()
    if sys.argv[1:2] and sys.argv[1] in _PRIVATE:
        os.umask(0o077)
    sys.excepthook = print_traceback
    log_to_stderr()
    try:
        foreshock.main()
    except (ReaderGoneError, BrokenPipeError):
        # What is still buffered goes nowhere, and the interpreter does not complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
