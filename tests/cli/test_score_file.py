"""Scores read back from the CSV of a backtest; what does not hold is refused with its line."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.config.policy_trial import read_scores
from cli.console.errors import Failure

NOW = datetime(2025, 3, 1, tzinfo=UTC)


def test_scores_are_read_by_moment(tmp_path: Path) -> None:
    """In any order; times of any zone."""
    file = tmp_path / "s.csv"
    file.write_text(
        "time,node,score\n2025-03-02T00:00:00.000000Z,a,0.5\n2025-03-01T00:00:00Z,a,0\n2025-03-01T02:00:00+02:00,b,1\n"
    )
    found = read_scores(file)
    assert found.newest(NOW) == (NOW, {"a": 0.0, "b": 1.0})
    assert found.newest(NOW + timedelta(days=1)) == (NOW + timedelta(days=1), {"a": 0.5})
    assert found.nodes == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the header must be time,node,score"),
        ("node,time,score\n", "line 1: the header must be"),
        ("time,node,score\n", "has no scores"),
        ("time,node,score\n2025-03-01T00:00:00Z,a,0.1\n2025-03-01T00:00:00Z,a\n", "line 3: 2 cells instead of 3"),
        ("time,node,score\n\n", "line 2: 0 cells"),
        ("time,node,score\n2025-03-01T00:00:00Z,,0.1\n", "line 2: no node"),
        ("time,node,score\nyesterday,a,0.1\n", "line 2: "),
        ("time,node,score\n2025-03-01T00:00:00Z,a,1.1\n", "line 2: score '1.1' is no number from 0 to 1"),
        ("time,node,score\n2025-03-01T00:00:00Z,a,-0.1\n", "no number from 0 to 1"),
        ("time,node,score\n2025-03-01T00:00:00Z,a,nan\n", "no number from 0 to 1"),
        ("time,node,score\n2025-03-01T00:00:00Z,a,\n", "no number from 0 to 1"),
        ('time,node,score\n2025-03-01T00:00:00Z,"a\x00,1\n', ""),
    ],
)
def test_what_does_not_hold_is_refused_with_its_place_and_a_remedy(tmp_path: Path, text: str, words: str) -> None:
    """Never a traceback."""
    file = tmp_path / "s.csv"
    file.write_text(text)
    with pytest.raises(Failure) as refused:
        read_scores(file)
    assert str(file) in refused.value.message
    assert words in refused.value.message
    assert "foreshock backtest --horizon-h 24 --scores FILE" in refused.value.message


def test_what_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    """With the file's name."""
    file = tmp_path / "s.csv"
    with pytest.raises(Failure, match=r"cannot read .*s\.csv"):
        read_scores(file)
    with pytest.raises(Failure, match="cannot read"):
        read_scores(tmp_path)
    file.write_bytes(b"time,node,score\n\xff\xfe,a,1\n")
    with pytest.raises(Failure, match=r"s\.csv is no CSV of scores"):
        read_scores(file)
