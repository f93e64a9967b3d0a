"""The training runs of a large fleet: jobs and the lines of their logs, as COPY's text."""

import zlib
from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import orjson

from benchmarks.fleet_rows import LONG_RUN, NULL, Size, micros, stamp

_DEVICE = orjson.dumps({"type": "node", "pci": None, "index": None, "uuid": None, "port": None}).decode()
_LINE_S, _SAVE_EVERY = 10, 180  # a line each ten seconds, a checkpoint each half an hour


def runs(size: Size) -> Iterator[tuple[bytes, bytes]]:
    """Each run's jobs and training events; the long one is active and restarts about twice a week."""
    random = np.random.default_rng(5)
    for number in range(size.runs):
        hours = float(random.uniform(2, 12))
        begin = size.end - timedelta(days=float(random.uniform(0.6, size.days - 1)))
        yield _run(f"run-{number:04d}", micros(begin), [hours / 2, hours / 2], int(random.integers(2, 128)), True)
    parts = max(1, size.long_run_days // 4)
    begin_us = micros(size.end - timedelta(days=size.long_run_days))
    hours_each = size.long_run_days * 24 / parts - 0.4
    yield _run(LONG_RUN, begin_us, [hours_each] * parts, min(1024, size.nodes), False)


def _run(run: str, begin_us: int, hours: list[float], nodes: int, ended: bool) -> tuple[bytes, bytes]:
    jobs, lines = [], []
    iteration, start = 0, begin_us
    for attempt, length in enumerate(hours):
        last = attempt == len(hours) - 1
        end = start + int(length * 3_600_000_000)
        is_open = last and not ended
        state = "RUNNING" if is_open else "COMPLETED" if last else "FAILED"
        finish = NULL if is_open else stamp(end)
        jobs.append(
            f"{run}-{attempt}\t{stamp(start - 300_000_000)}\t{run}\t{state}\t{stamp(start - 300_000_000)}"
            f"\t{stamp(start)}\t{finish}\t{nodes}\tgpu-[00000-{nodes - 1:05d}]\t{'0:0' if last else '1:0'}\n"
        )
        iteration = max(0, iteration - _SAVE_EVERY)
        lines += _lines(run, (attempt, iteration), start + 180_000_000, end)
        iteration += (end - start) // (_LINE_S * 1_000_000)
        start = end + 900_000_000
    return "".join(jobs).encode(), "".join(lines).encode()


def _lines(run: str, place: tuple[int, int], start_us: int, end_us: int) -> Iterator[str]:
    attempt, iteration = place
    at, number = start_us, 0
    while at < end_us:
        number += 1
        at += _LINE_S * 1_000_000
        spent = {"iteration": iteration + number, "iterations": 1, "elapsed_ms": _LINE_S * 1000.0, "loss": 2.1}
        yield _event(run, (attempt, number), at, "iteration", spent)
        if number % _SAVE_EVERY == 0:
            at += 4_000_000
            saved = {"iteration": iteration + number, "duration_ms": 4000.0}
            yield _event(run, (attempt, -number), at, "checkpoint_save", saved)


def _event(run: str, place: tuple[int, int], at_us: int, kind: str, attributes: dict[str, object]) -> str:
    ident = f"{zlib.crc32(f'{run} {place} {kind}'.encode()):08x}{at_us:016x}"
    received = stamp(at_us + 250_000)
    message = f"{kind} {attributes['iteration']}"
    return (
        f"{ident}\t{stamp(at_us)}\t{received}\tgpu-00000\t{run}\ttraining\t{kind}\t{NULL}\tinfo\tunknown\tnone"
        f"\t{_DEVICE}\t{message}\t{orjson.dumps(attributes).decode()}\t{run}.log\t{abs(place[1])}\n"
    )
