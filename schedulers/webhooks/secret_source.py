"""A receiver's secrets: those of the configuration, and those of files, which are read anew for every message.

So a secret is changed without a restart: add the new one as a second line, tell it to the receiver, then delete the old
line.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from schedulers.webhooks.signature import SecretError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SecretSource:
    """Where secrets come from. A file holds one a line; blank lines and lines that begin with `#` say nothing."""

    given: tuple[str, ...]
    files: tuple[Path, ...]
    check: Callable[[str], object]  # raises SecretError for one that cannot be used
    _last: dict[Path, tuple[str, ...]] = field(default_factory=dict)

    def read(self) -> tuple[str, ...]:
        """The secrets in force, each once. A file that cannot be read, or holds a bad one, stands as it last was.

        Raises:
            SecretError: a file that never could be read, or holds a secret that cannot be used.
        """
        found = list(self.given)
        for path in self.files:
            found += self._of(path)
        return tuple(dict.fromkeys(found))

    def _of(self, path: Path) -> tuple[str, ...]:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
            secrets = tuple(line for line in lines if line and not line.startswith("#"))
            for secret in secrets:
                self.check(secret)
        except (OSError, UnicodeDecodeError, SecretError) as error:
            if path not in self._last:
                raise SecretError(f"secret file {path}: {error}") from error
            _log.warning("secret file %s stands as it last was: %s", path, error)
            return self._last[path]
        self._last[path] = secrets
        return secrets
