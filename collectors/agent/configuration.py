"""The configuration read again: on SIGHUP, and when its file has changed. A file that is wrong changes nothing."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from collectors.collector import SourceError
from collectors.metrics import SidecarMetrics

_LOG = logging.getLogger("foreshock.sidecar")
_LOOK_S = 5.0

Settings = TypeVar("Settings")
# Of the sidecar's own metrics page.
DEFAULT_PORT = 10871


class ConfigError(Exception):
    """A configuration that cannot be used; the message names file, line and remedy."""


class Configuration(Generic[Settings]):
    """Where settings come from, and whether they are to be read again."""

    def __init__(
        self,
        file: Path | None,
        load: Callable[[], Settings],
        requested: threading.Event,
        tell: Callable[[bool], None] = lambda _busy: None,
    ) -> None:
        """`load` raises ConfigError; `requested` is set by SIGHUP; `tell` hears of a reload's begin and end."""
        self._file = file
        self._load = load
        self.requested = requested
        self._tell = tell
        self._stamp = self._stamp_now()
        self._looked = time.monotonic()

    def look(self, metrics: SidecarMetrics, apply: Callable[[Settings], None]) -> None:
        """Read and apply it if it changed; else, or where it cannot be used, leave all as it is."""
        if not self._is_due():
            return
        self.requested.clear()
        self._tell(True)
        try:
            apply(self._load())
        except (ConfigError, SourceError) as error:
            metrics.reload_failures.inc()
            metrics.reload_successful.set(0)
            _LOG.error("the changed configuration is not used, the one before stays: %s", error)
        else:
            metrics.reloaded()
            _LOG.info("the configuration was read again")
        finally:
            self._tell(False)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if not self.requested.is_set() and now - self._looked < _LOOK_S:
            return False
        self._looked = now
        before, self._stamp = self._stamp, self._stamp_now()
        return self.requested.is_set() or (self._stamp != before and self._stamp is not None)

    def _stamp_now(self) -> tuple[int, int, int] | None:
        """What changes with the file; None where it is not there: an editor may be about to put it back."""
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size
