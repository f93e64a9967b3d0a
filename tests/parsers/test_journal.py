"""Records as JSON and as fields."""

from datetime import UTC, datetime

import orjson
import pytest

from parsers.journal import field_of, record_from_fields, record_from_json
from parsers.text.parser import Context, ParseError
from parsers.text.prefix import LogRecord, PrefixReader
from parsers.text.stamp import Stamps

BOOT = datetime(2026, 11, 20, 22, 0, tzinfo=UTC)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, x"
TIME = datetime(2026, 11, 20, 22, 31, 54, 121678, tzinfo=UTC)


def reader() -> PrefixReader:
    """A reader that knows year and boot time."""
    return PrefixReader(Stamps(Context(year=2026, boot_time=BOOT)))


def test_journald_writes_a_message_that_is_no_utf8_as_bytes() -> None:
    """The array is decoded; what is no text is replaced."""
    raw = [*XID.encode(), 0xFF]
    text = orjson.dumps({"MESSAGE": raw, "_TRANSPORT": "kernel", "_HOSTNAME": "vm"}).decode()
    record = record_from_json(text, reader())
    assert record == LogRecord(None, "vm", "kernel", XID + "\ufffd")


@pytest.mark.parametrize(
    "fields",
    [
        {"log": f"[ 1914.121678] {XID}\n", "stream": "stdout"},
        {"line": f"[ 1914.121678] {XID}", "labels": {"job": "kmsg"}},
        {"message": f"<3>[ 1914.121678] {XID}", "source_type": "file"},
        {"msg": f"[ 1914.121678] {XID}"},
    ],
)
def test_a_shippers_envelope_holds_a_whole_line(fields: dict[str, object]) -> None:
    """Docker, Loki's logcli, Vector, Fluent Bit."""
    record = record_from_json(orjson.dumps(fields).decode(), reader())
    assert record is not None
    assert (record.time, record.tag, record.message.strip()) == (TIME, None, XID)


@pytest.mark.parametrize(
    ("fields", "time"),
    [
        ({"__REALTIME_TIMESTAMP": "1795213914121678"}, TIME),
        ({"date": 1795213914.121678}, TIME),
        ({"timestamp": 1795213914122}, TIME.replace(microsecond=122_000)),
        ({"ts": "2026-11-20T22:31:54.121678+00:00"}, TIME),
        ({"@timestamp": "2026-11-20T22:31:54.121678Z"}, TIME),
        ({"DATE": "Nov 20 22:31:54"}, TIME.replace(microsecond=0)),
        ({"time": 1914.5}, datetime(2026, 11, 20, 22, 31, 54, 500_000, tzinfo=UTC)),
        ({"time": "yesterday"}, None),
        ({"time": True}, None),
        ({"time": None}, None),
        ({"time": [1]}, None),
        ({"time": "١٢"}, None),
        ({"time": "1e999"}, None),
    ],
)
def test_times_are_known_by_name_and_size(fields: dict[str, object], time: datetime | None) -> None:
    """Microseconds, milliseconds, seconds since 1970 or since boot, text."""
    record = record_from_fields({"msg": XID, **fields}, reader())
    assert record is not None
    assert record.time == time


@pytest.mark.parametrize(
    ("fields", "tag"),
    [
        ({"SYSLOG_IDENTIFIER": "kernel"}, "kernel"),
        ({"syslogtag": "kernel:"}, "kernel"),
        ({"tag": "nhc[12]:"}, "nhc"),
        ({"PROGRAM": "kernel"}, "kernel"),
        ({"_TRANSPORT": "kernel"}, "kernel"),
        ({}, None),
    ],
)
def test_the_identifier_is_known_by_any_writers_name(fields: dict[str, str], tag: str | None) -> None:
    """journald, rsyslog, syslog-ng; a kmsg reader names none."""
    record = record_from_fields({"message": XID, **fields}, reader())
    assert record is not None
    assert record.tag == tag


def test_a_shippers_envelope_is_opened() -> None:
    """Fluent Bit's tail puts the whole line into `log`: the line's own time and host win."""
    line = f"2026-11-20T22:31:54.121678+00:00 vm kernel: {XID}"
    record = record_from_fields({"date": 1.0e9, "log": line, "host": "collector"}, reader())
    assert record == LogRecord(TIME, "vm", "kernel", XID)


@pytest.mark.parametrize("text", ['{"MESSAGE":"NVRM: Xid', "{nvrm}", '{"MESSAGE":[78,86'])
def test_a_cut_object_is_a_parse_error(text: str) -> None:
    """It says so."""
    with pytest.raises(ParseError, match="JSON"):
        record_from_json(text, reader())


@pytest.mark.parametrize("fields", [{}, {"MESSAGE": None}, {"MESSAGE": 5}, {"MESSAGE": [300]}, {"MESSAGE": []}])
def test_without_a_message_there_is_no_record(fields: dict[str, object]) -> None:
    """journald leaves out a message that is too large."""
    assert record_from_fields(fields, reader()) is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("_HOSTNAME=vm", ("_HOSTNAME", "vm")),
        ("    MESSAGE=a=b", ("MESSAGE", "a=b")),
        ('\t"_HOSTNAME" : "vm",', ("_HOSTNAME", "vm")),
        ('         "time":  2122.548539,', ("time", 2122.548539)),
        ('         "msg": "two\\nlines"', ("msg", "two\nlines")),
        ('\t"MESSAGE" : [1, 2],', ("MESSAGE", [1, 2])),
        ('\t"broken" : "x', None),
        ("Nov 20 a=b", None),
    ],
)
def test_a_line_of_fields_is_a_name_and_a_value(text: str, field: tuple[str, object] | None) -> None:
    """Of journalctl -o export, verbose, json-pretty and dmesg -J."""
    assert field_of(text) == field
