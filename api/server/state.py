"""What every route is handed: the settings, the database, the clock, the counters."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import sqlalchemy as sa
from fastapi import Depends, Request

from api.server.heartbeats import Heartbeats
from api.server.inventory_names import InventoryNames
from api.server.joint_writes import JointWrites
from api.server.known_tokens import KnownTokens
from api.server.map_revisions import MapRevisions
from api.server.metrics import Metrics
from api.server.provider_keys import ProviderKeys
from api.server.settings import ApiSettings
from api.server.verdict_feed import VerdictFeed
from api.server.wakes import Wakes
from parsers.site_rules.rules import RulesSource, no_rules
from store.database.connections import is_away
from store.database.integrity import DiskWatch
from store.nodes.fleet import SchedulableNodes
from store.records.event import Event
from store.records.telemetry import Rollup

_log = logging.getLogger(__name__)

# An answer that is costly to make and seldom changes: kept for a while, with the tag by which a client asks again.


@dataclass(slots=True)
class CachedAnswer:
    """The bytes of one answer. One request at a time makes it; the others take the one of before, if there is one."""

    keep_s: float
    monotonic: Callable[[], float] = time.monotonic
    _made: float = float("-inf")
    _kept: tuple[bytes, str] | None = None  # with its tag: who reads while another is made shall not mix the two
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, make: Callable[[], bytes]) -> tuple[bytes, str]:
        """The answer and its ETag."""
        kept = self._kept
        if kept is not None and self.monotonic() - self._made < self.keep_s:
            return kept
        if not self._lock.acquire(blocking=kept is None) and kept is not None:
            return kept
        try:
            if self._kept is None or self.monotonic() - self._made >= self.keep_s:
                return self.renew(make)
            return self._kept
        finally:
            self._lock.release()

    def get_before(self, make: Callable[[], bytes], most_s: float) -> tuple[bytes, str]:
        """The answer and its ETag; one past `keep_s` is made anew beside, unless it is `most_s` old already."""
        kept, age_s = self._kept, self.monotonic() - self._made
        if kept is None or age_s >= most_s:
            return self.get(make)
        if age_s >= self.keep_s and self._lock.acquire(blocking=False):
            threading.Thread(target=self._renew_beside, args=(make,), daemon=True).start()
        return kept

    def _renew_beside(self, make: Callable[[], bytes]) -> None:
        """Hold the lock already; who asks once the old answer is too old meets what failed here."""
        try:
            self.renew(make)
        except Exception as error:  # noqa: BLE001  # a thread that ends with a traceback helps nobody
            _log.warning("an answer was not made anew: %s", error)
        finally:
            self._lock.release()

    def renew(self, make: Callable[[], bytes]) -> tuple[bytes, str]:
        """Make the answer now, however old the one of before is."""
        fresh = make()
        self._kept = kept = fresh, f'"{hashlib.blake2b(fresh, digest_size=12).hexdigest()}"'
        self._made = self.monotonic()
        return kept


NewById: TypeAlias = dict[str | None, Event]


@dataclass(frozen=True, slots=True)
class State:
    """One server's state.

    `started` are the settings of the start; `settings` has the policy as it is now.
    `clock` is the present of the cluster, which a replay hands in; `wall` is that of the sidecars, which live now.
    `news` is set when records came in that scores may depend on, `faults` when some are to become incidents.
    """

    started: ApiSettings
    engine: sa.Engine
    clock: Callable[[], datetime]
    metrics: Metrics = field(default_factory=Metrics)
    news: threading.Event = field(default_factory=threading.Event)
    faults: threading.Event = field(default_factory=threading.Event)
    wakes: Wakes = field(default_factory=Wakes)
    rules: RulesSource = no_rules
    # A large fabric's is megabytes, and changes when somebody moves a cable.
    topology: CachedAnswer = field(default_factory=lambda: CachedAnswer(keep_s=30.0))
    # Asked for by every open page every few seconds.
    map: CachedAnswer = field(default_factory=lambda: CachedAnswer(keep_s=4.0))
    map_revisions: MapRevisions = field(default_factory=MapRevisions)
    # A loop makes it anew (`api/loops/repair_list.py`): a request makes it only where there is none yet.
    lemons: CachedAnswer = field(default_factory=lambda: CachedAnswer(keep_s=float("inf")))
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    tokens: KnownTokens = field(default_factory=KnownTokens)
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    joint_events: JointWrites[Event, dict[str | None, Event]] = field(
        default_factory=lambda: JointWrites(5_000, is_away)
    )
    joint_rollups: JointWrites[Rollup, None] = field(default_factory=lambda: JointWrites(500, is_away))
    provider_keys: ProviderKeys = field(default_factory=ProviderKeys)
    feed: VerdictFeed = field(default_factory=VerdictFeed)
    names: InventoryNames = field(default_factory=InventoryNames)
    schedulable: SchedulableNodes = field(default_factory=SchedulableNodes)
    disk: DiskWatch | None = None  # None: nobody looks
    checking: threading.Lock = field(default_factory=threading.Lock)  # one verdict's suspects are tried at a time
    followers: list[Callable[[ApiSettings], None]] = field(default_factory=list)

    def refresh_names(self) -> None:
        """Bring the names of the inventory up to date. Raises as `InventoryNames.refresh`."""
        self.names.refresh(self.engine, self.settings.inventory)

    def reloaded(self, settings: ApiSettings) -> None:
        """Tell those who hold what they were made of that it has changed. Called by one thread at a time."""
        for follow in self.followers:
            follow(settings)

    @property
    def settings(self) -> ApiSettings:
        """The settings as they are now: those of the start, with the policy in force; or what was reloaded since."""
        started = self.started
        if started.source is not None:
            return started.source.current()
        policy = started.policy if started.policy_source is None else started.policy_source.current()
        return started if policy is started.policy else replace(started, policy=policy)


async def _state(request: Request) -> State:
    # async: a plain function would hop to another thread, for every request
    state: State = request.app.state.foreshock
    return state


Server = Annotated[State, Depends(_state)]
