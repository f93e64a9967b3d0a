"""What every route is handed: the settings, the database, the clock, the counters."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import sqlalchemy as sa
from fastapi import Depends, Request

from api.heartbeats import Heartbeats
from api.joint import JointWrites
from api.kept import KeptAnswer
from api.metrics import Metrics
from api.settings import ApiSettings
from api.wakes import Wakes
from parsers.rules import RulesSource, no_rules
from store.database import is_away
from store.event import Event
from store.telemetry import Rollup

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
    topology: KeptAnswer = field(default_factory=lambda: KeptAnswer(keep_s=30.0))
    # A loop makes it anew (`api/lemons.py`): a request makes it only where there is none yet.
    lemons: KeptAnswer = field(default_factory=lambda: KeptAnswer(keep_s=float("inf")))
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    joint_events: JointWrites[Event, dict[str | None, Event]] = field(
        default_factory=lambda: JointWrites(5_000, is_away)
    )
    joint_rollups: JointWrites[Rollup, None] = field(default_factory=lambda: JointWrites(500, is_away))

    @property
    def settings(self) -> ApiSettings:
        """The settings as they are now: those of the start, with the policy in force."""
        started = self.started
        policy = started.policy if started.policy_source is None else started.policy_source.current()
        return started if policy is started.policy else replace(started, policy=policy)


async def _state(request: Request) -> State:
    # async: a plain function would hop to another thread, for every request
    state: State = request.app.state.foreshock
    return state


Server = Annotated[State, Depends(_state)]
