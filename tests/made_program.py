"""A training program that prints what programs print, good and bad, for tests of what reads it."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from goodput.log.training_log import LogRow, row_of
from store.records.job import Job

START = datetime(2025, 3, 1, tzinfo=UTC)
START_US = int(START.timestamp() * 1_000_000)


class Program:
    """A training program that works, saves, waits, is ended and starts anew; what it prints, and its jobs."""

    def __init__(self, seed: int, whole_seconds: bool, undated: bool) -> None:
        self.chance = random.Random(seed)
        self.whole, self.undated = whole_seconds, undated
        self.rough = self.chance.choice([0.1, 0.3, 1.0])
        self.now_s, self.iteration, self.saved = 0.0, 0, 0
        self.told: list[tuple[str, float, dict[str, Any], bool]] = []
        self.jobs: list[Job] = []
        for number in range(self.chance.randint(1, 4)):
            self.attempt(number)

    def say(self, kind: str, dated: bool = True, **attributes: Any) -> None:
        """A line, now."""
        self.told.append((kind, self.now_s, attributes, dated or not self.undated))

    def attempt(self, number: int) -> None:
        """One job, perhaps of two starts of the program."""
        chance = self.chance
        submit = START + timedelta(seconds=self.now_s)
        self.now_s += chance.choice([0, 5, 400])
        start = START + timedelta(seconds=self.now_s)
        for _ in range(chance.choice([1, 1, 1, 2])):
            self.work(chance.choice([0, 3, 20, 90]))
        self.now_s += chance.choice([0, 1, 50])
        state = chance.choice(["FAILED", "FAILED", "COMPLETED", "CANCELLED by 5", "NODE_FAIL"])
        end = START + timedelta(seconds=self.now_s - chance.choice([0, 0, 0, 30]))
        if chance.random() < 0.9:
            is_open = chance.random() < 0.2
            job = Job(str(number), "run", "RUNNING" if is_open else state, submit, start, None, 2, "gpu-[1-2]")
            self.jobs.append(job if is_open else Job(*[*_values(job)[:5], max(start, end), 2, "gpu-[1-2]"]))

    def work(self, lines: int) -> None:
        """One start of the program."""
        chance = self.chance
        self.now_s += chance.choice([0.5, 20])
        if self.iteration and chance.random() < 0.8:
            self.iteration = chance.choice([self.saved, self.saved, max(0, self.iteration - chance.randint(0, 9)), 0])
            self.say("checkpoint_load", dated=False, duration_ms=2500.0)
        if chance.random() < 0.3:
            self.say("training_start", iteration=self.iteration)
        per_line = chance.choice([1, 1, 10])
        for _ in range(lines):
            self.line(per_line)
        if chance.random() < (0.1 if lines else 0.9):  # a bar went on, or told it all
            self.now_s, self.iteration = self.now_s + 10, self.iteration + 5
            done = {"iteration": self.iteration, "iterations": 5, "elapsed_ms": 2000.0}
            self.say("training_end", dated=chance.random() < 0.5, **done)

    def line(self, per_line: int) -> None:
        """One line of iterations, and at times what comes between two."""
        chance = self.chance
        odd = chance.random() < 0.4 * self.rough
        each_s = chance.choice([2.1, 1.9, 2.2, 2.35, 2.45, 3.0, 9.0]) if odd else 2.0
        each_s += chance.choice([0, 0.0123, 0.0005])
        self.now_s += each_s * per_line + (chance.choice([0.7, 1.3, 40]) if chance.random() < 0.15 * self.rough else 0)
        self.iteration += per_line
        told: dict[str, Any] = {"iteration": self.iteration, "iterations": per_line, "elapsed_ms": each_s * 1000}
        if chance.random() < 0.03 * self.rough:
            del told["elapsed_ms"]
        if chance.random() < 0.05 * self.rough:
            told["data_ms"] = 300.0
        self.say("iteration", **told)
        if chance.random() < 0.02 * self.rough:
            self.say("iteration", **told)
        if chance.random() < 0.07:
            self.between()

    def between(self) -> None:
        """A save of either kind, an evaluation, a wait, a word."""
        chance = self.chance
        told: dict[str, Any] = {"iteration": self.iteration}
        kind = chance.choice(
            ["save", "save", "background", "late", "late", "evaluation", "wait", "straggler", "unfinished"]
        )
        if kind == "save":
            self.now_s += 4
            self.say("checkpoint_save", dated=False, duration_ms=4000.0, **told)
            self.saved = self.iteration
        elif kind in ("background", "late"):
            began = max(0, self.iteration - chance.choice([0, 2, 7, 12])) if kind == "late" else self.iteration
            if kind == "background":
                self.say("checkpoint_save_start", dated=False, **told)
            for _ in range(chance.choice([0, 2, 12])):
                self.now_s += 2
                self.iteration += 1
                self.say("iteration", iteration=self.iteration, iterations=1, elapsed_ms=2000.0)
            stall = {"async": True, "blocking_ms": chance.choice([0, 300.0])}
            self.say("checkpoint_save", dated=False, iteration=began, **stall)
            self.saved = began
        elif kind == "evaluation":
            self.now_s += 6
            self.say("evaluation", duration_ms=6000.0)
        elif kind == "wait":
            self.say("data_wait", duration_ms=250.0, **told)
        elif kind == "straggler":
            self.say("straggler", rank=3)
        else:
            self.say("checkpoint_save_start", dated=False, **told)

    def rows(self) -> list[LogRow]:
        """The lines as the store holds them, in the order in which they were written."""
        found = []
        for number, (kind, now_s, attributes, dated) in enumerate(self.told, start=1):
            received_us = START_US + int(now_s * 1e6) + 300_017
            printed_s = int(now_s) if self.whole else now_s
            time_us = START_US + int(printed_s * 1e6) if dated else received_us
            found.append(row_of((kind, time_us, attributes, "run.log", number, f"{number:05d}"), received_us))
        return found


def _values(job: Job) -> list[Any]:
    return [getattr(job, name) for name in Job.__slots__]
