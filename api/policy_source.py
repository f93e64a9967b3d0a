"""Where the server has its policy from, while it runs: `cli/policy_source.py` follows a file."""

from typing import Protocol

from schedulers.settings import Policy


class PolicySource(Protocol):
    """The policy in force, and whether its file has been changed to one that does not hold."""

    @property
    def place(self) -> str:
        """The file, for messages."""

    @property
    def errors(self) -> int:
        """Changes that were refused."""

    @property
    def problem(self) -> str | None:
        """Why the file as it is now is not in force; None while it is."""

    def current(self) -> Policy:
        """The policy in force."""
