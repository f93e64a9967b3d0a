"""Events as rows: made a column at a time, each row is still that of its own event."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest

from store.events.event_rows import COLUMNS, copy_text, sqlite_rows
from store.records.event import Device, Event

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
PLAIN = Event(NOW, "n1", "kernel", "xid", 79, "fatal", "hardware", "reboot_node", id="a")
FULL = replace(
    PLAIN,
    time=NOW + timedelta(microseconds=1),
    device=Device("gpu", "0000:0f:00.0", 3, "GPU-1", 7),
    message="off the bus",
    attributes={"pid": 5, "run": "r1", "ratio": 0.5, "sure": True, "none": None},
    line=3,
    file="a.log",
    id="b",
)
BARE = Event(None, None, "s", "k", id="c")


def copied(*events: Event) -> list[dict[str, str | None]]:
    """The rows of COPY's text, as PostgreSQL reads them: \\N is null, the four escapes are undone."""
    rows = []
    for line in copy_text(events, NOW).decode().removesuffix("\n").split("\n"):
        values = [None if text == "\\N" else text for text in line.split("\t")]
        undone = [text and text.replace("\\\\", "\0").replace("\\t", "\t").replace("\\n", "\n") for text in values]
        rows.append(
            dict(zip(COLUMNS, [text and text.replace("\\r", "\r").replace("\0", "\\") for text in undone], strict=True))
        )
    return rows


def test_each_row_is_its_events_own() -> None:
    """In both forms, and in the same order; what one event lacks is not taken from its neighbour."""
    events = [PLAIN, BARE, FULL]
    for written, bound, event in zip(copied(*events), sqlite_rows(events, NOW), events, strict=True):
        row: dict[str, Any] = dict(zip(COLUMNS, bound, strict=True))
        plain = ("id", "node", "run", "source", "kind", "severity", "cause", "action", "message", "file")
        assert {name: written[name] for name in plain} == {name: row[name] for name in plain}
        assert (row["id"], row["run"]) == (event.id, event.run())
        assert (written["code"], written["line"]) == tuple(n and str(n) for n in (event.code, event.line))
        assert (row["code"], row["line"]) == (event.code, event.line)
        for form in (written, row):
            assert json.loads(form["attributes"] or "") == event.attributes
            assert Device(**json.loads(form["device"] or "")) == event.device
        moment = event.time or NOW
        assert datetime.fromisoformat(written["time"] or "") == moment
        assert timedelta(microseconds=row["time"]) == moment - datetime(1970, 1, 1, tzinfo=UTC)
        assert datetime.fromisoformat(written["received"] or "") == NOW


@pytest.mark.parametrize("uuid", [',"pci":null', '","index":null,"', '\\",\\"port\\":null', "tab\tand\nline", None])
def test_what_is_not_known_of_a_device_takes_no_room(uuid: str | None) -> None:
    """Nor does a name that looks like it lose a letter."""
    device = Device("gpu", uuid=uuid)
    event = replace(PLAIN, device=device)
    for text in (copied(event)[0]["device"], next(iter(sqlite_rows([event], NOW)))[COLUMNS.index("device")]):
        assert json.loads(text or "") == {"type": "gpu"} | ({} if uuid is None else {"uuid": uuid})


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    """The text bears its offset."""
    there = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    (row,) = copied(replace(PLAIN, time=there))
    assert datetime.fromisoformat(row["time"] or "") == NOW


@pytest.mark.parametrize("text", ["\n", "\t", "\\", "\r\n", "\\N", "\u2028", "\x85", "\x0b\x1c", '"', "\u2620"])
def test_odd_characters_move_no_column(text: str) -> None:
    """Line ends of every alphabet, in texts and in JSON, between rows that have none."""
    odd = replace(
        FULL, id=f"b{text}", message=text, attributes={text: text}, device=Device("gpu", text), file=text, kind=text
    )
    before, row, after = copied(PLAIN, odd, BARE)
    assert (before["id"], after["id"]) == ("a", "c")
    assert (row["id"], row["message"], row["file"], row["kind"]) == (f"b{text}", text, text, text)
    assert json.loads(row["attributes"] or "") == {text: text}
    assert json.loads(row["device"] or "")["pci"] == text
    (bound,) = sqlite_rows([odd], NOW)
    assert json.loads(bound[COLUMNS.index("attributes")]) == {text: text}


@pytest.mark.parametrize(
    "attributes",
    [{"n": 2**70}, MappingProxyType({"n": 1}), {"n": "\ud800"}],
    ids=["large-integer", "no-dict", "half-a-character"],
)
def test_attributes_that_the_fast_writer_refuses_are_written_all_the_same(attributes: dict[str, Any]) -> None:
    """So are those of the other events of the batch."""
    rows = copied(PLAIN, replace(FULL, attributes=attributes), BARE)
    assert [json.loads(row["attributes"] or "") for row in rows] == [{}, dict(attributes), {}]


def test_no_event_is_no_row() -> None:
    """Nothing for SQLite to insert."""
    assert list(sqlite_rows([], NOW)) == []
