"""How commands print: tables for people, JSON for programs."""

import json
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner

from cli.console.errors import CheckFailed, Failure
from cli.console.output import print_json, print_line, print_table


def test_a_table_is_as_wide_as_its_widest_cell_and_ends_without_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    """Names in capitals, blanks for underscores."""
    print_table([{"node": "gpu-1", "score_24h": 0.123456}, {"node": "a-long-name", "score_24h": 1.0}], ["node", "score_24h"])  # fmt: skip  # noqa: E501
    assert capsys.readouterr().out.splitlines() == [
        "NODE         SCORE 24H",
        "gpu-1        0.1235",
        "a-long-name  1",
    ]


def test_what_is_unknown_is_a_dash_and_zero_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """None and a key that is not there; columns that were not asked for are left out."""
    print_table([{"a": None, "b": 0, "c": 0.0, "d": "", "z": "no"}], ["a", "b", "c", "d", "e"])
    assert capsys.readouterr().out.splitlines()[1].split() == ["-", "0", "0", "-"]


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs that cut it see the columns."""
    print_table([], ["time", "lost_s"])
    assert capsys.readouterr().out == "TIME  LOST S\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567.0, "1.235e+06"), (0.00001234, "1.234e-05"), (12, "12"), (True, "True"), (99.5, "99.5")],
)
def test_a_figure_has_four_digits_and_a_count_all_of_them(
    value: object, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enough to decide by."""
    print_table([{"x": value}], ["x"])
    assert capsys.readouterr().out.splitlines()[1] == text


def test_json_is_one_document_whatever_computed_it(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Figures of numpy are plain numbers; what is no number is null."""
    print_json({"score": np.float64(0.5), "counts": np.array([1, 2]), "unknown": float("nan"), "name": "Grüße"})
    told = capfdbinary.readouterr().out
    assert json.loads(told) == {"score": 0.5, "counts": [1, 2], "unknown": None, "name": "Grüße"}
    assert told.endswith(b"}\n")
    assert told.count(b"\n") == 6 + 3


def test_a_line_is_one_document(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """JSON Lines: no line break but the last."""
    print_line({"message": "two\nlines"})
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b'{"message":"two\\nlines"}\n'


@pytest.mark.parametrize(("kind", "code"), [(Failure, 2), (CheckFailed, 3)])
def test_a_failure_is_one_sentence_on_stderr_and_a_code(kind: type[click.ClickException], code: int) -> None:
    """Bad input is not a failed check."""

    @click.command()
    def command() -> None:
        raise kind("nodes.csv, line 3: no node: name one")

    result = CliRunner().invoke(command)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == "Error: nodes.csv, line 3: no node: name one\n"
