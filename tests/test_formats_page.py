"""docs/formats.md is what the code says; every kind of event is explained."""

import json
from pathlib import Path

import pytest
from formats_page import FIXTURES, kinds_of, page

from parsers.registry import PARSERS
from store.records.catalog_rows import rows
from store.records.fault_catalog import kind_meanings

ROOT = Path(__file__).parents[1]
# Judged by their code: the page says so too.
BY_CODE = {"fabricmanager_nvswitch", "quoted_xid", "sxid", "sxid_detail", "xid"}


def test_the_page_of_formats_is_up_to_date() -> None:
    """Run `make formats` after a change of a format."""
    assert (ROOT / "docs" / "formats.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_every_kind_that_a_format_gives_is_in_the_table_of_kinds(name: str) -> None:
    """An operator can look each one up."""
    known = {kind for kind, _variant in kind_meanings()}
    assert set(kinds_of(name)) <= known | BY_CODE


def test_every_row_of_the_table_of_kinds_names_its_source_once() -> None:
    """No kind and variant twice, nothing left empty but the variant."""
    table = list(rows("kinds"))
    assert len({(row["kind"], row["variant"]) for row in table}) == len(table)
    for row in table:
        assert all(row[name].strip() for name in ("kind", "severity", "cause", "action", "description", "source")), row


def test_every_kind_in_the_table_is_given_by_a_fixture_or_a_collector_or_named_by_a_table() -> None:
    """A row that nothing gives is a row that nobody tested."""
    given = {kind for name in PARSERS for kind in kinds_of(name)}
    named = {row["kind"] for table in ("detectors", "ufm") for row in rows(table)}
    counted = {row["kind"] for row in rows("counters")}
    collectors = "".join(path.read_text() for path in (FIXTURES.parent / "collectors").glob("*.py"))
    told = {kind for kind, _variant in kind_meanings() if f'"{kind}"' in collectors}
    assert {kind for kind, _variant in kind_meanings()} - given - named - counted - told == set()


def test_fixtures_are_of_registered_formats() -> None:
    """No folder is left over; bodies as log shippers post them hold lines of any format, those of webhooks none."""
    assert {path.name for path in FIXTURES.iterdir() if path.is_dir()} - {"shippers", "webhooks"} == set(PARSERS)


def test_every_event_of_a_fixture_is_whole() -> None:
    """Every key of DESIGN's record is there."""
    for path in FIXTURES.glob("*/*.jsonl"):
        for line in path.read_text().splitlines():
            assert {"line", "time", "node", "source", "kind", "code", "severity", "cause", "action"} <= set(
                json.loads(line)
            ), path
