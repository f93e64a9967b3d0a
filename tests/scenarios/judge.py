"""Judges what `foreshock diagnose --json` answers of a scenario: on which rank the truth stands, and who is accused.

The answer comes from the command itself, called in this process; the archive is taken in as `foreshock ingest` does it.
"""

import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from scenarios.site import Site, topology_text
from scenarios.stage import Scenario, Truth

from cli.commands.diagnose import diagnose
from cli.commands.ingest import ingest_archive
from diagnosis.incidents.incidents_table import update_incidents
from parsers.registry import make_parser
from parsers.text.parser import Context, Parser
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events
from store.records.event import Event

Answer = Mapping[str, Any]
HARMLESS = frozenset({"application", "planned", "job", "unknown"})
SURE = 0.9
_ENOUGH = 0.6


@dataclass(frozen=True)
class Outcome:
    """How one scenario was answered. `rank` is where the truth stands, from 1; None where it does not.

    `first` is the probability of the first place, `accused` what of the machine was blamed though nothing of it broke.
    """

    kind: str
    seed: int
    rank: int | None
    first: float
    first_class: str
    first_name: str
    accused: bool
    judged: tuple[
        tuple[float, bool], ...
    ]  # each verdict that is not "unknown": its probability, and whether it is true

    def is_first(self) -> bool:
        """Whether the first place is right."""
        return self.rank == 1

    def is_in_three(self) -> bool:
        """Whether one of the first three is right."""
        return self.rank is not None and self.rank <= 3

    def is_wrong_and_sure(self) -> bool:
        """Whether the first place is wrong at a high probability."""
        return self.rank != 1 and self.first >= SURE and self.first_class != "unknown"


def fits(answer: Answer, truth: Truth) -> bool:
    """Whether a verdict tells what broke."""
    if answer["class"] not in truth.classes:
        return False
    if truth.nobody:
        return answer.get("node") is None
    if truth.node is not None and answer.get("node") == truth.node:
        return True
    if truth.names & _names(answer):
        return True
    hit = frozenset(answer.get("nodes") or ())
    return bool(truth.nodes) and len(hit & truth.nodes) >= _ENOUGH * len(hit | truth.nodes)


def _names(answer: Answer) -> frozenset[str]:
    """All that a verdict is called; of a cable each end too."""
    whole = {str(name) for name in (answer["name"], *answer.get("names", ()))}
    return frozenset(whole | {end for name in whole for end in name.split("--")})


def judge(scenario: Scenario, answers: Sequence[Answer]) -> Outcome:
    """Compare the answers with the truth."""
    truth = scenario.truth
    right = [fits(answer, truth) or (truth.second is not None and fits(answer, truth.second)) for answer in answers]
    rank = next((number for number, is_right in enumerate(right, start=1) if is_right), None)
    if truth.second is not None and rank is not None and rank > 1:
        rank = None
    if truth.second is not None and not all(
        any(fits(answer, each) for answer in answers[:3]) for each in (truth, truth.second)
    ):
        rank = None if rank is None else max(rank, 4)
    if not answers and "planned" in truth.classes:
        rank = 1
    first = answers[0] if answers else {"class": "none", "name": "", "probability": 0.0}
    accused = truth.nobody and any(
        answer["class"] not in HARMLESS and (number == 0 or answer["probability"] >= 0.5)
        for number, answer in enumerate(answers)
    )
    judged = tuple(
        (float(answer["probability"]), is_right)
        for answer, is_right in zip(answers, right, strict=True)
        if answer["class"] != "unknown"
    )
    return Outcome(
        scenario.kind, scenario.seed, rank, float(first["probability"]), first["class"], first["name"], accused, judged
    )


class Examiner:
    """Takes scenarios in, each into a database of its own, and asks."""

    def __init__(self, folder: Path) -> None:
        """Keep everything under a folder; a site's topology is read once."""
        self.folder = folder
        self._sites: dict[tuple[int, int], Path] = {}

    def database(self, scenario: Scenario, without: frozenset[str] = frozenset()) -> str:
        """The URL of a database that holds the scenario."""
        site = scenario.archive.site
        place = self.folder / "case.db"
        for old in self.folder.glob("case.db*"):
            old.unlink()
        if "topology" not in without:
            shutil.copy(self._site(site), place)
        root = self.folder / "archive"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        scenario.archive.write_story(root, without)
        engine = open_database(f"sqlite:///{place}")
        try:
            if "topology" in without:
                migrate(engine)
            received = scenario.archive.clock(1800.0)
            summary = ingest_archive(engine, root, received=received)
        finally:
            engine.dispose()
        if summary.troubles:
            raise AssertionError(f"{scenario.kind} {scenario.seed}: {summary.troubles[0]}")
        return f"sqlite:///{place}"

    def replay(self, scenario: Scenario, off_s: Mapping[str, float], rng: random.Random) -> str:
        """The same as it comes in live: each node by its own clock, `off_s` wrong, in the order of true receipt.

        The kernel's events arrive in small batches whose receipt is told; lines that are received within a few
        seconds of each other change places.
        """
        url = self.database(scenario, frozenset({"kernel"}))
        engine = open_database(url)
        try:
            with writing(engine).begin() as connection:
                for received, events in _batches(scenario, off_s, rng):
                    update_incidents(connection, append_events(connection, events, received).new)
        finally:
            engine.dispose()
        return url

    def ask(self, scenario: Scenario, without: frozenset[str] = frozenset()) -> list[Answer]:
        """What `foreshock diagnose` answers of a scenario."""
        return ask(self.database(scenario, without), scenario.run)

    def outcome(self, scenario: Scenario, without: frozenset[str] = frozenset()) -> Outcome:
        """Take in, ask, judge."""
        return judge(scenario, self.ask(scenario, without))

    def _site(self, site: Site) -> Path:
        key = (site.variant, site.size)
        if key not in self._sites:
            root, place = self.folder / f"site{key[0]}-{key[1]}", self.folder / f"site{key[0]}-{key[1]}.db"
            _write_topology(site, root)
            engine = open_database(f"sqlite:///{place}")
            try:
                migrate(engine)
                ingest_archive(engine, root)
            finally:
                engine.dispose()
            self._sites[key] = place
        return self._sites[key]


def _batches(
    scenario: Scenario, off_s: Mapping[str, float], rng: random.Random
) -> Iterator[tuple[datetime, list[Event]]]:
    """The kernel's events in batches by true time, each event dated by its node's clock."""
    told: list[tuple[float, str, str]] = []
    for place, messages in scenario.archive.kernel.items():
        node = scenario.archive.site.nodes[place]
        told += [(at + rng.uniform(0.0, 3.0), node, text) for at, text in messages]
    told.sort()
    parsers: dict[str, Parser] = {}
    batch: list[Event] = []
    for number, (at, node, text) in enumerate(told):
        own = scenario.archive.clock(at + off_s.get(node, 0.0)).isoformat(timespec="microseconds")
        parser = parsers.setdefault(node, make_parser("kernel", Context(node=node)))
        batch += parser.feed(f"{own} {node} kernel: {text}", number + 1)
        if number + 1 == len(told) or told[number + 1][0] - at > 1.0:
            batch += [event for one in parsers.values() for event in one.flush()]
            parsers.clear()
            yield scenario.archive.clock(at + 3.5), batch
            batch = []


def _write_topology(site: Site, root: Path) -> None:
    (root / "fabric").mkdir(parents=True)
    (root / "fabric/ibnetdiscover.txt").write_text(topology_text(site))


def ask(url: str, run: str | None) -> list[Answer]:
    """The command's own answer, in this process. A cluster where nothing is to be explained has no verdict."""
    done = CliRunner().invoke(diagnose, ["--db", url, "--json", *([] if run is None else ["--run", run])])
    if done.exit_code == 2 and any(words in done.output for words in ("has no interruption", "no interrupted run")):
        return []
    if done.exit_code != 0:
        raise AssertionError(f"exit {done.exit_code}: {done.output[-400:]}") from done.exception
    answers: list[Answer] = json.loads(done.stdout)
    return answers
