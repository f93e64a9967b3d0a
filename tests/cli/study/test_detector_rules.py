"""Detectors as data: their files, what each rule says of a tape, and that none looks ahead."""

from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.study.detector_rules import (
    XID,
    Detector,
    DetectorError,
    DetectorRule,
    holds_of,
    read_detectors,
    speaks,
    unjudged,
    xid_changes,
)
from cli.study.tapes import NodeTape, read_tapes

GWDG = Path(__file__).parents[3] / "fixtures" / "real" / "gwdg"
BOOT = "node_boot_time_seconds"


def tape(minutes: int = 10, **columns: list[Any]) -> NodeTape:
    """A node of two GPUs: `xid=[...]` and such are columns of both GPUs, `boot=` and metrics of the node of one."""
    length = max(len(values) for values in columns.values())
    times = np.datetime64("2025-03-01T00:00:00") + np.arange(length) * np.timedelta64(minutes, "m")
    boot = columns.pop("boot", [1e9] * length)
    host = {BOOT: np.array(boot, dtype=float)[:, None]}
    gpu = {
        {"xid": XID, "temp": "DCGM_FI_DEV_GPU_TEMP"}.get(name, name): np.array(values, dtype=float).reshape(length, -1)
        for name, values in columns.items()
    }
    return NodeTape("n", times, gpu, host)


NONE = float("nan")


def starts(rule: DetectorRule, one: NodeTape) -> list[int]:
    """The samples on which a rule is true."""
    return [int(place) for place in np.flatnonzero(speaks(rule, one))]


def test_a_change_of_the_gauge_is_an_xid_and_what_a_tape_begins_with_is_none() -> None:
    """The gauge is the last Xid and stays; a gap in between is no change."""
    one = tape(xid=[79, 79, 0, 31, 31, NONE, 31, 79])
    assert xid_changes(one) == [(3, 0, 31), (7, 0, 79)]
    assert starts(DetectorRule("r", "xid", codes=frozenset({79})), one) == [7]
    assert starts(DetectorRule("r", "xid", codes_except=frozenset({79})), one) == [3]
    assert starts(DetectorRule("r", "xid", severity="fatal"), one) == [7]


def test_xids_of_one_gpu_are_counted_within_a_time() -> None:
    """Two GPUs with one each are not two of one."""
    rule = DetectorRule("r", "xid", codes=frozenset({31}), count=2, within_h=1)
    assert starts(rule, tape(xid=[[0, 0], [31, 0], [0, 31], [31, 31], [0, 0]])) == [3]
    assert starts(rule, tape(minutes=60, xid=[0, 31, 0, 0, 31])) == []


def test_a_level_must_last() -> None:
    """Both sides, any GPU; a missing value is neither."""
    one = tape(temp=[[80, 20], [90, 20], [90, 20], [NONE, 20], [90, 20], [20, 91]])
    assert starts(DetectorRule("r", "level", metric="DCGM_FI_DEV_GPU_TEMP", above=85), one) == [1, 2, 4, 5]
    assert starts(DetectorRule("r", "level", metric="DCGM_FI_DEV_GPU_TEMP", above=85, for_min=5), one) == [2, 5]
    assert starts(DetectorRule("r", "level", metric="DCGM_FI_DEV_GPU_TEMP", below=30), one) == [0, 1, 2, 3, 4, 5]
    assert starts(DetectorRule("r", "level", metric="nobody has it", above=0), one) == []


def test_a_counter_rises_and_one_that_fell_began_anew() -> None:
    """Across a gap, too."""
    one = tape(errors=[5, 5, 6, NONE, 8, 2, 2])
    assert starts(DetectorRule("r", "rise", metric="errors", above=0), one) == [2, 4]
    assert starts(DetectorRule("r", "rise", metric="errors", above=1), one) == [4]


def test_a_gpu_without_a_row_is_missing() -> None:
    """By the node's own word only while it is up."""
    one = tape(temp=[[1, 1], [1, 1], [1, NONE], [NONE, NONE], [1, 1]], boot=[9, 9, 9, NONE, 9])
    assert starts(DetectorRule("r", "missing"), one) == [2, 3]
    assert starts(DetectorRule("r", "missing", while_up=True), one) == [2]


def test_a_hold_ends_with_a_boot_or_with_its_ground_and_those_of_a_day_are_one() -> None:
    """The boot after the rule was last true; none: the hold stays as long as the tape."""
    reading = Detector("d", "t", "r", (), (DetectorRule("x", "xid", codes=frozenset({79})),))
    (hold,) = holds_of(reading, tape(xid=[0, 79, 79, 79, 0, 0], boot=[1, 1, 1, 1, 1e6, 1e6]))
    assert (hold.start, hold.end) == (datetime(2025, 3, 1, 0, 10, tzinfo=UTC), datetime(2025, 3, 1, 0, 40, tzinfo=UTC))
    (stays,) = holds_of(reading, tape(xid=[0, 79, 0, 0]))
    assert stays.end == datetime(2025, 3, 1, 0, 30, tzinfo=UTC)
    level = Detector("d", "t", "r", (), (DetectorRule("x", "level", metric=XID, above=0, until="clear"),))
    (joined,) = holds_of(level, tape(xid=[0, 79, 0, 79, 0]))
    assert joined.end == datetime(2025, 3, 1, 0, 40, tzinfo=UTC)
    assert len(holds_of(level, tape(minutes=1500, xid=[0, 79, 0, 79, 0]))) == 2


VALUES = st.sampled_from([NONE, 0.0, 31.0, 79.0, 90.0])
RULES = st.builds(
    DetectorRule,
    name=st.just("r"),
    on=st.sampled_from(["xid", "level", "rise", "missing"]),
    metric=st.just(XID),
    count=st.integers(1, 3),
    within_h=st.sampled_from([0.2, 24.0]),
    above=st.sampled_from([0.0, 50.0]),
    for_min=st.sampled_from([0.0, 15.0]),
    while_up=st.booleans(),
)


@given(rows=st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=14), rule=RULES, cut=st.integers(0, 13))
def test_no_rule_looks_ahead(rows: list[tuple[float, float]], rule: DetectorRule, cut: int) -> None:
    """A tape that ends at a sample says of it, and of those before, what the whole tape says."""
    one = tape(xid=rows, boot=[NONE if row[0] == 90.0 else 1e9 for row in rows])
    cut = min(cut, len(rows) - 1)
    assert list(speaks(rule, one)[: cut + 1]) == list(speaks(rule, one.until(cut)))


@settings(max_examples=8, deadline=None)
@given(share=st.floats(0.05, 0.99), place=st.integers(0, 8))
def test_no_shipped_rule_looks_ahead_on_a_real_tape(share: float, place: int) -> None:
    """Each of every detector, on each real tape, cut anywhere."""
    one = tapes()[place % len(tapes())]
    cut = int(share * (len(one.times) - 1))
    shorter = one.until(cut)
    for detector in read_detectors().values():
        for rule in detector.rules:
            assert np.array_equal(speaks(rule, one)[: cut + 1], speaks(rule, shorter)), (detector.name, rule.name)


@cache
def tapes() -> list[NodeTape]:
    """The real ones."""
    return read_tapes(GWDG)


def test_every_shipped_detector_says_where_it_comes_from() -> None:
    """An address, a date, and that it is a reading; its name is that of its file."""
    found = read_detectors()
    assert list(found) == ["dcgm-alerts", "fatal-xid", "gpud", "nhc", "node-mixin", "nvsentinel"]
    for detector in found.values():
        assert detector.sources
        assert all(source.url.startswith("https://") for source in detector.sources)
        assert all(date(2026, 11, 1) <= source.read <= date(2026, 12, 31) for source in detector.sources)
        assert detector.rules
        assert len(detector.reading) > 80
    assert all("eading" in one.reading or "habit" in one.reading for one in found.values())
    assert "thermal violation rises" in unjudged(found["dcgm-alerts"], tapes())
    assert unjudged(found["fatal-xid"], tapes()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = 1", "source"),
        ("name = [", "d.toml: "),
        (
            'name = "d"\ntitle = "t"\nreading = "r"\nsource = []\n[[rule]]\nname = "x"\non = "xid"\ncode = 1',
            "no such key: code",
        ),
        ('name = "d"\ntitle = "t"\nreading = "r"\nsource = []\n[[rule]]\nname = "x"\non = "smell"', "`on` is one of"),
        (
            'name = "d"\ntitle = "t"\nreading = "r"\nsource = []\n[[rule]]\nname = "x"\non = "xid"\nuntil = "noon"',
            "`until` is one of",
        ),
    ],
)
def test_a_file_that_is_no_detector_is_named(tmp_path: Path, text: str, said: str) -> None:
    """With the key."""
    (tmp_path / "d.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DetectorError, match=r"d\.toml") as caught:
        read_detectors(tmp_path)
    assert said in str(caught.value)
