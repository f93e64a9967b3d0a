"""`foreshock deploy`: what comes with the program for systemd, Kubernetes, Prometheus, Slurm ...; listed and written.

foreshock deploy list
foreshock deploy write systemd /etc/systemd/system
"""

import importlib.resources
import sys
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from cli.console.errors import Failure
from cli.console.output import JSON_OPTION, print_json, print_text

# Files that lie beside the folders, by how their names end.
_LOOSE = {".service": "systemd", ".example.yaml": "examples"}
# Where units look for the program, unless it is installed elsewhere.
_PLACE = "/opt/foreshock/.venv/bin/foreshock"


@click.group()
def deploy() -> None:
    """List and write what comes for other programs: units, manifests, a chart, rules, dashboards, examples."""


@deploy.command(name="list")
@JSON_OPTION
def list_(as_json: bool) -> None:
    """List the sets and their files."""
    found = {name: sorted(files) for name, files in sorted(_sets().items())}
    if as_json:
        print_json([{"name": name, "files": files} for name, files in found.items()])
        return
    for name, files in found.items():
        print_text(name)
        for file in files:
            print_text(f"    {file}")


@deploy.command()
@click.argument("name", metavar="NAME")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--program",
    metavar="PATH",
    help="Where foreshock is on the machine that runs the units.  [default: where it runs now]",
)
@click.option("--force", is_flag=True, help="Replace files of the same names that hold something else.")
def write(name: str, folder: Path, program: str | None, force: bool) -> None:
    """Write the files of set NAME into DIR. One that is there and holds something else is left as it is.

    Units name the program where it is installed; nothing else is changed.
    """
    sets = _sets()
    if name not in sets:
        raise Failure(f"there is no set {name!r}: use one of {', '.join(sorted(sets))}")
    program = program or str(Path(sys.executable).with_name("foreshock"))
    contents = {file: _adapted(file, source.read_text("utf-8"), program) for file, source in sets[name].items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        other = [file for file, text in contents.items() if _differs(folder / file, text)]
        if other and not force:
            raise Failure(f"{folder} has other files of these names: {', '.join(other)}; --force replaces them")
        for file, text in sorted(contents.items()):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, "utf-8")
            if text.startswith("#!"):
                (folder / file).chmod(0o755)
            print_text(str(folder / file))
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror}: use a folder that you may write") from error


def _sets() -> Mapping[str, Mapping[str, Traversable]]:
    """Every set: its files by their paths within it."""
    found: dict[str, dict[str, Traversable]] = {}
    for entry in importlib.resources.files("deploy").iterdir():
        if entry.is_dir() and not entry.name.startswith("_"):
            found[entry.name] = dict(_files(entry, ""))
        for ending, name in _LOOSE.items():
            if entry.name.endswith(ending):
                found.setdefault(name, {})[entry.name] = entry
    return found


def _files(folder: Traversable, above: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        path = f"{above}{entry.name}"
        found += _files(entry, f"{path}/") if entry.is_dir() else [(path, entry)]
    return found


def _adapted(file: str, text: str, program: str) -> str:
    return text.replace(_PLACE, program) if file.endswith(".service") else text


def _differs(path: Path, text: str) -> bool:
    return path.exists() and path.read_text("utf-8", errors="replace") != text
