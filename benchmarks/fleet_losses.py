"""What the runs of a large fleet's year came to, as COPY's text: each interruption, each run's day by bucket.

The nodes are full of jobs of 64 on average; they fail as nodes do, so that a year has 17,000 interruptions. The ledgers
of so many runs would take hours to make, and the reads that are measured ask these tables alone.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from benchmarks.fleet_rows import LEAF, NULL, Size, micros, name, stamp

_RUN_NODES, _RUN_DAYS = 64, 10
_RATE_PER_NODE_DAY = 0.0038  # FIELD D1
_BUCKETS = (
    "productive",
    "startup",
    "checkpoint_save",
    "checkpoint_load",
    "lost_work",
    "detection",
    "waiting",
    "unknown",
)
_SHARES = (0.9, 0.02, 0.02, 0.005, 0.02, 0.01, 0.02, 0.005)
_CAUSES = (("hardware", "xid:79"), ("hardware", "ecc_dbe"), ("fabric", "link_down"), ("host", "node_down"))
_DAY_MS, _GPUS = 86_400_000, 8


def loss_rows(size: Size) -> list[tuple[str, bytes]]:
    """The tables with their rows."""
    return [("interruptions", _interruptions(size)), *_days(size)]


def _runs(size: Size) -> int:
    return max(1, size.nodes * size.days // (_RUN_NODES * _RUN_DAYS))


def _interruptions(size: Size) -> bytes:
    """One in ten is nobody's fault; nodes that fail fail again."""
    random = np.random.default_rng(17)
    rows, runs, end = [], _runs(size), micros(size.end)
    for number in range(int(size.nodes * size.days * _RATE_PER_NODE_DAY)):
        node = int(size.nodes * random.random() ** 2)
        cause, code = _CAUSES[number % len(_CAUSES)] if number % 10 else ("unknown", NULL)
        told = (
            [name(node), f"gpu {number % _GPUS}", f"leaf-{node // LEAF:03d}", "550.90.07"]
            if number % 10
            else [NULL] * 4
        )
        lost_ms, back_ms = (int(random.exponential(ms)) for ms in (1_200_000, 900_000))
        gpu_ms = (lost_ms + back_ms) * _RUN_NODES * _GPUS
        run = f"past-{int(random.integers(runs)):05d}"
        moment = stamp(end - int(random.uniform(0, size.days * 86_400e6)))
        rows.append(
            "\t".join([run, str(number), moment, cause, code, *told, NULL, str(lost_ms), str(back_ms), str(gpu_ms)])
        )
    return "".join(f"{row}\n" for row in rows).encode()


def _days(size: Size) -> Iterator[tuple[str, bytes]]:
    """Each run lasts ten days; as many at once as fill the nodes. The days of the cluster are the sums of theirs."""
    rows, runs_of, at_once = [], Counter[str](), max(1, size.nodes // _RUN_NODES)
    amounts = [(bucket, round(share * _DAY_MS)) for bucket, share in zip(_BUCKETS, _SHARES, strict=True)]
    held = _RUN_NODES * _GPUS
    for number in range(_runs(size)):
        first = number // at_once * _RUN_DAYS
        for day in range(first, min(first + _RUN_DAYS, size.days)):
            midnight = stamp(micros(size.day(size.days - 1) + timedelta(days=day)))
            runs_of[midnight] += 1
            rows += [f"past-{number:05d}\t{midnight}\t{bucket}\t{ms}\t{ms * held}\n" for bucket, ms in amounts]
    yield "run_days", "".join(rows).encode()
    sums = [
        f"{day}\t{bucket}\t{runs * ms}\t{runs * ms * held}\t0\n"
        for day, runs in runs_of.items()
        for bucket, ms in amounts
    ]
    yield "cluster_days", "".join(sums).encode()
