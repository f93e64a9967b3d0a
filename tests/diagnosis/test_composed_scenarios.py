"""The engine is asked of composed scenarios (`tests/scenarios/`): what broke stands in the first place.

All of them, 25 times each on 1,024 nodes: `python -m benchmarks diagnosis`. Here are 128 nodes, and few of each.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from scenarios.changes import CHANGES
from scenarios.judge import Answer, Examiner, ask, fits, judge
from scenarios.kinds import KINDS, NOBODY, compose

SIZE = 128
SEEDS = (3, 8)
# Kinds that changes and takings away are tried on: one of each way in which a cause shows itself.
TRIED = ("gpu_off_the_bus", "host_link", "leaf", "rack_power", "storage", "missing_rank", "illegal_access")
# An archive without ...
PARTS = ("topology", "kernel", "fabric", "jobs")
Plain = Callable[[str, int], list[Answer]]


@pytest.fixture(scope="module")
def examiner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examiner]:
    """One that reads each site's topology once."""
    yield Examiner(tmp_path_factory.mktemp("scenarios"))


@pytest.fixture(scope="module")
def plain(examiner: Examiner) -> Plain:
    """The answers to a scenario as it is, by kind and seed: it is asked once, and compared with in five tests."""
    return cache(lambda kind, seed: examiner.ask(compose(kind, seed, SIZE)))


def first_of(answers: list[Answer]) -> tuple[str, str]:
    """The first place: its class and name."""
    return answers[0]["class"], answers[0]["name"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_broke_stands_in_the_first_place(plain: Plain, kind: str, seed: int) -> None:
    """Of a program's own error and of planned work no part of the machine is accused."""
    answers = plain(kind, seed)
    outcome = judge(compose(kind, seed, SIZE), answers)
    assert not outcome.accused
    assert outcome.rank == 1, [(answer["class"], answer["name"], answer["probability"]) for answer in answers[:4]]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", TRIED)
def test_what_does_not_matter_changes_nothing(examiner: Examiner, plain: Plain, kind: str, change: str) -> None:
    """Lines twice, ten cured flaps elsewhere, a rack that an admin drained."""
    before = first_of(plain(kind, 3))
    scenario = compose(kind, 3, SIZE)
    CHANGES[change](scenario, random.Random(kind))
    assert first_of(examiner.ask(scenario)) == before


@pytest.mark.parametrize("kind", TRIED)
def test_another_naming_changes_nothing_but_the_names(examiner: Examiner, kind: str) -> None:
    """Nodes, racks and switches of another site's style."""
    for naming in (0, 2):
        scenario = compose(kind, 3, SIZE, naming=naming)
        assert judge(scenario, examiner.ask(scenario)).rank == 1


@pytest.mark.parametrize("wrong_s", [0.0, 300.0])
@pytest.mark.parametrize("kind", TRIED)
def test_the_order_of_arrival_and_wrong_clocks_change_nothing(
    examiner: Examiner, plain: Plain, kind: str, wrong_s: float
) -> None:
    """Each node's clock is up to five minutes wrong; when its lines were received tells."""
    scenario = compose(kind, 3, SIZE)
    before = first_of(plain(kind, 3))
    rng = random.Random(f"{kind} clocks")
    off_s = {node: rng.uniform(-wrong_s, wrong_s) for node in scenario.archive.site.nodes}
    assert first_of(ask(examiner.replay(scenario, off_s, rng), scenario.run)) == before


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", TRIED)
def test_with_less_to_go_by_the_answer_is_not_wrong_and_sure(examiner: Examiner, kind: str, part: str) -> None:
    """Without the topology, the kernels' logs, the subnet manager's or the scheduler's books."""
    scenario = compose(kind, 3, SIZE)
    outcome = judge(scenario, examiner.ask(scenario, frozenset({part})))
    assert not outcome.is_wrong_and_sure(), (outcome.first_class, outcome.first_name, outcome.first)


def test_the_command_in_its_own_process_answers_the_same(examiner: Examiner) -> None:
    """What is measured in one process is what an operator gets."""
    scenario = compose("gpu_off_the_bus", 3, SIZE)
    url = examiner.database(scenario)
    program = Path(sys.executable).parent / "foreshock"
    done = subprocess.run([program, "diagnose", "--db", url, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ask(url, None)
    assert fits(json.loads(done.stdout)[0], scenario.truth)


def test_a_scenario_is_the_same_each_time() -> None:
    """Kind and number make it, and nothing else."""
    first, second = compose("rolling_reboot", 4, SIZE), compose("rolling_reboot", 4, SIZE)
    assert first.archive.kernel_texts() == second.archive.kernel_texts()
    assert first.archive.fabric_texts() == second.archive.fabric_texts()
    assert all(compose(kind, 0, SIZE).truth.nobody for kind in NOBODY)
