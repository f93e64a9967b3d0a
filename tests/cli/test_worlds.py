"""`foreshock worlds`: the command at a small size, and what it counts as elsewhere."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from cli.console.errors import Failure
from cli.main import foreshock
from cli.worlds.command import _draw
from cli.worlds.judged import WorldRows, pooled_lesson, read_world, report, with_elsewhere, with_informed
from cli.worlds.world import WORLDS, World, further, make_world, worlds_of
from simulator.mechanisms.registry import MECHANISMS

CHOSEN = ("repeat_offenders+no_telemetry", "log_habits+no_telemetry")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the worlds are made, once."""
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture(scope="module")
def read(directory: Path) -> list[WorldRows]:
    """Two small worlds, with what each says of itself."""
    worlds = worlds_of(CHOSEN, 60, 36, 3)
    assert [make_world(directory, world) for world in worlds] == [True, True]
    return [read_world(directory, world) for world in worlds]


def test_every_world_names_mechanisms_that_there_are() -> None:
    """And at least eight worlds differ from the usual one."""
    assert all(name in MECHANISMS for names in WORLDS.values() for name in names)
    assert sum(bool(names) for names in WORLDS.values()) >= 8


def test_every_world_has_a_seed_of_its_own() -> None:
    """Those that are joined of other worlds, too; in which order they are named changes nothing."""
    joined = ("ramps+bursts", "ramps+no_telemetry", "bursts+no_telemetry", "ramps+bursts+no_telemetry")
    seeds = [world.seed for seed in (1, 2) for world in worlds_of((*WORLDS, *joined), 60, 36, seed)]
    assert len(set(seeds)) == 2 * (len(WORLDS) + len(joined))
    assert worlds_of(["bursts+ramps"], 60, 36, 1)[0].seed == worlds_of(["ramps+bursts"], 60, 36, 1)[0].seed


def test_a_world_that_is_done_is_not_made_again(directory: Path, read: list[WorldRows]) -> None:
    """One of other settings is; half a world is made anew, and its archive is not kept."""
    world = read[1].world
    written = (directory / world.name / "world.json").stat().st_mtime_ns
    assert make_world(directory, world) is False
    assert (directory / world.name / "world.json").stat().st_mtime_ns == written
    assert not (directory / world.name / "archive").exists()
    small = World("half", ("no_telemetry",), 8, 3, 1)
    assert make_world(directory, small) is True
    (directory / "half" / "world.json").unlink()
    assert make_world(directory, small) is True
    assert make_world(directory, replace(small, seed=2)) is True


def test_a_folder_that_is_no_world_is_left_alone(tmp_path: Path) -> None:
    """Somebody's own, of the same name: refused, and not a byte of it is touched."""
    own = tmp_path / "ramps" / "thesis.txt"
    own.parent.mkdir()
    own.write_text("years of work")
    with pytest.raises(ValueError, match="is no world that this command has made"):
        make_world(tmp_path, World("ramps", ("ramps",), 8, 4, 1))
    assert own.read_text() == "years of work"


def test_the_oracle_ranks_better_than_history_on_the_same_rows(read: list[WorldRows]) -> None:
    """On all rows together; every figure with its interval, history against itself is no gain."""
    found = report(read)["away"]
    oracle, history = found["rankings"]["oracle"], found["rankings"]["history_count"]
    assert oracle["roc_auc"] > history["roc_auc"]
    assert oracle["of_oracle"] == pytest.approx(1.0)
    assert history["over"]["history_count"]["average_precision"] == {"interval": [0.0, 0.0], "seen_from": 0.0}
    assert found["rows"] == sum(int(one.judged.known.sum()) for one in read)
    assert oracle["over"]["unaided"]["average_precision"]["interval"][1] > 0
    assert oracle["over"]["unaided"]["average_precision"]["seen_from"] > 0
    assert sum(part["positives"] for part in oracle["reliability"]) == found["positives"]
    assert history["reliability"] is None
    low, high = oracle["intervals"]["roc_auc"]
    assert low <= oracle["roc_auc"] <= high
    assert 0 < oracle["top_1"]["said"] < 1
    assert [one["nodes"] for one in oracle["lists"]] == [1, 5, 10]


def test_elsewhere_learns_from_worlds_that_share_no_mechanism(read: list[WorldRows]) -> None:
    """Two worlds without telemetry do not teach each other; one that differs in all does."""
    teacher, of = read
    assert teacher.world.shares(of.world)
    assert with_elsewhere(read, of).rankings.keys() == of.rankings.keys()
    other = replace(teacher, world=replace(teacher.world, name="other", mechanisms=("repeat_offenders",)))
    taught = with_elsewhere([other, of], of)
    said = taught.rankings["elsewhere"]
    assert len(said) == len(taught.judged.scores)
    assert ((said >= 0) & (said <= 1)).all()
    assert np.array_equal(with_elsewhere([other], of).rankings["elsewhere"], said)


def test_informed_learns_from_further_worlds_of_the_same_mechanisms(directory: Path, read: list[WorldRows]) -> None:
    """Other clusters than the one that is judged, whose outages it does not see; of none there is no such ranking."""
    of = read[0]
    others = further(of.world, 2)
    assert len({of.world.seed, *(other.seed for other in further(of.world, 100))}) == 101
    assert [other.mechanisms for other in others] == [of.world.mechanisms] * 2
    assert [make_world(directory, other) for other in others] == [True, True]
    said = with_informed(directory, 2, of).rankings["informed"]
    assert len(said) == len(of.judged.scores)
    assert ((said >= 0) & (said <= 1)).all()
    blind = replace(of, judged=replace(of.judged, labels=of.judged.labels.only(np.zeros(0, dtype=np.int64))))
    assert np.array_equal(with_informed(directory, 2, replace(blind, lesson=of.lesson.only(~of.lesson.positive)))
                          .rankings["informed"], said)  # fmt: skip
    assert with_informed(directory, 0, of) is of


def test_the_command_prints_json(tmp_path: Path) -> None:
    """Worlds too small to learn from are judged by all that needs no learning."""
    done = CliRunner().invoke(
        foreshock,
        ["worlds", str(tmp_path), "--worlds", "memoryless+no_telemetry", "--nodes", "16", "--days", "34", "--json"],
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert [one["world"] for one in found["worlds"]] == ["memoryless+no_telemetry"]
    assert found["worlds"][0]["rows"] > 20


def test_what_was_said_and_what_came_is_drawn(read: list[WorldRows], tmp_path: Path) -> None:
    """As a file of its own, with a dot for each part of the scores; without a model it says what is wanting."""
    found = report(read)
    _draw(found, tmp_path / "plot.svg")
    drawn = ElementTree.parse(tmp_path / "plot.svg").getroot()  # noqa: S314  # our own
    dots = drawn.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == len(found["away"]["rankings"]["model"]["reliability"])
    with pytest.raises(Failure, match="nothing to draw"):
        _draw({"away": None}, tmp_path / "other.svg")
    with pytest.raises(Failure, match="cannot write"):
        _draw(found, tmp_path / "none" / "plot.svg")


def test_a_world_of_no_such_mechanism_is_refused(tmp_path: Path) -> None:
    """In one sentence, before anything is made."""
    done = CliRunner().invoke(foreshock, ["worlds", str(tmp_path), "--worlds", "usual,../etc"])
    assert done.exit_code == 2
    assert "a mechanism '../etc' is not known" in done.output
    assert list(tmp_path.iterdir()) == []


def test_worlds_are_pooled_as_if_each_row_stood_for_as_many(read: list[WorldRows]) -> None:
    """A world that kept a tenth of its negatives counts no less than one that kept all; all positives stay."""
    whole, other = (one.lesson for one in read)
    kept = other.positive | (np.random.default_rng(1).random(len(other.positive)) < 0.1)
    left = float((kept & ~other.positive).sum() / (~other.positive).sum())
    thin = replace(other.only(kept), sample=replace(other.only(kept).sample, negative_share=left))
    pooled = pooled_lesson([whole, thin], whole.features)
    assert pooled.positive.sum() == whole.positive.sum() + other.positive.sum()
    mine = pooled.sample.rows.node < len(np.unique(whole.sample.rows.node))
    for of_world, lesson in ((mine, whole), (~mine, other)):
        negatives = (of_world & ~pooled.positive).sum() / pooled.sample.negative_share
        assert negatives == pytest.approx((~lesson.positive).sum(), rel=0.15)
