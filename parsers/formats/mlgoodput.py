"""Entries of Google's ml-goodput-measurement in Cloud Logging, and of Orbax's saves beside them.

    {"jsonPayload": {"job_name": "llm-70b", "step_count": 100, "step_start_time": 1740801906.789}, ...}
    -> {"kind": "iteration", "time": "2025-03-01T04:05:06.789Z",
        "attributes": {"run": "llm-70b", "iteration": 100, "iterations": 10, "elapsed_ms": 317.1}, ...}

As `gcloud logging read --format=json` prints them, or the payloads one a line. A step that starts tells that those
before it are done (step 100 starts: 100 iterations); what lies between two steps (data, `custom_badput_event`) ends the
one before. A save stalls for `checkpointer_blocking_duration_secs` and goes on in the background: it is safe when the
next save, which waits for it, is told. Names: ml_goodput_measurement/src/goodput.py and checkpoint_badput_calculator.py
of AI-Hypercomputer/ml-goodput-measurement.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import attributes, moment_of, record_of, text_of, whole_of
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Event
from store.records.fault_catalog import with_kind_meaning

# Jobs of one log; the oldest is forgotten.
MAX_JOBS = 256
_STALLS: Mapping[str, str] = {"tpu_init": "phase", "training_prep": "phase", "data_loading": "data_wait"}
# What a site's own event is, by its name: the first word that it holds. Others are no work and no known stall.
_CUSTOM = (
    (re.compile(r"eval|valid", re.IGNORECASE), "evaluation"),
    (re.compile(r"restor|load_?c|resum", re.IGNORECASE), "checkpoint_load"),
    (re.compile(r"sav|checkpoint|ckpt", re.IGNORECASE), "checkpoint_save"),
    (re.compile(r"data|input|batch", re.IGNORECASE), "data_wait"),
)


@dataclass(slots=True)
class _GoodputJob:
    """Where a job is: the step that runs and since when, open stalls, the save that is not yet known to be safe."""

    step: int | None = None
    since: float | None = None
    reported: int | None = None  # iterations that were reported
    open: dict[str, float] | None = None
    save: tuple[int, float] | None = None  # iteration, stall in ms


class MlGoodputParser(DocumentParser):
    """Decodes entries in the order of their times, as Cloud Logging gives them. Holds the step that runs."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._entry)
        self._context = context
        self._jobs: OrderedDict[str, _GoodputJob] = OrderedDict()

    def _entry(self, document: Document) -> Iterator[Event]:
        value = document.value
        payload = record_of(value, "jsonPayload", "json_payload", "payload") or value
        name = text_of(payload, "job_name") or self._context.run or ""
        job = self._jobs.setdefault(name, _GoodputJob())
        self._jobs.move_to_end(name)
        if len(self._jobs) > MAX_JOBS:
            self._jobs.popitem(last=False)
        base = Event(
            time=None,
            node=self._context.node,
            source="mlgoodput",
            kind="",
            attributes=attributes(run=self._context.run or name),
            line=document.line,
        )
        if (kind := text_of(payload, "event_type")) in ("save", "restore", "emergency_restore"):
            yield from self._orbax(job, str(kind), payload, value, base)
        else:
            yield from self._recorded(job, payload, base)

    def _recorded(self, job: _GoodputJob, payload: Mapping[str, Any], base: Event) -> Iterator[Event]:
        """What the recorder wrote: one time an entry."""
        for key in payload:
            at = _seconds(payload, key)
            if at is None or not key.endswith("_time"):
                continue
            if key == "job_start_time":
                job.step = job.since = job.reported = job.open = job.save = None
                yield _event(base, "training_start", at)
            elif key == "job_end_time":
                yield from _done(job, at, base)
                yield from _safe(job, at, base)
                yield _event(base, "training_end", at)
            elif key == "step_start_time":
                yield from self._step(job, whole_of(payload.get("step_count")), at, base)
            elif key.endswith("_start_time"):
                yield from _done(job, at, base)
                job.open = {**(job.open or {}), _name_of(key, payload): at}
            elif key.endswith("_end_time"):
                name = _name_of(key, payload)
                began = (job.open or {}).pop(name, None)
                job.since = None if job.since is None else max(job.since, at)
                yield from _stall(name, began, at, base, job.reported)

    def _step(self, job: _GoodputJob, step: int | None, at: float, base: Event) -> Iterator[Event]:
        if step is None:
            return
        if job.step is not None and step > job.step and job.reported != step:
            yield _iterations(job, step, at, base)
        job.step, job.since, job.reported = step, at, step

    def _orbax(
        self, job: _GoodputJob, kind: str, payload: Mapping[str, Any], value: Mapping[str, Any], base: Event
    ) -> Iterator[Event]:
        """A save or restore: its own times where it bears them, else the entry's."""
        step = whole_of(payload.get("step"))
        fields = ("checkpoint_manager_blocking", "checkpointer_blocking", "checkpoint_manager", "checkpointer")
        known = (
            (_seconds(payload, f"{name}_start_time"), _seconds(payload, f"{name}_duration_secs")) for name in fields
        )
        began, lasted_s = next(((begin, length) for begin, length in known if length is not None), (None, None))
        reported = moment_of(value, "timestamp", "receiveTimestamp")
        end = (
            began + lasted_s
            if began is not None and lasted_s is not None
            else reported.timestamp()
            if reported
            else None
        )
        if end is None:
            return
        stall_ms = None if lasted_s is None else round(lasted_s * 1000, 3)
        if kind != "save":
            yield _event(base, "checkpoint_load", end, **attributes(iteration=step, duration_ms=stall_ms))
            return
        begin = end - (lasted_s or 0.0)
        yield from _done(job, begin, base)
        yield from _safe(job, begin, base)
        yield _event(
            base, "checkpoint_save_start", begin, **attributes(iteration=step, blocking_ms=stall_ms), **{"async": True}
        )
        if step is not None:
            job.save = (step, stall_ms or 0.0)
        job.since = None if job.since is None else max(job.since, end)


def _name_of(key: str, payload: Mapping[str, Any]) -> str:
    """What a pair of times is of."""
    name = key.removesuffix("_start_time").removesuffix("_end_time")
    return f"custom:{text_of(payload, 'custom_badput_event_type') or ''}" if name.startswith("custom_badput") else name


def _done(job: _GoodputJob, at: float, base: Event) -> Iterator[Event]:
    """The step that runs is done by now, for something else begins."""
    if job.step is None or job.since is None or job.reported == job.step + 1:
        return
    yield _iterations(job, job.step + 1, at, base)
    job.reported = job.step + 1


def _iterations(job: _GoodputJob, done: int, at: float, base: Event) -> Event:
    """The iterations since the last that were reported."""
    reported = job.step if job.reported is None else job.reported
    count = max(1, done - (done - 1 if reported is None else reported))
    elapsed = None if job.since is None else round((at - job.since) * 1000 / count, 3)
    return _event(base, "iteration", at, iteration=done, iterations=count, **attributes(elapsed_ms=elapsed))


def _stall(name: str, began: float | None, at: float, base: Event, iteration: int | None) -> Iterator[Event]:
    if began is None or at < began:
        return
    lasted: dict[str, Attribute] = {"duration_ms": round((at - began) * 1000, 3)}
    kind = _STALLS.get(name)
    if name.startswith("custom:"):
        kind = next((kind for pattern, kind in _CUSTOM if pattern.search(name[7:])), "phase")
    if kind == "phase":
        yield with_kind_meaning(_event(base, "training_phase", at, phase=name.removeprefix("custom:"), **lasted))
    elif kind is not None:
        numbered = attributes(iteration=iteration) if kind == "checkpoint_save" else {}
        yield _event(base, kind, at, **numbered, **lasted)


def _safe(job: _GoodputJob, at: float, base: Event) -> Iterator[Event]:
    """The save before is safe: another begins, or the job has ended."""
    save, job.save = job.save, None
    if save is not None:
        yield _event(base, "checkpoint_save", at, iteration=save[0], blocking_ms=save[1], **{"async": True})


def _event(base: Event, kind: str, at: float, **reported: Attribute) -> Event:
    named = {**base.attributes, **reported}
    at_iteration = "" if reported.get("iteration") is None else f" {reported['iteration']}"
    return Event(
        time=datetime.fromtimestamp(at, UTC),
        node=base.node,
        source=base.source,
        kind=kind,
        message=f"{kind}{at_iteration}",
        attributes=named,
        line=base.line,
    )


def _seconds(payload: Mapping[str, Any], key: str) -> float | None:
    """A figure in seconds, of a sane size."""
    value = payload.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        return None
    return float(value)


FORMAT = Format(
    name="mlgoodput",
    description="Entries of Google's ml-goodput-measurement in Cloud Logging",
    sample='{"insertId": "1a", "jsonPayload": {"job_name": "llm-70b", "job_start_time": 1740801906.789}, '
    '"severity": "INFO", "timestamp": "2025-03-01T04:05:06.800Z", "logName": "projects/p/logs/goodput_llm-70b"}',
    make=MlGoodputParser,
    testimony="iterations",
    recognises=re.compile(
        r'"(?:job_(?:start|end)|step_start|tpu_init_(?:start|end)|training_prep_(?:start|end)|data_loading_(?:start|end)'
        r'|custom_badput_event_(?:start|end))_time" ?:|"checkpoint(?:er|_manager)(?:_blocking)?_duration_secs" ?:'
    ),
    shape="document",
)
