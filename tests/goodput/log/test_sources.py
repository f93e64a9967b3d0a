"""Several sources of one run as one log: each start and stall once, whoever tells it best."""

from goodput.log.sources import merged
from goodput.log.training_log import TrainingLine


def work(*times: int, first: int = 1) -> list[TrainingLine]:
    """Iteration lines at these seconds, a second each."""
    return [TrainingLine("iteration", at * 1000, first + place, 1, 1000.0) for place, at in enumerate(times)]


def save(at: int | None, iteration: int | None) -> TrainingLine:
    """A finished save."""
    return TrainingLine("checkpoint_save", None if at is None else at * 1000, iteration, duration_ms=500)


def test_a_run_with_one_source_is_read_as_it_is() -> None:
    """Even out of order, even without times."""
    lines = [*work(5, 3), TrainingLine("checkpoint_load", None)]
    assert merged({"training": lines}) == lines
    assert merged({"training": lines, "hook": []}) == lines
    assert merged({}) == []


def test_the_best_source_of_a_start_tells_of_it_alone() -> None:
    """A log's lines of the same steps are not counted again."""
    hook = work(10, 11, 12)
    assert merged({"training": work(10, 12), "hook": hook}) == hook
    assert merged({"dlrover": work(10, 12), "training": hook}) == hook


def test_starts_that_the_best_source_did_not_see_are_told_by_others() -> None:
    """The hook was put in after the first attempt."""
    first, hook = work(1, 2, 3), work(10, 11)
    assert merged({"hook": hook, "training": first}) == [*first, *hook]
    assert merged({"hook": hook, "training": [*first, *work(10, 11)]}) == [*first, *hook]


def test_what_a_source_never_tells_another_may() -> None:
    """Saves of the log beside a hook that tells steps alone; but not where the hook tells saves."""
    hook, told = work(10, 11, 12), [*work(10), save(11, 2), *work(12, first=3)]
    assert merged({"hook": hook, "training": told}) == [*hook[:2], told[1], hook[2]]
    with_saves = [*hook, save(12, 3)]
    assert merged({"hook": with_saves, "training": told}) == with_saves


def test_a_save_of_a_coarser_clock_stands_behind_its_iteration() -> None:
    """The log prints whole seconds: its save seems to lie before the step that it kept."""
    hook = [TrainingLine("iteration", 10_900, 1, 1, 900.0), TrainingLine("iteration", 12_900, 2, 1, 900.0)]
    told = [*work(10), save(None, 1), TrainingLine("iteration", 12_000, 2, 1, 1000.0)]
    assert [line.kind for line in merged({"hook": hook, "training": told})] == [
        "iteration",
        "checkpoint_save",
        "iteration",
    ]


def test_a_log_without_times_gives_way_to_one_with() -> None:
    """Nobody knows which start its lines are of; alone it counts."""
    undated = [TrainingLine("iteration", None, 1, 1, 1000.0)]
    assert merged({"hook": work(10), "training": undated}) == work(10)
    assert merged({"training": undated}) == undated


def test_a_source_without_any_iteration_leads_only_alone() -> None:
    """A hook that tells saves alone does not keep the log's steps out."""
    saves = [TrainingLine("training_start", 9_000), save(11, 2)]
    found = merged({"hook": saves, "training": work(10, 11, 12)})
    assert [line.kind for line in found].count("iteration") == 3
    assert save(11, 2) in found
