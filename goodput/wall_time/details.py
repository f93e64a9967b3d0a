"""What a run's log tells beside the buckets: the parts of its starts, and who was slow.

The startup of an attempt is told in parts as far as its log dates them: `launch` until the processes are up and
connected (the scheduler's start, the containers, the rendezvous), `build` until the first iteration begins (model,
data, compilation), `first_iteration` = how much longer than usual the first line's iterations took: startup too.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from goodput.log.training_log import LogLine
from goodput.wall_time.walk import Walked

# The phase with which all processes are connected.
CONNECTED = ("after megatron is initialized", "rendezvous")


def details_of(walked: Sequence[Walked], log: Sequence[LogLine]) -> dict[str, Any]:
    """The details of a ledger as plain values: `startup` in seconds by part, `stragglers` with how often named.

    A part that no log tells is missing.
    """
    phases = [(x.time_ms, x.words) for x in log if x.kind == "training_phase" and x.time_ms is not None]
    phases.sort()
    parts: dict[str, int] = {}
    for one in walked:
        for name, length in _parts_of(one, phases).items():
            parts[name] = parts.get(name, 0) + length
    named: dict[str, int] = {}
    for line in log:
        if line.kind == "straggler" and line.words:
            named[line.words] = named.get(line.words, 0) + 1
    found: dict[str, Any] = {"startup": {name: length / 1000 for name, length in parts.items()}}
    if named:
        ranked = sorted(named.items(), key=lambda pair: (-pair[1], pair[0]))
        found["stragglers"] = [{"who": who, "times": times} for who, times in ranked]
    return found


def _parts_of(one: Walked, phases: Sequence[tuple[int, str]]) -> dict[str, int]:
    """The parts of one attempt's startup, in milliseconds."""
    if one.first_ms is None or not one.started:
        return {}
    starting = [(s.start_ms, s.end_ms) for s in one.segments if s.bucket == "startup"]
    parts: dict[str, int] = {}
    late = sum(end - max(start, one.first_ms) for start, end in starting if end > one.first_ms)
    if late:
        parts["first_iteration"] = late
    before = sum(min(end, one.first_ms) - start for start, end in starting if start < one.first_ms)
    connected = _connected_ms(one, phases)
    if connected is None or not before:
        return parts | ({"other": before} if before else {})
    launch = sum(min(end, connected) - start for start, end in starting if start < connected)
    return parts | ({"launch": launch} if launch else {}) | {"build": before - launch}


def _connected_ms(one: Walked, phases: Sequence[tuple[int, str]]) -> int | None:
    """When an attempt's processes were connected, as its log dates it."""
    first = one.first_ms
    found = None
    for time, words in phases[bisect_left(phases, (one.start_ms, "")) :]:
        if first is None or time > first:
            break
        if words in CONNECTED:
            found = time
    return found
