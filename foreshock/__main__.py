"""The entry point: takes foreign folders off the import path, then runs the command line.

The rooms have plain names (`api`, `store`), and a site's PYTHONPATH or working folder may hold a folder of that name.
"""

import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path


def own_entries(path: Sequence[str], environ: Mapping[str, str], working_folder: str) -> list[str]:
    """The import path without PYTHONPATH's entries and the working folder.

    The folder that holds this package stays (in a checkout it may be the working folder), and so do Python's own.
    """
    own = {os.path.realpath(one) for one in (str(Path(__file__).parents[1]), *sysconfig.get_paths().values())}
    named = [one for one in environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    foreign = {os.path.realpath(one) for one in (*named, working_folder)} - own
    return [one for one in path if os.path.realpath(one or working_folder) not in foreign]


def main() -> None:
    """The `foreshock` command: exit 0 done, 2 bad usage or input, 3 a failed check."""
    try:
        working_folder = str(Path.cwd())
    except FileNotFoundError:  # somebody deleted it
        working_folder = os.sep
    sys.path[:] = own_entries(sys.path, os.environ, working_folder)
    from cli.main import main as run

    run()


if __name__ == "__main__":
    main()
