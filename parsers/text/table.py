"""Slurm's parsable tables (`-P`): a header line, then rows of the same number of fields.

    JobID|JobName|State|Start|End
    4711|llm-70b|COMPLETED|2025-03-01T00:02:00|2025-03-03T10:00:00
    -> {"JobID": "4711", "JobName": "llm-70b", ...}

The separator is `|`, or `|#` where it was asked for so (`--delimiter`). Names may bear blanks and stand twice: the
last of a name counts. A field may hold line breaks: a short row
is joined with the lines after it. A row that fits in no way is an error, and the row after it is read all the same.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from parsers.text.parser import OnError, ParseError
from store.records.event import RecordError, parse_time
from store.records.node import Node

# The nodes of a cluster: an archive's `nodes.csv`.
#
#     node,rack,leaf,gpu_model,gpus,driver,in_service_since,in_service_until
#     gpu-017,r03,leaf-02,H100-SXM,8,550.90.07,2025-01-01T00:00:00Z,
#
# gives `Node(node="gpu-017", rack="r03", leaf="leaf-02", gpus=8, ...)`. Only `node` must be there; a column that is
# absent or empty is unknown; `nvlink_domain` (of nodes that share NVLink switches) may be one more, and the columns of
# `_SHARED` and `_CALLED` (docs/topology.md). Columns may stand in any order, others are passed over.

_MAX_GPUS = 1024
# Columns of what nodes share beside their rack, and the class of each group; several names are parted by `;` or blanks.
_SHARED = {
    **dict.fromkeys(("power", "pdu", "power_feed", "feed", "ups", "busbar"), "power"),
    **dict.fromkeys(("cooling", "row", "cooling_row", "cdu", "crac"), "cooling"),
    **dict.fromkeys(("storage", "file_server", "fileserver", "nas"), "storage"),
    **dict.fromkeys(("firmware", "firmware_version", "fw"), "firmware"),
}
# Columns of what a node or its devices are called: `mlx5_0=0000:18:00.0;gpu0=0000:1b:00.0` under `pci`.
_CALLED = {
    **dict.fromkeys(("ip", "ips", "address", "addresses"), "ip"),
    **dict.fromkeys(("serial", "serial_number"), "serial"),
    **dict.fromkeys(("hostname", "fqdn", "alias", "aliases"), "name"),
    **dict.fromkeys(("pci", "netdev", "guid", "port_guid"), ""),
}
_MOST_SHARED = 64
_MOST_PART = 256
_PARTS = re.compile(r"[;\s]+")
_GPU = re.compile(r"gpu\d{1,3}", re.ASCII)


def nodes(lines: Iterable[str], on_error: OnError | None = None) -> Iterator[Node]:
    """Every node of the table. A broken row is reported to `on_error` and skipped.

    Raises:
        ParseError: the first line names no column `node`.
    """
    texts = _clean(lines)
    head = next(texts, "")
    # A spreadsheet of a country that writes 3,5 parts its columns by semicolons.
    signs = [sign for sign in ",;\t" if sign in head]
    rows = csv.DictReader(chain((head,), texts), delimiter=signs[0] if len(signs) == 1 else ",", strict=True)
    try:
        rows.fieldnames = [name.strip().lower() for name in rows.fieldnames or ()]
        if "node" not in rows.fieldnames:
            raise ParseError(
                f"the first line names no column `node` ({head[:60]!r}): write node,rack,leaf,gpu_model,gpus,driver,..."
            )
        for row in rows:
            try:
                yield _node(row)
            except (RecordError, ValueError) as error:
                if on_error is not None:
                    on_error(rows.line_num, ParseError(str(error)))
    except csv.Error as error:
        raise ParseError(f"line {rows.line_num}: {error}: is it comma-separated text?") from error


def _clean(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        # A spreadsheet begins its CSV with a byte order mark.
        yield line.removeprefix("\ufeff") if number == 0 else line


def _node(row: Mapping[str, str | None]) -> Node:
    text = {name: value.strip() for name, value in row.items() if isinstance(value, str) and value.strip()}
    if "node" not in text:
        raise RecordError("a row without a node")
    since, until = text.get("in_service_since"), text.get("in_service_until")
    return Node(
        node=text["node"],
        rack=text.get("rack"),
        leaf=text.get("leaf"),
        gpu_model=text.get("gpu_model"),
        gpus=_gpus(text.get("gpus")),
        driver=text.get("driver"),
        in_service_since=None if since is None else parse_time(since),
        in_service_until=None if until is None else parse_time(until),
        nvlink_domain=text.get("nvlink_domain"),
        groups=tuple(_shared(text)),
        names=tuple(_called(text["node"], text)),
    )


def _shared(text: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What a node shares with others by its further columns."""
    for column, value in text.items():
        kind = _SHARED.get(column.strip().lower())
        if kind is not None:
            yield from ((kind, name) for name in _split(value))


def _called(node: str, text: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """What a node and its devices are called by its further columns."""
    for column, value in text.items():
        column = column.strip().lower()
        kind = _CALLED.get(column)
        for name in () if kind is None else _split(value):
            device, sign, own = name.partition("=")
            if kind:
                yield "node", node, kind, name
            elif sign and own and column == "pci" and _GPU.fullmatch(device):
                yield "gpu", f"{node}/{own.lower()}", "name", f"{node}/{device}"
            elif sign and own:
                yield "nic", f"{node}/{device}", column, own.lower() if column != "netdev" else own


def _split(value: str) -> list[str]:
    """The names within a cell, few and short."""
    return [part for part in _PARTS.split(value)[:_MOST_SHARED] if 0 < len(part) <= _MOST_PART]


def _gpus(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > _MAX_GPUS:
        raise RecordError(f"gpus is {text[:20]!r}: write a whole number up to {_MAX_GPUS}")
    return int(text)


SEPARATORS = ("|#", "|")
# Byte order marks, of UTF-8 and as what is left of UTF-16's.
_MARKS = "\ufeff\ufffd"
# A longer record than this is no record: a short row does not swallow the rest of the file.
MAX_JOINED_LINES = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One record and the line that it begins on."""

    fields: Mapping[str, str]
    line: int


@dataclass(slots=True)
class TableReader:
    """Takes the lines of one table. `is_header` knows a header by its column names."""

    is_header: Callable[[frozenset[str]], bool]
    command: str
    free_text: str | None = None  # the column that may hold the separator itself
    headless: str = "-h"  # the command's option that leaves the header out
    names: list[str] = field(default_factory=list)
    _separator: str = "|"
    _part: list[str] = field(default_factory=list)
    _part_line: int = 0
    _late: list[Row] = field(default_factory=list)
    _strays: int = 0

    def feed(self, text: str, line: int) -> list[Row]:
        """The rows that this line ends.

        Raises:
            ParseError: a row before this one, or this one, does not fit the header.
        """
        if self._header(text):
            self._give_up_part()
            return self._ready()
        if not self.names:
            self._strays += bool(text.strip())
            return []
        if not text.strip() and not self._part:
            return self._ready()
        if self._part:
            return self._join(text, line)
        row = self._row(text, line)
        if row is None:
            self._part, self._part_line = [text], line
            return self._ready()
        return [*self._ready(), row]

    def is_whole_row(self, text: str) -> bool:
        """Whether a line is a row by itself, as many fields as the header has, and nothing is held back before it."""
        return (
            not self._part
            and not self._late
            and self._separator == "|"
            and bool(self.names)
            and text.count("|") == len(self.names) - 1
        )

    def flush(self) -> list[Row]:
        """The last rows.

        Raises:
            ParseError: the last row is not whole, or no header line was there.
        """
        if self._strays and not self.names:
            self._strays = 0
            raise ParseError(f"no header line: write the table with `{self.command}`, without {self.headless}")
        self._give_up_part()
        return self._ready()

    def _header(self, text: str) -> bool:
        if self.names and text[:1].isdigit():  # a row's first cell, a job's number: no column has such a name
            return False
        text = text.lstrip(_MARKS)
        for separator in SEPARATORS:
            names = [name.strip() for name in text.split(separator)]
            if len(names) > 1 and self.is_header(frozenset(names)):
                self.names, self._separator = names, separator
                return True
        return False

    def _row(self, text: str, line: int) -> Row | None:
        """The record of a text; None where it has too few fields.

        Raises:
            ParseError: it has too many.
        """
        values = text.split(self._separator)
        if len(values) == len(self.names) + 1 and not values[-1].strip():
            values.pop()  # a row may end in a separator where its header does not
        extra = len(values) - len(self.names)
        if extra < 0:
            return None
        if extra and self.free_text in self.names:
            at = self.names.index(self.free_text)
            values[at : at + extra + 1] = [self._separator.join(values[at : at + extra + 1])]
        elif extra:
            raise ParseError(f"the row has {len(values)} fields, its header {len(self.names)}")
        return Row(dict(zip(self.names, values, strict=True)), line)

    def _join(self, text: str, line: int) -> list[Row]:
        """A line after a short row: more of it, or, where this line is whole by itself, a new row."""
        alone = text.count(self._separator) + 1
        joined = "\n".join((*self._part, text))
        if alone == len(self.names) or len(self._part) >= MAX_JOINED_LINES:
            if alone == len(self.names):
                self._late.append(Row(dict(zip(self.names, text.split(self._separator), strict=True)), line))
            self._give_up_part()
        part, self._part = self._part, []
        row = self._row(joined, self._part_line)
        if row is None:
            self._part = [*part, text]
            return self._ready()
        return [*self._ready(), row]

    def _give_up_part(self) -> None:
        if not self._part:
            return
        count = "\n".join(self._part).count(self._separator) + 1
        line, self._part = self._part_line, []
        raise ParseError(f"the row at line {line} has {count} fields, its header {len(self.names)}")

    def _ready(self) -> list[Row]:
        late, self._late = self._late, []
        return late
