"""The tokens in force: those of the configuration, and those that the database has.

    known = KnownTokens()
    known.read(engine)                                  # a thread does so every second (`TokenReader`)
    known.find(settings.tokens, secret, now)            # Token(...), or why there is none

A token is looked up by its SHA-256 in a table in memory: with a token for each of 12,500 nodes, comparing them one by
one would cost every request milliseconds. The time that takes tells nothing: what is looked up is the digest of what
was sent, and nobody can choose a text whose digest begins like that of 256 random bits.

While the database is away the tokens that were last read stay in force for ten minutes; nothing that is revoked
meanwhile could be stored either. After that a token that is not in the configuration is neither known nor unknown: its
requests are answered 503, never 401, for a sidecar takes that as final.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from api.server.settings import Token, expand_scopes
from store.database.connections import in_turn, open_apart
from store.nodes.tokens import PREFIX, IssuedToken, Trouble, changed_tokens, digest_of, note_used
from store.records.event import RecordError
from store.records.hostlist import NodePattern

TRUSTED_S = 600.0
_READ_EVERY_S = 1.0
# Between two readings that requests ask for: unknown tokens cost the database no more than this.
_LEAST_PAUSE_S = 0.2
_ASK_S = 3.0
_NOTE_EVERY_S = 60.0
_log = logging.getLogger("foreshock.tokens")

Missing: TypeAlias = Literal["unknown", "unreadable"] | Trouble


class KnownTokens:
    """One process's knowledge of tokens. Requests read it, one thread writes it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._configured: tuple[Token, ...] = ()
        self._by_digest: dict[str, Token] = {}
        self._issued: dict[str, tuple[IssuedToken, Token]] = {}
        self._seq = 0
        self._read_at: float | None = None  # when the newest reading began
        self._used: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self.wanted: threading.Event | None = None  # set: the thread reads at once

    def are_asked_for(self, configured: tuple[Token, ...]) -> bool:
        """Whether callers need a token: once one was ever made, a server is not open again."""
        return bool(configured) or bool(self._issued) or self._read_at is None

    def missing(self, configured: tuple[Token, ...]) -> Literal["missing", "unreadable"]:
        """Why a request without a token is refused: one is asked for, or nobody knows yet whether one is."""
        return "missing" if configured or self._issued or self._read_at is not None else "unreadable"

    def find(self, configured: tuple[Token, ...], secret: str, now: datetime) -> Token | Missing:
        """The token of a text, or why there is none. `now` is the real present, not a replay's."""
        if configured is not self._configured:
            self._by_digest = {token.sha256: token for token in configured if not token.certificate}
            self._configured = configured
        digest = digest_of(secret)
        token = self._by_digest.get(digest)
        if token is not None:
            return token
        if not self._are_fresh():
            return "unreadable"
        issued = self._issued.get(digest)
        if issued is None:
            return "unknown"
        trouble = issued[0].trouble(now)
        if trouble is not None:
            return trouble
        self._used[digest] = now.replace(second=0, microsecond=0)
        return issued[1]

    def _are_fresh(self) -> bool:
        return self._read_at is not None and self._monotonic() - self._read_at < TRUSTED_S

    async def renewed(self, configured: tuple[Token, ...], secret: str, now: datetime) -> Token | Missing:
        """What an unknown text is after a reading that begins now: another process may have just made that token.

        Where none comes in time it is neither known nor unknown.
        """
        if self.wanted is None or not secret.startswith(PREFIX):
            return "unknown"
        asked = self._monotonic()
        self.wanted.set()
        while (self._read_at or 0.0) < asked:
            if self._monotonic() - asked > _ASK_S:
                return "unreadable"
            await asyncio.sleep(0.02)
        return self.find(configured, secret, now)

    def read(self, engine: sa.Engine) -> None:
        """Read what has changed.

        Raises:
            SQLAlchemyError: the database does not say; what was known stays.
        """
        began = self._monotonic()
        with engine.connect() as connection:
            changed = changed_tokens(connection, self._seq)
        for token in changed:
            self.take(token)
            self._seq = max(self._seq, token.changed)
        self._read_at = began

    def take(self, token: IssuedToken) -> None:
        """Take up one token as it is now."""
        try:
            scopes, nodes = expand_scopes(token.scopes), NodePattern.of(token.node)
        except (ValueError, RecordError):  # a newer program's: it is no token here, but shuts the server all the same
            scopes, nodes = frozenset(), NodePattern.exactly(())
        with self._lock:
            known = self._issued.get(token.sha256)
            if known is None or known[0].changed <= token.changed:
                self._issued[token.sha256] = token, Token(token.name, token.sha256, scopes, nodes)

    def is_issued(self, digest: str) -> bool:
        """Whether a token is one of the database."""
        return digest in self._issued

    def write_used(self, engine: sa.Engine) -> None:
        """Store when tokens were last used, to the minute.

        Raises:
            SQLAlchemyError: the database does not take it; it is tried again.
        """
        used, self._used = self._used, {}
        if not used:
            return
        try:
            with in_turn(engine) as connection:
                note_used(connection, used)
        except SQLAlchemyError:
            self._used = {**used, **self._used}
            raise


class TokenReader:
    """The thread that keeps a process's knowledge of tokens fresh."""

    def __init__(self, known: KnownTokens, engine: sa.Engine, failed: Callable[[], None]) -> None:
        """`failed` is called for each turn that fails."""
        self._known = known
        self._engine = open_apart(engine)  # a busy pool keeps no revoked token in force
        self._failed = failed
        self._stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokens", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._known.wanted = self._wake
        self._thread.start()

    def stop(self, wait_s: float) -> None:
        """Note the last uses, and end."""
        self._stopped = True
        self._known.wanted = None
        self._wake.set()
        self._thread.join(wait_s)
        self._engine.dispose()

    def _run(self) -> None:
        away, last, noted = False, False, time.monotonic()
        while not last:
            self._wake.wait(_READ_EVERY_S)
            self._wake.clear()
            last = self._stopped  # told to end in a pause, it has a turn still
            try:
                self._known.read(self._engine)
                if last or time.monotonic() - noted >= _NOTE_EVERY_S:
                    noted = time.monotonic()
                    self._known.write_used(self._engine)
                away = False
            except Exception as error:  # noqa: BLE001  # the thread outlives whatever the database does
                self._failed()
                if not away:
                    _log.warning("tokens cannot be read, those known stay in force for a while: %s", error)
                away = True
            if not last:
                time.sleep(_LEAST_PAUSE_S)
