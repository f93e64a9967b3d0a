"""Log records as JSON objects or fields: journalctl -o json, rsyslog, syslog-ng, Fluent Bit, dmesg -J.

    {"__REALTIME_TIMESTAMP":"1795213914121678","SYSLOG_IDENTIFIER":"NVRM","_HOSTNAME":"vm",
     "MESSAGE":"Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."}
    -> Record(time=2026-11-20T22:31:54.121678Z, node="vm", tag="kernel", message="NVRM: Xid ...")

journald writes a message that is no UTF-8 as an array of bytes. The forms over several lines
(-o export, -o verbose, -o json-pretty, dmesg -J) hold the same fields, one a line.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from parsers.text.parser import ParseError
from parsers.text.prefix import LogRecord, PrefixReader, settle
from parsers.text.stamp import Stamps
from parsers.trust import facility_of, in_container, writer_trust

_MESSAGE = ("MESSAGE", "msg", "message", "log", "line")
_IDENTIFIER = ("SYSLOG_IDENTIFIER", "syslogtag", "tag", "PROGRAM", "app-name", "ident", "program")
_NODE = ("_HOSTNAME", "hostname", "host", "HOST", "Hostname")
_TIME = ("__REALTIME_TIMESTAMP", "timereported", "@timestamp", "timestamp", "ts", "time", "date", "DATE")
# Below it a number is an uptime in seconds, above it a Unix time: 2001.
_FIRST_EPOCH_S = 1e9
_FIRST_EPOCH_MS = 1e11
_FIRST_EPOCH_US = 1e14

_YEARLESS = re.compile(r"(\w{3}) +(\d{1,2}) (\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?)", re.ASCII)
_EXPORT_FIELD = re.compile(r"\s*([A-Z_][A-Z0-9_]{1,63})=(.*)", re.ASCII | re.DOTALL)
# What follows the value is taken off behind it: a pattern that looked for it would try every blank with every other.
_JSON_FIELD = re.compile(r'\s*("[A-Za-z_@-]{1,64}") ?: +(\S.*)', re.ASCII | re.DOTALL)
_BLANK = " \t\n\r\f\v"


def record_from_json(text: str, reader: PrefixReader) -> LogRecord | None:
    """The record of one JSON object on a line; None where it holds no message.

    Raises:
        ParseError: it is cut short or no JSON.
    """
    try:
        fields = orjson.loads(text.encode("utf-8", errors="replace"))
    except orjson.JSONDecodeError as error:
        raise ParseError(f"no whole JSON object ({error.msg}): the line may be cut short") from error
    return record_from_fields(fields, reader) if isinstance(fields, dict) else None


def record_from_fields(fields: Mapping[str, Any], reader: PrefixReader) -> LogRecord | None:
    """The record that fields describe, by whichever names their writer uses."""
    message = _text(_first(fields, _MESSAGE))
    if message is None:
        return None
    tag, node = _text(_first(fields, _IDENTIFIER)), _text(_first(fields, _NODE))
    time = _moment(_first(fields, _TIME), reader.stamps)
    if tag is None and fields.get("_TRANSPORT") == "kernel":
        tag = "kernel"
    name = None if tag is None else tag.split("[")[0].rstrip(":")
    facility = facility_of(fields)
    by_user = writer_trust(fields, name) == "user" or (reader.is_strict and in_container(fields))
    if name is None:  # a shipper's envelope around a whole line, or a kmsg reader's object
        inner = reader.read(message)
        facility = inner.facility or facility
        return inner._replace(time=inner.time or time, node=inner.node or node, by_user=by_user, facility=facility)
    if fields.get("_TRANSPORT") == "kernel":  # its own facility is what root wrote to /dev/kmsg under
        facility = None
    return settle(LogRecord(time, node, name, message, facility=facility, by_user=by_user))


def field_of(text: str) -> tuple[str, Any] | None:
    """The name and value of one line of a record over several lines; None where it is no field."""
    if match := _EXPORT_FIELD.fullmatch(text):
        return match[1], match[2]
    if match := _JSON_FIELD.fullmatch(text):
        try:
            value = match[2].rstrip(_BLANK).removesuffix(",")
            return match[1][1:-1], orjson.loads(value.encode("utf-8", errors="replace"))
        except orjson.JSONDecodeError:
            return None
    return None


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


def _text(value: Any) -> str | None:
    """A field's text; journald's array of bytes is decoded."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(b, int) and 0 <= b < 256 for b in value):
        return bytes(value).decode("utf-8", errors="replace")
    return None


def _moment(value: Any, stamps: Stamps) -> datetime | None:
    if isinstance(value, str):
        if match := _YEARLESS.fullmatch(value):
            return stamps.yearless(match[1], match[2], match[3])
        if not value.replace(".", "", 1).isascii() or not value.replace(".", "", 1).isdigit():
            return stamps.iso(value)
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if value < _FIRST_EPOCH_S:
        return stamps.since_boot(value)
    scale = 1e6 if value >= _FIRST_EPOCH_US else 1e3 if value >= _FIRST_EPOCH_MS else 1
    return stamps.since_epoch(value / scale)
