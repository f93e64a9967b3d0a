"""The server's settings while it runs: read again on SIGHUP, refused as a whole where they do not hold.

    source = SettingsFile(started, read, file)
    with Reloader(source, hangups, changed):    # a thread; `changed(settings)` after each reload
        ...

The policy in it is followed by itself (`policy_source.py`), and renewed certificates are, too.
"""

import hashlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType

from api.server.settings import ApiSettings, TlsSettings
from cli.config.policy_source import PolicyFiles
from cli.console.errors import Failure
from cli.processes.tls import ServerTls

# What is made once, at the start: a change is said, and waits for a restart.
RESTART_ONLY = ("processes", "intervals", "rules")
_LOOK_S = 0.5
_log = logging.getLogger("foreshock.configuration")


class SettingsFile:
    """The settings of a file and the environment, as they are in force. Safe for several threads."""

    def __init__(
        self,
        started: ApiSettings,
        read: Callable[[], ApiSettings],
        file: Path | None,
        tls: ServerTls | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`started` is what `read` gave at the start; `tls` serves with its files.

        `read` raises Failure for what does not hold.
        """
        self._started = self._base = started
        self._merged = (started, started.policy, started)
        self._read, self._file, self._tls, self._clock = read, file, tls, clock
        self.loaded = clock()  # when it came into force
        self.version = _version_of(file)  # twelve hex digits of the content that is in force
        self._errors = 0
        self._problem: str | None = None
        self.restart: tuple[str, ...] = ()  # the keys whose change waits for a restart

    @property
    def place(self) -> str:
        """The file, for messages."""
        return "the defaults" if self._file is None else str(self._file)

    @property
    def errors(self) -> int:
        """Reloads that were refused, and renewed certificates."""
        return self._errors + (0 if self._tls is None else self._tls.errors)

    @property
    def problem(self) -> str | None:
        """Why the files as they are now are not in force."""
        return self._problem or (None if self._tls is None else self._tls.problem)

    def current(self) -> ApiSettings:
        """What is in force; the policy is as new as its file."""
        base, source = self._base, self._started.policy_source
        policy = base.policy if source is None else source.current()
        kept = self._merged
        if kept[0] is base and kept[1] is policy:
            return kept[2]
        merged = base if policy is base.policy else replace(base, policy=policy)
        self._merged = (base, policy, merged)
        return merged

    def look(self) -> None:
        """Take over renewed certificates."""
        if self._tls is not None:
            self._tls.renew()

    def reload(self) -> bool:
        """Read everything again; False where it does not hold: then what was in force stays."""
        version = _version_of(self._file)
        try:
            fresh = self._read()
            started = self._started
            restart = [key for key in RESTART_ONLY if getattr(fresh, key) != getattr(started, key)]
            tls = self._tls_of(fresh, restart)
        except Failure as error:
            self._errors += 1
            self._problem = error.message
            _log.error("the configuration of before stays in force (%s): %s", self.version, error.message)
            return False
        kept = {key: getattr(started, key) for key in RESTART_ONLY}
        if isinstance(started.policy_source, PolicyFiles) and isinstance(fresh.policy_source, PolicyFiles):
            started.policy_source.check = fresh.policy_source.check  # by the tokens that are in force now
        self._base = replace(fresh, **kept, tls=tls, policy_source=started.policy_source, source=started.source)
        self.loaded, self.version, self._problem, self.restart = self._clock(), version, None, tuple(restart)
        _log.warning("%s: read again, in force: %s", self.place, version)
        if restart:
            _log.warning("%s: a change of %s waits for a restart", self.place, ", ".join(restart))
        return True

    def _tls_of(self, fresh: ApiSettings, restart: list[str]) -> TlsSettings:
        """The files to serve with from now on; from plain HTTP to TLS, and back, takes a restart."""
        before = self._base.tls
        if (fresh.tls.certificate is None) != (self._tls is None):
            restart.append("tls")
            return before
        if self._tls is not None:
            try:
                self._tls.take(fresh.tls)
            except Failure as error:
                raise Failure(f"{self.place}, {error.message}") from error
        return fresh.tls


def _version_of(file: Path | None) -> str:
    try:
        content = b"" if file is None else file.read_bytes()
    except OSError:
        content = b""  # reading it for its settings says why
    return hashlib.blake2b(content, digest_size=6).hexdigest()


class Hangups:
    """Counts SIGHUP: a handler that takes no lock, so that two signals at once cannot stop each other."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """One more."""
        self.count += 1


class Reloader:
    """A thread that reloads after each SIGHUP, and takes over renewed certificates by itself."""

    def __init__(self, source: SettingsFile, hangups: Hangups, changed: Callable[[ApiSettings], None]) -> None:
        """`changed` is called after each reload that holds."""
        self._source, self._hangups, self._changed = source, hangups, changed
        self._done = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reload", daemon=True)

    def __enter__(self) -> "Reloader":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def turn(self) -> None:
        """Do what is due; what fails is logged, and the next turn comes."""
        try:
            if (asked := self._hangups.count) != self._done:
                self._done = asked
                if self._source.reload():
                    self._changed(self._source.current())
            else:
                self._source.look()
        except Exception:  # noqa: BLE001  # a server outlives whatever a file holds
            _log.exception("reloading failed; what was in force stays")

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.turn()
