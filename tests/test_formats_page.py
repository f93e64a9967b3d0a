"""docs/formats.md is what the code says; every kind of event is explained."""

import json

import pytest
from formats_page import FIXTURES, PAGE, SOURCES, kinds_of, page, sources

from parsers.registry import PARSERS
from store.catalog_rows import rows
from store.records.event_sources import CHECKPOINTS, RUN_LOGS
from store.records.fault_catalog import kind_meanings

# Judged by their code: the page says so too.
BY_CODE = {"fabricmanager_nvswitch", "quoted_xid", "sxid", "sxid_detail", "xid"}


def test_the_page_of_formats_is_up_to_date() -> None:
    """It shows every format, its sample and its kinds."""
    assert PAGE.read_text(encoding="utf-8") == page(), "the formats have changed: run `make formats`"


def test_the_table_of_sources_is_what_the_formats_register() -> None:
    """Otherwise the store would take a new format for an observer of the machine."""
    wrong = "a format's testimony is not in store/catalogs/sources.csv: run `make formats`"
    assert SOURCES.read_text(encoding="utf-8") == sources(), wrong


def test_every_source_of_iterations_has_its_place_in_the_order_of_exactness() -> None:
    """The ledger reads the most exact source of a run; one without a place would come last by chance."""
    found = {name for name, entry in PARSERS.items() if entry.testimony == "iterations"}
    missing = found ^ set(RUN_LOGS)
    assert not missing, f"place {sorted(missing)} in RUN_LOGS of store/records/event_sources.py, the most exact first"
    assert {name for name, entry in PARSERS.items() if entry.testimony == "saves"} == {CHECKPOINTS}


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_the_events_of_a_format_bear_its_name_as_their_source(name: str) -> None:
    """Its testimony is found by that name; other formats' lines in its fixtures bear theirs."""
    lines = [line for path in (FIXTURES / name).glob("*.jsonl") for line in path.read_text().splitlines()]
    found = {json.loads(line)["source"] for line in lines}
    assert name in found or not lines
    assert found <= set(PARSERS)


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
    watches = [
        *(FIXTURES.parent / "collectors").rglob("*.py"),
        *(FIXTURES.parent / "diagnosis").rglob("*.py"),
        *(FIXTURES.parent / "schedulers" / "lifecycle").rglob("*.py"),
    ]
    watched = "".join(path.read_text() for path in watches)
    told = {kind for kind, _variant in kind_meanings() if f'"{kind}"' in watched}
    assert {kind for kind, _variant in kind_meanings()} - given - named - counted - told == set()


def test_fixtures_are_of_registered_formats() -> None:
    """Every folder with an expectation beside a log is one format's."""
    assert {path.parent.name for path in FIXTURES.glob("*/*.jsonl")} == set(PARSERS)


def test_every_event_of_a_fixture_is_whole() -> None:
    """Every key of DESIGN's record is there."""
    for path in FIXTURES.glob("*/*.jsonl"):
        for line in path.read_text().splitlines():
            assert {"line", "time", "node", "source", "kind", "code", "severity", "cause", "action"} <= set(
                json.loads(line)
            ), path
