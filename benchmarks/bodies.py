"""Reading request bodies of 1 to 64 MB, whatever is in them: the cost grows as the size does, and no faster.

Each body is read as its route reads it, up to what would be written to the database. Beside it, in the same process and
by turns: orjson over the same bytes (plain JSON), or the zstd and gzip programs over the same packed bytes.
"""

import gc
import gzip
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
import zstandard
from real.programs import need

from api.edge.auth import ANONYMOUS
from api.edge.work_budget import WorkBudget, working
from api.intake.entries import events_of, records, sift
from api.intake.heartbeat_record import read_heartbeat
from api.intake.logs import LogContext, LogDecoder
from api.routes.alerts import alerts_of, read_alert
from api.routes.outages import read_outage
from api.routes.telemetry import read_rollup
from benchmarks.result import LINEAR, Result, doubling
from parsers.registry import PARSERS
from parsers.text.packed import unzipped, unzstd
from parsers.text.parser import Context

WHAT = "read a request's body of 1 to 64 MB, by its kind"
BUDGET = "twice the bytes <= 2.1 x the cost"
SIZES_MB = (1, 4, 16, 64)
RUNS = 2

# The server's own: records have no cycles (cli/commands/serve.py).
_GC_AFTER = (50_000, 20, 100)
_NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
_WORDS = "the previous message and what stood around it, of which a part is the same each time; "


@dataclass(frozen=True, slots=True)
class _BodyKind:
    """One kind of body: how one of a size is made and read, and the other program over the same bytes."""

    name: str
    make: Callable[[int], bytes]
    read: Callable[[bytes], object]
    other: Callable[[bytes, Path], float]
    beside: str


def measure(folder: Path) -> Iterator[Result]:
    """Every kind; a row each."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_AFTER)
    try:
        for kind in _kinds():
            yield _row(kind, folder)
    finally:
        gc.set_threshold(*before)


def _row(kind: _BodyKind, folder: Path) -> Result:
    costs = []
    for size_mb in SIZES_MB:
        body = kind.make(size_mb * 1_000_000)
        ours = [_processor_s(kind.read, body) for _ in range(RUNS)]
        costs.append(min(ours))
    theirs = min(kind.other(body, folder) for _ in range(RUNS))
    mean = doubling(SIZES_MB, costs)
    late = doubling(SIZES_MB[1:], costs[1:])  # one MB fits a processor's cache
    shown = ", ".join(f"{size} MB {cost:.3g} s" for size, cost in zip(SIZES_MB, costs, strict=True))
    return Result(
        f"{kind.name} (`bodies`)",
        BUDGET,
        shown,
        f"{theirs:.3g} s ({kind.beside}, {SIZES_MB[-1]} MB)",
        costs[-1] / theirs,
        "met" if mean <= LINEAR else "not met",
        f"a doubling costs {mean:.2f} x, from {SIZES_MB[1]} MB on {late:.2f} x; processor seconds, least of {RUNS}",
    )


def _processor_s(read: Callable[[bytes], object], body: bytes) -> float:
    gc.collect()
    began = time.process_time()
    with working(WorkBudget(0.0)):
        read(body)
    return time.process_time() - began


def _orjson_s(body: bytes, _folder: Path) -> float:
    """What orjson takes to decode the JSON of the body, line by line where it is lines."""
    gc.collect()
    began = time.process_time()
    if body.startswith((b"[", b'{"resourceSpans"', b'{"alerts"')):
        orjson.loads(body)
    else:
        for line in body.split(b"\n"):
            orjson.loads(line or b"null")
    return time.process_time() - began


def _program_s(*command: str) -> Callable[[bytes, Path], float]:
    """What a program takes over the body."""

    def run(body: bytes, folder: Path) -> float:
        file = folder / "packed"
        file.write_bytes(body)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with file.open("rb") as given:
            # Not to nowhere: grep ends at its first match there.
            subprocess.run(command, stdin=given, stdout=subprocess.PIPE, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


def _repeated(record: Callable[[int], dict[str, object]], joint: bytes = b"\n") -> Callable[[int], bytes]:
    """Bodies of records, each with its number."""

    def make(size: int) -> bytes:
        one = orjson.dumps(record(10**6))
        count = size // (len(one) + len(joint))
        return joint.join(orjson.dumps(record(10**6 + number)) for number in range(count))

    return make


def _listed(record: Callable[[int], dict[str, object]], head: bytes, tail: bytes) -> Callable[[int], bytes]:
    made = _repeated(record, b",")
    return lambda size: head + made(size) + tail


def _event(number: int) -> dict[str, object]:
    return {
        "time": "2025-03-01T04:05:06.789000Z",
        "node": f"gpu-{number % 1000:03}",
        "source": "kernel",
        "kind": "xid",
        "code": 79,
        "device": {"type": "gpu", "pci": "0000:0f:00.0"},
        "message": _WORDS * 2 + str(number),
        "attributes": {"pid": number, "process": "python"},
    }


def _rollup(number: int) -> dict[str, object]:
    values = [52.25, 71.5, 60.875, 66.0, 41]
    devices = {f"gpu:{gpu}": dict.fromkeys(("gpu_temp_c", "power_w", "sm_clock_mhz"), values) for gpu in range(8)}
    node, hour = f"gpu-{number % 1000:03}", "2025-03-01T04:00:00Z"
    return {"node": node, "time": hour, "samples": 960, "gpus_seen": 8, "devices": devices}


def _outage(number: int) -> dict[str, object]:
    start = "2025-03-01T04:05:06Z"
    return {"node": f"n{number}", "start": start, "end": None, "state": "DOWN", "reason": "Xid 79", "user": _WORDS * 2}


def _beat(number: int) -> dict[str, object]:
    counts = dict.fromkeys(("lines", "events", "errors", "lost", "failures"), 1)
    sources = [{"source": f"file:/var/log/{name}", "up": True, "blocked": False, **counts} for name in "abcd"]
    when = "2025-03-01T04:05:06Z"
    return {
        "node": f"n{number}",
        "time": when,
        "version": "0.1.0",
        "started": when,
        "interval_s": 60,
        "sources": sources,
    }


def _log(number: int) -> dict[str, object]:
    text = f"NVRM: Xid (PCI:0000:0f:00): 79, pid={number}, GPU has fallen off the bus." if number % 100 == 0 else _WORDS
    return {"date": 1740801906.789, "host": f"gpu-{number % 1000:03}", "log": text + _WORDS * 2}


def _span(number: int) -> dict[str, object]:
    start = 1740801906_000_000_000 + number * 1_000_000
    times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 900_000)}
    iteration = {"key": "iteration", "value": {"intValue": str(number)}}
    names = {"name": "training_single_iteration", "spanId": f"{number:016x}", "traceState": _WORDS * 2}
    return {**names, **times, "attributes": [iteration]}


def _alert(number: int) -> dict[str, object]:
    labels = {"alertname": "GpuHot", "node": f"gpu-{number % 1000:03}", "severity": "warning"}
    texts = {"summary": _WORDS * 2}
    print_of = f"{number:016x}"
    start = "2025-03-01T04:05:06.789Z"
    return {"status": "firing", "labels": labels, "annotations": texts, "startsAt": start, "fingerprint": print_of}


def _lines(size: int) -> bytes:
    quiet = b"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: " + _WORDS.encode() + b"\n"
    fault = b"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=x\n"
    piece = quiet * 999 + fault
    return piece * (size // len(piece) + 1)


def _logs(body: bytes) -> object:
    return LogDecoder(LogContext(), _NOW).decode(body)


def _alerts(body: bytes) -> object:
    return sift(alerts_of(records(body), []), lambda value: read_alert(value, ANONYMOUS.names))


def _kinds() -> list[_BodyKind]:
    zstd, gzip_program, grep = need("zstd", "zstd"), need("gzip", "gzip"), need("grep", "grep")
    array, events = (b"[", b"]"), _listed(_event, b"[", b"]")
    spans = _listed(_span, b'{"resourceSpans":[{"scopeSpans":[{"spans":[', b"]}]}]}")
    alerts = _listed(_alert, b'{"version":"4","alerts":[', b"]}")
    search = _program_s(grep, "-c", "-E", "Xid|SXid|EXT4-fs error|I/O error")
    said = "orjson, the same bytes"
    return [
        _BodyKind("events, a JSON array", events, lambda body: events_of(body, ANONYMOUS), _orjson_s, said),
        _BodyKind(
            "telemetry", _listed(_rollup, *array), lambda body: sift(records(body), _read_rollup), _orjson_s, said
        ),
        _BodyKind(
            "outages, one a line", _repeated(_outage), lambda body: sift(records(body), read_outage), _orjson_s, said
        ),
        _BodyKind("heartbeats", _listed(_beat, *array), lambda body: sift(records(body), _read_beat), _orjson_s, said),
        _BodyKind("alerts", alerts, _alerts, _orjson_s, said),
        _BodyKind("spans", spans, _read_spans, _orjson_s, said),
        _BodyKind("logs in JSON, one object a line", _repeated(_log), _logs, _orjson_s, said),
        _BodyKind("logs, plain lines", _lines, _logs, search, "grep -c -E with four words"),
        _BodyKind(
            "unpacking zstd, size as packed, of frames of 64 KB",
            lambda size: _frames(size, zstandard.compress),
            lambda body: sum(map(len, unzstd([body]))),
            _program_s(zstd, "-dc"),
            "zstd -d",
        ),
        _BodyKind(
            "unpacking gzip, size as packed, of members of 64 KB",
            lambda size: _frames(size, gzip.compress),
            lambda body: sum(map(len, unzipped([body]))),
            _program_s(gzip_program, "-dc"),
            "gzip -d",
        ),
        _BodyKind(
            "unpacking zstd, size as packed, of empty frames",
            lambda size: zstandard.compress(b"") * (size // 9),
            lambda body: sum(map(len, unzstd([body]))),
            lambda body, folder: _program_s(zstd, "-dc")(body[: len(body) // 16], folder) * 16,  # it takes 4 s a MB
            "zstd -d of a sixteenth, times 16",
        ),
    ]


def _frames(size: int, pack: Callable[[bytes], bytes]) -> bytes:
    """Frames one behind the other; what is packed is noise, so that they are as large as what they hold."""
    frame = pack(random.Random(1).randbytes(64 * 1024))  # noqa: S311  # no secret
    return frame * (size // len(frame) + 1)


def _read_rollup(value: object) -> object:
    return read_rollup(value, _NOW)


def _read_beat(value: object) -> object:
    return read_heartbeat(value, _NOW)


def _read_spans(body: bytes) -> object:
    parser = PARSERS["otel"].make(Context(run="run"))
    return [*parser.feed(body.decode(), 1), *parser.flush()]
