"""Time-ordered folds: learn from the past, skip a gap, judge on what comes next; never at random.

    data start |---- learn ----| purge (horizon + 12 h) |-- test, 14 d --|
               |------------- learn -------------| purge |-- test, 14 d --|

A random split of rows lets the model see the same outage from two sides (FIELD A3.4).

The purge is max(window, horizon) + 12 h, where `window` is how far anything learned from a row reaches beyond its
moment. Only the answer does: features look back, and a check of every backtest proves it (`leakage.py`), so their
window is 0 here. What a test row's features see of earlier days, the answers of learned rows among it, an operator
would have seen as well. A longer purge can be asked for, to measure whether nearness in time flatters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from store.records.event import format_time

# Before the first test moment there must be this much to learn from.
MIN_LEARN = timedelta(days=28)
_DAY = timedelta(days=1)
# An answer is known this long after its horizon has ended: what failed is written down late (FIELD A3.4).
PURGE_MARGIN_H = 12
# How often one learns: (longest horizon in hours, hours between moments). Closer ones ask the same thing again.
LEARN_CADENCES_H = ((48, 12.0), (14 * 24, 24.0))
LONGEST_LEARN_CADENCE_H = 168.0


class NoDataError(ValueError):
    """The store holds too little for what was asked; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class BacktestSettings:
    """What to evaluate.

    Attributes:
        cadence_h: hours between the moments that are judged.
        test_start, test_end: the moments judged lie in [test_start, test_end); None takes the later half of the data.
        moments: judge these instead of a regular grid.
        fold_days: the model is trained anew this often; None: 14 days, or two horizons where that is longer.
        learn_days: learn from this many days before each fold; None takes all (expanding).
        learn_cadence_h: hours between the moments learned from; None takes what suits the horizon.
        least_purge_h: a longer purge than the horizon needs; a shorter one is refused as leakage.
    """

    horizon_h: int = 24
    cadence_h: float = 24.0
    test_start: datetime | None = None
    test_end: datetime | None = None
    moments: tuple[datetime, ...] | None = None
    fold_days: float | None = None
    learn_days: float | None = None
    learn_cadence_h: float | None = None
    least_purge_h: int | None = None

    @property
    def purge_h(self) -> int:
        """The gap between the last moment learned from and the first one judged."""
        return needed_purge_h(self.horizon_h) if self.least_purge_h is None else self.least_purge_h

    @property
    def fold_length(self) -> timedelta:
        """How long a model is used."""
        return timedelta(days=self.fold_days or max(14.0, 2 * self.horizon_h / 24))

    @property
    def learn_every_h(self) -> float:
        """The hours between moments learned from."""
        fitting = (cadence for longest, cadence in LEARN_CADENCES_H if self.horizon_h <= longest)
        return self.learn_cadence_h or next(fitting, LONGEST_LEARN_CADENCE_H)


def needed_purge_h(horizon_h: int) -> int:
    """The shortest honest gap between learning and judging."""
    return horizon_h + PURGE_MARGIN_H


@dataclass(frozen=True, slots=True)
class Fold:
    """Learn from moments up to and with `train_end`; judge moments in [test_start, test_end)."""

    train_end: datetime
    test_start: datetime
    test_end: datetime

    def to_json(self) -> dict[str, str]:
        """As DESIGN writes it."""
        return {name: format_time(getattr(self, name)) for name in ("train_end", "test_start", "test_end")}


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The moments to learn from and to judge, ascending, and how they are cut."""

    learn: tuple[datetime, ...]
    test: tuple[datetime, ...]
    folds: tuple[Fold, ...]


def plan(span: tuple[datetime, datetime] | None, settings: BacktestSettings) -> FoldPlan:
    """Cut the data into folds.

    Raises:
        NoDataError: the data, or what lies before the first test moment, are too short.
    """
    if span is None:
        raise NoDataError("the database holds no events, outages or telemetry: run `foreshock ingest` first")
    start, end = span
    test = settings.moments or _test_grid(span, settings)
    test = tuple(sorted(set(test)))
    if not test:
        raise NoDataError(_nothing_to_judge(start, end, settings))
    first_train_end = test[0] - timedelta(hours=settings.purge_h)
    learn = grid(start + timedelta(days=1), first_train_end, settings.learn_every_h)
    if not learn or first_train_end - start < timedelta(days=1):
        raise NoDataError(
            f"nothing to learn from before {format_time(test[0])}: the data begin {format_time(start)}, "
            f"and {settings.purge_h} h before a test are left out; set a later --test-start"
        )
    folds = tuple(_cut(test, settings))
    learn = grid(start + timedelta(days=1), folds[-1].train_end, settings.learn_every_h)
    return FoldPlan(learn=learn, test=test, folds=folds)


def _nothing_to_judge(start: datetime, end: datetime, settings: BacktestSettings) -> str:
    """Why there is no moment to judge, and how much more would be needed for one."""
    if settings.test_start is not None or settings.test_end is not None:
        after = f"a moment needs {settings.horizon_h} h after it"
        return (
            f"no moment to judge: the data end {format_time(end)}, and {after}; set another --test-start or --test-end"
        )
    first = _next_midnight(start + MIN_LEARN + timedelta(hours=settings.purge_h))
    needed = first + timedelta(hours=settings.horizon_h) - start
    return (
        f"no moment to judge: the data are too short, {(end - start) / _DAY:.1f} days where {-(-needed // _DAY)} are "
        f"needed at least: {MIN_LEARN.days} to learn from, {settings.purge_h} h between, and {settings.horizon_h} h "
        "after the moment that is judged"
    )


def _test_grid(span: tuple[datetime, datetime], settings: BacktestSettings) -> tuple[datetime, ...]:
    start, end = span
    first = settings.test_start
    if first is None:
        learned = max((end - start) / 2, MIN_LEARN + timedelta(hours=settings.purge_h))
        first = _next_midnight(start + learned)
    # Unasked, only moments whose answer is known are worth a row.
    last = settings.test_end or end - timedelta(hours=settings.horizon_h) + timedelta(milliseconds=1)
    found = []
    moment = first
    while moment < last:
        found.append(moment)
        moment += timedelta(hours=settings.cadence_h)
    return tuple(found)


def _next_midnight(moment: datetime) -> datetime:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight if midnight == moment else midnight + timedelta(days=1)


def grid(start: datetime, last: datetime, cadence_h: float) -> tuple[datetime, ...]:
    """Moments from `last` backwards, every cadence, not before `start`; ascending."""
    found = []
    moment = last
    while moment >= start:
        found.append(moment)
        moment -= timedelta(hours=cadence_h)
    return tuple(reversed(found))


def _cut(test: Sequence[datetime], settings: BacktestSettings) -> list[Fold]:
    """Folds of a fixed length over the test moments; one without a moment is left out."""
    folds = []
    length = settings.fold_length
    start, last = test[0], test[-1]
    while start <= last:
        end = start + length
        # A short rest joins the fold before it.
        if last - end < length / 2:
            end = max(settings.test_end or last, last) + timedelta(milliseconds=1 if settings.test_end is None else 0)
            end = max(end, last + timedelta(milliseconds=1))
        if any(start <= moment < end for moment in test):
            folds.append(Fold(start - timedelta(hours=settings.purge_h), start, end))
        start = end
    return folds
