r"""Prometheus' and OpenMetrics' text: one line is one sample of one series.

    DCGM_FI_DEV_GPU_TEMP{gpu="3",Hostname="gpu-017",err_msg="a \"b\""} 61 1740801906000
    -> Point(name="DCGM_FI_DEV_GPU_TEMP", labels={"gpu": "3", "Hostname": "gpu-017", "err_msg": 'a "b"'}, text="61",
             value=61.0, time=2025-03-01T04:05:06Z)

Prometheus writes times in whole milliseconds, OpenMetrics in seconds with a fraction. Comments (HELP, TYPE, UNIT, EOF)
are no samples. A value that is no number (`N/A (no PMA)`) makes its own line unreadable, and no other.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import isfinite

from parsers.text.parser import ParseError
from parsers.text.stamp import Stamps

# A series has some ten labels; more is a broken page.
MAX_LABELS = 64
# As milliseconds this is 1973: a smaller whole number is in seconds.
_SECONDS_UNTIL = 10**11
# Label texts remembered: all series of a device have the same one, and a page is most of all labels.
_REMEMBERED = 1024

_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,255}", re.ASCII)
_LABEL = re.compile(
    r'[ \t]{0,8}([A-Za-z_][A-Za-z0-9_]{0,127})[ \t]{0,8}=[ \t]{0,8}"((?:[^"\\]|\\.)*)"[ \t]{0,8}([,}])', re.ASCII
)
_CLOSE = re.compile(r"[ \t]{0,8}\}")
_VALUE = re.compile(
    r"[ \t]+(?P<value>[^\s_]{1,40})(?:[ \t]+(?P<time>-?\d{1,16}(?:\.\d{1,9})?))?[ \t]*(?:#[ \t]*\{.*)?$",
    re.ASCII | re.DOTALL,
)
_ESCAPE = re.compile(r'\\([\\"n])')


@dataclass(frozen=True, slots=True)
class Point:
    """One sample. `text` is the value as written; `value` is None where it is NaN or infinite: nobody measured it."""

    name: str
    labels: Mapping[str, str]
    text: str
    value: float | None
    time: datetime | None


def metric_name(text: str) -> str | None:
    """The metric that a line speaks of; None for a comment, a blank line, or anything else."""
    match = _NAME.match(text)
    return match[0] if match else None


def read_point(text: str, stamps: Stamps) -> Point | None:
    """The sample of a line; None for a comment or a blank line.

    Raises:
        ParseError: the line is cut short, or its value is no number.
    """
    if not text or text[0] == "#" or text.isspace():
        return None
    name = metric_name(text)
    labels, end = _labels_of(text, len(name)) if name else ({}, None)
    match = _VALUE.match(text, end) if end is not None else None
    if name is None or match is None:
        raise ParseError(f"{text[:60]!r} is no whole sample: NAME{{LABELS}} VALUE [TIME]")
    return Point(name, labels, match["value"], _number(match["value"]), _moment(match["time"], stamps))


def _labels_of(text: str, start: int) -> tuple[Mapping[str, str], int | None]:
    """The labels that begin at `start`, and where they end."""
    end = text.rfind("}") + 1
    if end and text.startswith("{", start) and (known := _whole_labels(text[start:end])) is not None:
        return known, end
    labels: dict[str, str] = {}
    return labels, _labels(text, start, labels)


@lru_cache(maxsize=_REMEMBERED)
def _whole_labels(text: str) -> Mapping[str, str] | None:
    """The labels of a text that is nothing else; None where it is more or less (an exemplar has braces too)."""
    labels: dict[str, str] = {}
    return labels if _labels(text, 0, labels) == len(text) else None


def _labels(text: str, start: int, labels: dict[str, str]) -> int | None:
    """Reads the labels that begin at `start`; where they end, or None where they never do."""
    if not text.startswith("{", start):
        return start
    at = start + 1
    for _ in range(MAX_LABELS):
        if close := _CLOSE.match(text, at):
            return close.end()
        label = _LABEL.match(text, at)
        if not label:
            return None
        labels[label[1]] = _unescape(label[2])
        if label[3] == "}":
            return label.end()
        at = label.end()
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError as error:
        raise ParseError(f"{text!r} is no number") from error
    return value if isfinite(value) else None


def _moment(text: str | None, stamps: Stamps) -> datetime | None:
    if text is None:
        return None
    if "." in text:
        return stamps.since_epoch(float(text))
    whole = int(text)
    return stamps.since_epoch(whole if abs(whole) < _SECONDS_UNTIL else whole / 1000)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text
