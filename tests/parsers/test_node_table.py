"""An archive's nodes.csv: what is missing is unknown, what is broken is told of."""

from datetime import UTC, datetime

import pytest

from parsers.text.parser import ParseError
from parsers.text.table import nodes
from store.records.node import Node

HEAD = "node,rack,leaf,gpu_model,gpus,driver,in_service_since,in_service_until"


def test_a_row_is_a_node() -> None:
    """Every column, with an open end."""
    row = "gpu-017,r03,leaf-02,H100-SXM,8,550.90.07,2025-01-01T00:00:00Z,"
    assert list(nodes([HEAD, row])) == [
        Node("gpu-017", "r03", "leaf-02", "H100-SXM", 8, "550.90.07", datetime(2025, 1, 1, tzinfo=UTC), None)
    ]


def test_missing_columns_are_unknown_and_others_passed_over() -> None:
    """In any order, with a byte order mark, a day for a time."""
    found = list(nodes(["\ufeffin_service_since,node,owner", "2024-01-01,04f8c94e-7972,me"]))
    assert found == [Node("04f8c94e-7972", in_service_since=datetime(2024, 1, 1, tzinfo=UTC))]


@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_spreadsheet_may_part_its_columns_otherwise(sign: str) -> None:
    """By semicolons where a comma is in numbers, or by tabs, with a byte order mark and any capitals."""
    row = "gpu-017,r03,leaf-02,H100-SXM,8,550.90.07,2025-01-01T00:00:00Z,\r"
    found = list(nodes([f"\ufeff{HEAD.title()}".replace(",", sign), row.replace(",", sign)]))
    assert found == list(nodes([HEAD, row]))


@pytest.mark.parametrize("row", [",r1,,,8,,,", "a,,,,eight,,,", "a,,,,-1,,,", "a,,,,99999,,,", "a,,,,8,,soon,"])
def test_a_broken_row_is_told_of_and_the_rest_goes_on(row: str) -> None:
    """By the number of its line."""
    told: list[int] = []
    assert [node.node for node in nodes([HEAD, row, "b,,,,8,,,"], lambda line, _: told.append(line))] == ["b"]
    assert told == [2]
    assert [node.node for node in nodes([HEAD, row, "b,,,,8,,,"])] == ["b"]


@pytest.mark.parametrize("lines", [[], ["rack,leaf", "r1,l1"], ["not a table"]])
def test_a_table_without_a_node_column_is_refused(lines: list[str]) -> None:
    """With what the first line should be."""
    with pytest.raises(ParseError, match="no column `node`"):
        list(nodes(lines))


def test_text_that_is_no_csv_is_refused() -> None:
    """With the line at which it ends to be one."""
    with pytest.raises(ParseError, match="comma-separated"):
        list(nodes(["node,rack", 'a,"b"c']))
