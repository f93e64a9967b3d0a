"""A rules file that is followed: read at the start, and again when it has changed.

    file = RulesFile(Path("/etc/foreshock/rules.yaml"))
    file.current().judge(event)

A change that does not hold is refused as a whole and said once; the rules before it stay in force.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from parsers.rules import MAX_TEXT, Rules, RulesError, read_rules

CHECK_S = 1.0
_LOG = logging.getLogger("foreshock.rules")
_Stamp = tuple[int, int, int]


class RulesFile:
    """The rules of a file, as they are now."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Raises:
            RulesError: it cannot be read, or does not hold.
        """
        self._path = path
        self._monotonic = monotonic
        self._stamp = self._stamp_of()
        self._rules = read_rules(self._text(), str(path))
        self._checked = monotonic()
        self.errors = 0  # changes that were refused

    def current(self) -> Rules:
        """The rules in force; looks at the file once a second at most."""
        now = self._monotonic()
        if now - self._checked >= CHECK_S:
            self._checked = now
            self._look()
        return self._rules

    def _look(self) -> None:
        stamp = self._stamp_of()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            rules = read_rules(self._text(), str(self._path))
        except RulesError as error:
            self.errors += 1
            _LOG.error("the rules of before stay in force: %s", error)
            return
        if rules.version != self._rules.version:
            _LOG.info("%s: rules %s take the place of %s", self._path, rules.version, self._rules.version)
            self._rules = rules

    def _stamp_of(self) -> _Stamp | None:
        """What changes when the file does, a swapped symbolic link (a ConfigMap's) included; None: it is not there."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _text(self) -> str:
        try:
            with self._path.open(encoding="utf-8") as file:
                return file.read(MAX_TEXT + 1)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise RulesError(f"{self._path} cannot be read: {reason}") from error
