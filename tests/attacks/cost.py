"""What a body costs the server, in processor time: of this process alone, whatever else the machine does.

    site.linear("logs", lambda size: b"a\\n" * (size // 2))

No clock on the wall is looked at. A cost is compared with that of a body an eighth as large, and with that of a plain
Python loop over as many bytes in the same run: a slow or busy machine makes both slower.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.testclient import TestClient

# From an eighth of a body to the whole: linear is 8, quadratic 64. What each request costs whatever it holds, and
# a processor that is shared with others, lie between.
TIMES = 8
MOST_GROWTH = 24.0
# A parser may cost so many steps of a plain Python loop a byte. The dearest real body takes some 30.
MOST_STEPS = 400.0
# And so many for each line, however short: its error is a record of the answer. Lines of four bytes, each the beginning
# of a document that the next one breaks, take some 1,200. How many lines a body may have is bounded.
MOST_STEPS_A_LINE = 2000.0
# Below it nothing is measured well, and nothing is an attack.
LEAST_S = 0.15
_TRIES = 4

Answer = Any


@dataclass(frozen=True, slots=True)
class CostSite:
    """The API, by requests within this process."""

    client: TestClient
    step_s: float  # of a plain loop, a byte

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer; never a crash."""
        answer = self.client.post(f"/api/v1/{path}", content=body, headers=dict(headers or {}))
        assert answer.status_code < 500, f"{path}: {answer.text[:300]}"
        return answer

    def cost_s(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> float:
        """Processor seconds of a request."""
        began = time.process_time()
        self.post(path, body, headers)
        return time.process_time() - began

    def check(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Refuse a body that costs too many steps a byte. It is tried again: the first time loads modules."""
        step, most_steps = self.step_s, MOST_STEPS * len(body) + MOST_STEPS_A_LINE * body.count(b"\n")
        for _ in range(_TRIES):
            took_s = self.cost_s(path, body, headers)
            if took_s <= max(LEAST_S, most_steps * step):
                return
            step = max(self.step_s, step_s())  # a core may have become slower since the first measurement
        steps = took_s / step / len(body)
        raise AssertionError(f"{path}: {len(body)} bytes cost {took_s:.2f} s, {steps:.0f} steps a byte: {body[:200]!r}")

    def linear(
        self, path: str, make: Callable[[int], bytes], size: int, headers: Mapping[str, str] | None = None
    ) -> None:
        """Refuse bodies of a kind whose cost grows as a square does, or which cost too much a byte."""
        whole = make(size)
        self.check(path, whole, headers)
        part = make(size // TIMES)
        for _ in range(_TRIES):
            small_s, large_s = self.cost_s(path, part, headers), self.cost_s(path, whole, headers)
            if large_s <= max(LEAST_S, MOST_GROWTH * small_s):
                return
        raise AssertionError(f"{path}: {len(part)} bytes cost {small_s:.3f} s, {len(whole)} bytes {large_s:.3f} s")


def step_s() -> float:
    """What a step of a plain Python loop costs, in processor seconds."""
    count = 1_000_000
    body = bytes(count)
    began = time.process_time()
    total = 0
    for byte in body:
        total += byte
    return (time.process_time() - began) / count
