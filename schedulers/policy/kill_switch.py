"""The kill switch: a file, a row that people set over the API or by hand, and the setting `stop`. The strongest counts.

    effective_stop(connection, policy)      # none, holds, all; asked in each turn, and again before each order

`holds`: no new request to any scheduler, but held nodes may be released. `all`: no request at all, releases wait, too.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import sqlalchemy as sa

from schedulers.policy.settings import Policy, Stop
from store.hints.stops import newest_switch
from store.records.hint import LIVE_STATES, Hint

Source: TypeAlias = Literal["setting", "file", "switch"]
STOPS: tuple[Stop, ...] = get_args(Stop)  # the weaker ones first
_MOST_BYTES = 64


@dataclass(frozen=True, slots=True)
class ActiveStop:
    """One source that stops something: which, what, and who says so why and since when, where that is known."""

    source: Source
    stop: Stop
    reason: str
    by: str | None = None
    time: datetime | None = None


def stopped(connection: sa.Connection, policy: Policy) -> list[ActiveStop]:
    """Every source that stops something now; none of them can lift another's."""
    found = [ActiveStop("setting", policy.stop, "`stop` of the policy")]
    if policy.stop_file is not None:
        found.append(read_stop_file(policy.stop_file))
    last = newest_switch(connection)
    if last is not None:
        found.append(ActiveStop("switch", _stop_of(last.stop), last.reason, last.actor, last.time))
    return [one for one in found if one.stop != "none"]


def _stop_of(word: str) -> Stop:
    """A word of the database; one that this program does not know was meant to stop something."""
    return next((stop for stop in STOPS if stop == word), "all")


def effective_stop(connection: sa.Connection, policy: Policy) -> Stop:
    """What is stopped now, by the strongest of all sources."""
    return max((one.stop for one in stopped(connection, policy)), key=STOPS.index, default="none")


def read_stop_file(path: Path) -> ActiveStop:
    """What a stop file says: nothing where there is none, `all` where that is its text, else `holds`.

    One that is there and cannot be read counts as `holds`: somebody wanted to stop something.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer does not keep us waiting
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.lexists(path):
            return ActiveStop("file", "none", f"{path} is not there")
        return ActiveStop("file", "holds", f"{path} leads nowhere: {error.strerror}")
    except (OSError, ValueError) as error:
        return ActiveStop("file", "holds", f"{path} cannot be read: {error}")
    try:
        text = os.read(handle, _MOST_BYTES)
    except OSError as error:
        return ActiveStop("file", "holds", f"{path} cannot be read: {error.strerror}")
    finally:
        os.close(handle)
    word = text.decode("utf-8", "replace").strip().lower()
    return ActiveStop("file", "all" if word == "all" else "holds", f"{path} is there")


def may_ask(stop: Stop, action: str) -> bool:
    """Whether an order or a delivery may go out: anything, releases alone, nothing."""
    return stop == "none" or (stop == "holds" and action == "release")


def asks_anew(hint: Hint, open_hints: Mapping[str, Hint]) -> bool:
    """Whether a change of a hint asks more than what stands: that is what a stop forbids. A renewal does not."""
    if hint.state not in ("proposed", *LIVE_STATES):
        return False
    before = open_hints.get(hint.node)
    return before is None or before.action != hint.action or before.state == "shadow"
