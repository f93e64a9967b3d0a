"""The rules by which a node is written, and the marks that we leave: pure."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.reconcile.actuator import Order, OrderReport
from schedulers.slurm.actuator import name_lists, rounds
from schedulers.slurm.commands import SlurmSettings
from schedulers.slurm.node import (
    SlurmMark,
    SlurmNode,
    comment_with,
    comment_without,
    read_comment,
    read_reason,
    reason_of,
)
from schedulers.slurm.plan import NodeUpdate, SlurmState, plan
from store.records.hint import HintAction

UNTIL = datetime(2026, 11, 23, tzinfo=UTC)
IDENTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,40}", fullmatch=True)
ACTIONS: list[HintAction] = ["watch", "avoid", "cordon", "drain", "release"]
BASES = ["IDLE", "ALLOCATED", "MIXED", "DOWN", "UNKNOWN"]
FLAGS = ["DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "COMPLETING", "RESERVED", "POWERED_DOWN", "INVALID_REG"]
REASONS = ["", "fan", "foreshock: x action=drain id=h-1", "foreshock: x action=cordon id=h-2", "foreshock: by hand"]
COMMENTS = ["", "rack 4", "[foreshock: avoid id=h-1 weight=1000000 was=7]", "c [foreshock: watch id=h-2]"]

nodes = st.builds(
    SlurmNode,
    name=st.just("n1"),
    states=st.builds(
        lambda base, flags: frozenset({base, *flags}), st.sampled_from(BASES), st.sets(st.sampled_from(FLAGS))
    ),
    reason=st.sampled_from(REASONS),
    weight=st.sampled_from([1, 7, 1_000_000]),
    comment=st.sampled_from(COMMENTS),
    is_doubtful=st.booleans(),
)


def ground(node: SlurmNode, **settings: object) -> SlurmState:
    """What a plan goes by, of one node."""
    return SlurmState(SlurmSettings(**settings), {node.name: node}, {})  # type: ignore[arg-type]


def after(node: SlurmNode, words: tuple[str, ...]) -> SlurmNode:
    """What Slurm makes of an update, as it was found to."""
    for word in words:
        key, _, value = word.partition("=")
        if word in ("state=drain", "state=fail"):
            node = replace(node, states=node.states | {value.upper()})
        elif word == "state=undrain":
            node = replace(node, states=node.states - {"DRAIN"})  # its reason stays, as in 24.11
        elif word == "state=resume":
            node = replace(node, states=node.states - {"DRAIN", "FAIL", "DOWN"})
        elif key == "weight":
            node = replace(node, weight=int(value))
        else:
            node = replace(node, **{key: value})
    return node


@given(nodes, st.sampled_from(ACTIONS), st.sampled_from(["drain", "fail"]), st.sampled_from(["weight", "mark", "none"]))
def test_what_is_another_s_is_never_written_and_what_is_written_is_done(
    node: SlurmNode, action: HintAction, hard: str, soft: str
) -> None:
    """Whatever a node looks like: one update, after which the same order finds nothing to do."""
    order = Order("n1", "h-1", action, "foreshock: x", UNTIL)
    means = ground(node, hard=hard, soft=soft)
    step = plan(order, means)
    if isinstance(step, OrderReport):
        return
    is_ours = read_reason(node.reason) is not None and not node.is_doubtful
    is_out = bool(node.states & {"DRAIN", "FAIL", "DOWN", "MAINT", "INVALID_REG"})
    states = [word for word in step.words if word.startswith(("state=", "reason="))]
    if states:
        assert is_ours or (not is_out and action in ("cordon", "drain"))
        assert not (action == "release" and read_reason(node.reason) != SlurmMark("drain", "h-1"))
    if "DOWN" in node.states:
        assert "state=resume" not in step.words
    changed = after(node, step.words)
    assert comment_without(changed.comment) == comment_without(node.comment)
    again = plan(order, ground(changed, hard=hard, soft=soft))
    assert isinstance(again, OrderReport)
    # Without our drain, what else keeps work off it comes to light.
    assert again.result == "done" or (again.result == "foreign" and node.states & {"DOWN", "MAINT", "INVALID_REG"})


@given(nodes, st.permutations(["cordon", "avoid", "watch", "drain"]))
def test_all_that_we_do_to_a_node_is_undone_by_a_release(node: SlurmNode, actions: list[HintAction]) -> None:
    """Weight, comment and states are as they were, whatever was asked in between."""
    clean = replace(node, states=node.states - {"FAIL", "DRAIN", "DOWN", "MAINT", "INVALID_REG"} | {"IDLE"}, reason="")
    clean = replace(clean, comment=comment_without(node.comment), is_doubtful=False)
    changed = clean
    for action in (*actions, "release"):
        step = plan(Order("n1", "h-1", action, "foreshock: x", UNTIL), ground(changed))  # type: ignore[arg-type]
        assert isinstance(step, NodeUpdate)
        changed = after(changed, step.words)
    assert read_reason(changed.reason) is None
    assert replace(changed, reason="") == clean


def test_a_drain_of_another_s_hint_is_not_released() -> None:
    """Nor a mark; what bears no mark of ours and no reason neither."""
    ours = SlurmNode("n1", frozenset({"IDLE", "DRAIN"}), "foreshock: x action=drain id=h-2", weight=1)
    marked = SlurmNode("n1", frozenset({"IDLE"}), weight=1, comment="[foreshock: watch id=h-2]")
    stale = SlurmNode("n1", frozenset({"IDLE"}), "foreshock: x action=drain id=h-1", weight=1)
    order = Order("n1", "h-1", "release", "foreshock: x", UNTIL)
    for node in (ours, marked, stale, replace(ours, is_doubtful=True)):
        step = plan(order, ground(node))
        assert isinstance(step, OrderReport)
        assert step.result == "done"
    doubtful = replace(marked, comment="[foreshock: watch id=h-1]", is_doubtful=True)
    assert isinstance(plan(order, ground(doubtful)), OrderReport)
    assert isinstance(plan(order, ground(replace(doubtful, is_doubtful=False))), NodeUpdate)


@given(st.text(max_size=400), st.sampled_from(["cordon", "drain"]), IDENTS)
def test_a_reason_of_ours_is_read_back_whatever_its_text(text: str, action: HintAction, hint: str) -> None:
    """As one line in which nothing reads as a field or a stamp."""
    reason = reason_of(text, action, hint)
    assert read_reason(reason) == SlurmMark(action, hint)
    assert reason.isprintable()
    assert not set("[]") & set(reason)
    assert len(reason) < 500


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fan",
        "foreshock: fan",
        "Foreshock: x id=h",
        "see foreshock: x id=h-1",
        "foreshock: x id=h-1 and more",
        "NHC: id=h",
    ],
)
def test_a_reason_that_is_not_all_ours_is_none_of_ours(text: str) -> None:
    """A person who adds a word to ours has taken the node over."""
    assert read_reason(text) is None


@given(st.text(alphabet="abc =[]:", max_size=30), IDENTS, st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_comment_keeps_what_stood_in_it(text: str, hint: str, weight: int, was: int) -> None:
    """One mark of ours at its end; without it, it is as before."""
    mark = SlurmMark("avoid", hint, weight, was)
    marked = comment_with(comment_with(text, SlurmMark("watch", "old")), mark)
    assert read_comment(marked) == mark
    assert comment_without(marked) == text.strip()


def words_of(action: HintAction, states: set[str], reason: str = "", comment: str = "", weight: int = 1) -> object:
    """The words of an update, or the result of a report."""
    node = SlurmNode("n1", frozenset(states), reason, weight=weight, comment=comment)
    step = plan(Order("n1", "h-1", action, "foreshock: x", UNTIL), ground(node))
    return step.words if isinstance(step, NodeUpdate) else step.result


OURS = "foreshock: x action=drain id=h-1"
MARK = "[foreshock: avoid id=h-1 weight=1000000 was=7]"


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (words_of("release", {"IDLE", "DRAIN"}, OURS), ("state=undrain", "reason=taken off by foreshock")),
        (words_of("release", {"IDLE", "FAIL"}, OURS), ("state=resume", "reason=taken off by foreshock")),
        (words_of("release", {"DOWN", "FAIL"}, OURS), "retry"),
        (words_of("avoid", {"DOWN", "FAIL"}, OURS), "retry"),
        (words_of("release", {"DOWN", "DRAIN", "NOT_RESPONDING"}, OURS), ("state=undrain", "reason=Not responding")),
        (words_of("release", {"IDLE"}, "", MARK, 1_000_000), ("weight=7", "comment=")),
        (words_of("release", {"IDLE"}, "", MARK, 55), ("comment=",)),
        (words_of("avoid", {"IDLE"}, "", MARK, 1), ("weight=1000000", f"comment={MARK}")),
        (words_of("avoid", {"IDLE"}, "", MARK, 1_000_000), "done"),
        (words_of("avoid", {"IDLE"}, "", "", 2_000_000)[0], "weight=2000000"),  # type: ignore[index]
        (words_of("cordon", {"IDLE"}, "", "foreshock=off"), "refused"),
        (words_of("release", {"IDLE", "DRAIN"}, OURS, "foreshock=off")[0], "state=undrain"),  # type: ignore[index]
        (words_of("requeue", {"IDLE"}), "refused"),
    ],
)
def test_the_words_of_an_update(asked: object, wanted: object) -> None:
    """What scontrol is told, case by case."""
    assert asked == wanted


def test_names_are_cut_to_what_a_command_may_hold() -> None:
    """12,500 nodes take a few calls; none is lost or told twice."""
    names = [f"gpu-cluster-a-{number:05d}" for number in range(12_500)]
    lists = list(name_lists([*names, names[0]]))
    assert [name for some in lists for name in some] == names
    assert len(lists) == 5
    assert max(len(",".join(some)) for some in lists) <= 60_000


def test_a_node_is_written_once_a_round() -> None:
    """In the order that was given."""
    orders = [Order(node, "h", "drain", "x", UNTIL) for node in ("a", "b", "a", "c", "d", "e")]
    assert [[order.node for order in some] for some in rounds(orders, 3)] == [["a", "b"], ["a", "c", "d"], ["e"]]
