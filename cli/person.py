"""Who runs a command, for the audit."""

import getpass


def person() -> str:
    """The name of the user; `cli` where the machine knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"
