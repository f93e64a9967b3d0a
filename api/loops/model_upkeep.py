"""Keeping the models fresh: now and then they are judged, a new one is trained, and links are scored by a model that
is learned anew; each by a process of its own.

Neither costs the requests anything but a share of the processor, at the lowest priority: the matrices, the fitting and
scikit-learn live in a child, which ends with the server, or at its deadline. What comes of a training is in the audit,
so that any server knows when the last one was, however it ended.
"""

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from api.server.state import State
from predictor.history.families import LINK_LOSSES
from store.database.connections import writing
from store.database.coordination import acquire, release
from store.events.event_pages import has_events
from store.models.registry import LastTraining, count_outages, last_training, list_models, note_training
from store.models.scores import newest_link_scoring
from store.models.scorings import newest_moment
from store.plural import many
from store.records.event import format_time

BY = "server"
_LEASE = "training"
_LEASE_S = 30.0
_POLL_S = 0.2
_ENDS_WITHIN_S = 5.0
_JUDGE_WITHIN_S = 900.0
# After a training that failed, or for which there was too little news.
_AGAIN = timedelta(days=1)
_TOLD = 600
_LINKS_HORIZON_H = 24
# Fewer lines about lost links in the time that is learned from tell too little.
_LINKS_LEARN, _LEAST_LOSSES = timedelta(days=365), 40


class ChildError(RuntimeError):
    """A child that failed, or took too long; the message holds the end of what it said."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The turns of one server."""

    state: State
    holder: str = field(default_factory=lambda: f"training-{uuid.uuid4().hex[:12]}")
    tried: dict[str, datetime] = field(default_factory=dict)  # when work began that leaves nothing where it fails

    def turn(self, keep_on: Callable[[], bool]) -> None:
        """Judge the models if their next scoring is due, then train if that is, then score the links.

        Raises:
            ChildError: one failed; it is tried again, a training and a scoring of links after a day.
        """
        if self.is_judging_due():
            arguments = ["models", "judge", "--at", format_time(self.state.clock()), *self._aside()]
            trial = self.state.settings.trial
            for name in trial.__dataclass_fields__:
                arguments += [f"--{name.replace('_', '-')}", str(getattr(trial, name))]
            self._run(arguments, _JUDGE_WITHIN_S, keep_on)
        if keep_on() and self.is_training_due():
            self._train(keep_on)
        if keep_on() and self.are_links_due():
            self._score_links(keep_on)

    def are_links_due(self) -> bool:
        """Whether the links have not been scored for a while, and enough were lost of late to learn from."""
        every, now = timedelta(hours=self.state.settings.training.links_every_h), self.state.clock()
        if not every:
            return False
        with self.state.engine.connect() as connection:
            scored, tried = newest_link_scoring(connection, _LINKS_HORIZON_H), self.tried.get("links")
            if tried is not None and (scored is None or scored < tried):  # it failed
                scored, every = tried, _AGAIN
            if scored is not None and timedelta() <= now - scored < every:
                return False
            return has_events(connection, LINK_LOSSES, now - _LINKS_LEARN, _LEAST_LOSSES)

    def is_judging_due(self) -> bool:
        """Whether a champion has not scored for judging for a while."""
        due = self.state.clock() - timedelta(hours=self.state.settings.trial.every_h)
        with self.state.engine.connect() as connection:
            champions = [row["id"] for row in list_models(connection, role="champion")]
            last = [newest_moment(connection, ident) for ident in champions]
        return any(moment is None or moment <= due for moment in last)

    def is_training_due(self) -> bool:
        """Whether it is time to train and there is enough news; where there is too little, that is noted once a day."""
        settings, now = self.state.settings.training, self.state.clock()
        every = timedelta(days=settings.every_days)
        with self.state.engine.connect() as connection:
            known, last = [row["trained_until"] for row in list_models(connection)], last_training(connection)
            if not known or not every or now - max(known) < every or not _rested(last, now, every):
                return False
            outages = count_outages(connection, max(known), now)
        if outages < settings.least_outages:
            why = (
                f"{many(outages, 'unplanned outage')} since the last training, {settings.least_outages} are waited for"
            )
            self._note("put off", {"why": why})
            return False
        return True

    def _score_links(self, keep_on: Callable[[], bool]) -> None:
        now = self.state.clock()
        self.tried["links"] = now
        arguments = ["links", "--at", format_time(now), "--horizon-h", str(_LINKS_HORIZON_H), *self._aside()]
        self._run(arguments, self.state.settings.training.within_s, keep_on)

    def _train(self, keep_on: Callable[[], bool]) -> None:
        settings = self.state.settings.training
        if not acquire(self.state.engine, _LEASE, self.holder, None, _LEASE_S):
            return
        self._note("started", {})
        arguments = ["train", "--until", format_time(self.state.clock()), "--role", "challenger", *self._aside()]
        if settings.window_days is not None:
            arguments += ["--window-days", str(settings.window_days)]
        try:
            self._run(arguments, settings.within_s, keep_on, self._renew)
        except ChildError as error:
            self._note("failed", {"why": str(error)})
            raise
        finally:
            release(self.state.engine, _LEASE, self.holder)
        self._note("trained", {})

    def _aside(self) -> list[str]:
        return ["--background", str(self.state.settings.training.nice), str(os.getpid())]

    def _renew(self) -> None:
        acquire(self.state.engine, _LEASE, self.holder, None, _LEASE_S)

    def _note(self, outcome: str, detail: dict[str, str]) -> None:
        with writing(self.state.engine).begin() as connection:
            note_training(connection, self.state.clock(), outcome, BY, detail)

    def _run(
        self,
        arguments: Sequence[str],
        within_s: float,
        keep_on: Callable[[], bool],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Run `foreshock ARGUMENTS` on this database until it ends, its time is up, or the server stops."""
        url = self.state.engine.url.render_as_string(hide_password=False)
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(  # noqa: S603  # our own program; the database's password is in nobody's sight
                [sys.executable, "-P", "-m", "foreshock", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, "FORESHOCK_DB": url},
                process_group=0,
            )
            try:
                why = _wait(child, within_s, keep_on, meanwhile)
            finally:
                _end(child)
            said.seek(max(0, said.seek(0, os.SEEK_END) - _TOLD))
            end = said.read().decode(errors="replace").strip()
        if why is not None or child.returncode != 0:
            raise ChildError(f"foreshock {arguments[0]}: {why or f'exit {child.returncode}'}: {end}"[:_TOLD])


def _rested(last: LastTraining | None, now: datetime, every: timedelta) -> bool:
    """Whether the last training, however it ended, was long enough ago."""
    if last is None:
        return True
    return now - last.time >= (every if last.outcome == "trained" else min(every, _AGAIN))


def _wait(
    child: subprocess.Popen[bytes], within_s: float, keep_on: Callable[[], bool], meanwhile: Callable[[], None]
) -> str | None:
    """Wait for a child's end; why it is to be ended before, if it is."""
    deadline, beat = time.monotonic() + within_s, time.monotonic() + _ENDS_WITHIN_S
    while child.poll() is None:
        if not keep_on():
            return "the server stops"
        if time.monotonic() > deadline:
            return f"not done within {within_s:g} s"
        if time.monotonic() > beat:
            meanwhile()
            beat = time.monotonic() + _ENDS_WITHIN_S
        time.sleep(_POLL_S)
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
