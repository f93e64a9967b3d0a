"""A policy that is followed: read at the start, and again when its file, or the server's, has changed.

    source = PolicyFiles(first, read)      # read() -> (policy, the files that it came from)
    source.current()

A change that does not hold is refused as a whole and said once; the policy before it stays in force. So is a file that
is gone: without its policy a server would fall back to shadow mode, and let go of what it holds.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from cli.console.errors import Failure
from cli.console.files import file_stamp
from schedulers.policy.settings import Policy, version_of

CHECK_S = 1.0
_LOG = logging.getLogger("foreshock.policy")
Read: TypeAlias = Callable[[], tuple[Policy, Sequence[Path]]]
_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class PolicyFiles:
    """The policy of some files, as they are now."""

    def __init__(self, read: Read, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read the files.

        Raises:
            Failure: they cannot be read, or do not hold.
        """
        self._read, self._monotonic = read, monotonic
        self._policy, self._files = read()
        # Taken after the text: what is changed in between is read again.
        self._stamp = self._stamp_of()
        self._checked = monotonic()
        self.errors = 0  # changes that were refused
        self.problem: str | None = None  # why the files as they are now are not in force
        # What else must go together with a new policy: raises a Failure where it does not.
        self.check: Callable[[Policy], None] = lambda _policy: None

    @property
    def place(self) -> str:
        """The file that the policy stands in."""
        return str(self._files[-1]) if self._files else "the defaults"

    def current(self) -> Policy:
        """The policy in force; looks at the files once a second at most."""
        now = self._monotonic()
        if now - self._checked >= CHECK_S:
            self._checked = now
            self._look()
        return self._policy

    def _look(self) -> None:
        stamp = self._stamp_of()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            policy, self._files = self._read()
            self.check(policy)
        except Failure as error:
            self.errors += 1
            self.problem = error.message
            _LOG.error("the policy of before stays in force (%s): %s", version_of(self._policy), error.message)
            return
        self.problem = None
        self._stamp = self._stamp_of() if len(self._files) != len(stamp) else stamp
        if policy != self._policy:
            _LOG.info("%s: policy %s takes the place of %s", self.place, version_of(policy), version_of(self._policy))
            self._policy = policy

    def _stamp_of(self) -> _Stamp:
        """What changes when a file does, a swapped symbolic link (a ConfigMap's) included; None: it is not there."""
        return tuple(file_stamp(file) for file in self._files)
