"""Faults of a rail fabric on the real subnet manager: is the right one named first, by its log as it grows?

Logs of 100 faults each are played side by side on simulated fabrics of 16 leafs, 8 spines and 64 hosts with 8 rails,
ten of each kind, with five quiet seconds before each fault: opensm ignores a switch whose traps come faster. Each log
is read as a tail reads it: all of it by one search, and each fault by a search that knows nothing of those before; by
the log alone, and with what the source `subnet` says of the manager's list of links.
"""

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.result import Result

if TYPE_CHECKING:
    from real.rail_judge import Judgement

WHAT = "a rail fabric's faults named first, by the log of the real subnet manager"
BUDGET = ">= 97 % first, each kind >= 95 %, <= 2 % wrong at >= 0.9, within 2 s"
# Logs, and faults of each kind in one; 10 and 10 are a hundred of each kind.
LOGS = int(os.environ.get("RAIL_LOGS", "10"))
EACH = int(os.environ.get("RAIL_EACH", "10"))
FIRST = int(os.environ.get("RAIL_FIRST", "1"))  # the first log's seed
_MOST_S, _FIRST, _FIRST_OF_KIND, _WRONG = 2.0, 0.97, 0.95, 0.02


def measure(folder: Path) -> Iterator[Result]:
    """Four rows: every fault in one continuous log, and each alone; with the list of links, and without it."""
    with ThreadPoolExecutor(LOGS) as pool:
        found = list(pool.map(lambda number: _log(folder / str(number), number), range(FIRST, FIRST + LOGS)))
    for name in found[0]:
        yield _result(name, [judgement for log in found for judgement in log[name]])


def _log(folder: Path, seed: int) -> dict[str, list["Judgement"]]:
    # The starters stand with the tests, on the path by now.
    from real.fabric_acts import KINDS, QUIET_S, drawn, play
    from real.fabric_plan import Rails, rail_plan
    from real.opensm import fabric
    from real.rail_judge import judge_log

    folder.mkdir()
    plan = rail_plan(Rails())
    with fabric(folder, plan=plan, arguments=["-y"]) as sim:
        topology = sim.discover()
        chance = random.Random(seed)  # noqa: S311  # a draw, no secret
        acts = list(play(sim, drawn(plan, KINDS, EACH, chance), QUIET_S))
    text = sim.log.read_bytes()
    return {
        f"{name}, {by}": judge_log(text, acts, topology, alone=alone, with_list=with_list)
        for by, with_list in (("log and list of links", True), ("log alone", False))
        for name, alone in (("in one log", False), ("each alone", True))
    }


def _result(name: str, judgements: list["Judgement"]) -> Result:
    by_kind = {kind: _shares([one for one in judgements if one.act.kind == kind]) for kind in _kinds(judgements)}
    right, wide = _shares(judgements)
    wrong = sum(one.is_wrong_and_sure() for one in judgements) / len(judgements)
    slowest = max(one.seconds for one in judgements)
    worst = min(by_kind, key=lambda kind: sum(by_kind[kind]))
    is_met = right + wide >= _FIRST and sum(by_kind[worst]) >= _FIRST_OF_KIND and wrong <= _WRONG and slowest <= _MOST_S
    kinds = ", ".join(f"{kind} {share:.0%}" for kind, (share, _) in sorted(by_kind.items()) if share < 1)
    ends = Counter(one.act.kind for one in judgements if one.wide)
    note = (
        f"{len(judgements)} faults; the cable, switch, host or adapter itself first in {right:.1%}"
        + (f" ({kinds}; all other kinds 100 %)" if kinds else "")
        + f", one end of a cable where the log names one end alone in {wide:.1%}"
        + (f" ({', '.join(f'{count} {kind}' for kind, count in sorted(ends.items()))})" if ends else "")
        + f"; reading the lines and the search take {slowest:.2f} s of processor at most"
    )
    ours = f"{right + wide:.1%} first, worst kind {worst} {sum(by_kind[worst]):.0%}, {wrong:.1%} wrong and sure"
    return Result(f"{WHAT}: {name}", BUDGET, ours, "-", None, "met" if is_met else "not met", note)


def _kinds(judgements: Iterable["Judgement"]) -> list[str]:
    return sorted({one.act.kind for one in judgements})


def _shares(judgements: list["Judgement"]) -> tuple[float, float]:
    """The share that is right, and the share that is as near as the log lets."""
    return sum(one.right for one in judgements) / len(judgements), sum(one.wide for one in judgements) / len(judgements)
