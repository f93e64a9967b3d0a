"""Why a verdict is over: what it rests on is cured, its node was away and is back, or all of it was quiet for long."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from diagnosis.symptoms.symptom import Symptom
from store.records.event import format_time
from store.records.verdict import CauseClass, Verdict

# A link that came up may go down again: a cure holds once it has lasted so long.
CURED_FOR = timedelta(minutes=5)
# What is quiet for so long is over, cured or not. What breaks stays broken until somebody sees to it; a program's error
# is over with the program, and a fabric that errs says so again and again.
_QUIET: Mapping[CauseClass, timedelta] = {
    "application": timedelta(minutes=30),
    "job": timedelta(minutes=30),
    "planned": timedelta(minutes=30),
    "unknown": timedelta(hours=1),
    "port": timedelta(hours=6),
    "cable": timedelta(hours=6),
    "optic": timedelta(hours=6),
    "storage": timedelta(hours=6),
    "cooling": timedelta(hours=6),
}
_LONGEST = timedelta(hours=24)


class EndFinder:
    """Says of verdicts whether they are over, by the symptoms of the moment. `back`: when nodes were last back."""

    def __init__(self, now: datetime, of_event: Callable[[str], Symptom | None], back: Mapping[str, datetime]) -> None:
        self._now = now
        self._back = back
        self._of_event = of_event

    def of(self, verdict: Verdict) -> str | None:
        """Why it is over; None where it is not."""
        seen = self.symptoms_of(verdict)
        cured = [one.cured for one in seen if one.cured is not None]
        if seen and len(cured) == len(seen) and self._now - max(cured) >= CURED_FOR:
            return f"cured: all that it rests on is well since {format_time(max(cured))}"
        back = self._back.get(verdict.node) if verdict.node is not None else None
        last = max([one.last for one in seen] + ([verdict.last] if verdict.last is not None else [verdict.since]))
        if back is not None and back >= last:
            return f"{verdict.node} was out of service and is back since {format_time(back)}"
        quiet = _QUIET.get(verdict.cause_class, _LONGEST)
        if self._now - last >= quiet:
            return f"quiet for {quiet.total_seconds() / 3600:g} h"
        return None

    def is_cured(self, verdict: Verdict) -> bool:
        """Whether all that it rests on is well again, if only for a moment."""
        seen = self.symptoms_of(verdict)
        return bool(seen) and all(one.cured is not None for one in seen)

    def symptoms_of(self, verdict: Verdict) -> Sequence[Symptom]:
        """The symptoms that it rests on, as far as they are still held."""
        found: dict[int, Symptom] = {}
        for evidence in verdict.evidence_for:
            for event in evidence.events:
                symptom = self._of_event(event)
                if symptom is not None:
                    found[id(symptom)] = symptom
        return list(found.values())
