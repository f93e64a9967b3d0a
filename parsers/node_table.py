"""The nodes of a cluster: an archive's `nodes.csv`.

    node,rack,leaf,gpu_model,gpus,driver,in_service_since,in_service_until
    gpu-017,r03,leaf-02,H100-SXM,8,550.90.07,2025-01-01T00:00:00Z,

gives `Node(node="gpu-017", rack="r03", leaf="leaf-02", gpus=8, ...)`. Only `node` must be there; a column that is
absent or empty is unknown; `nvlink_domain` (of nodes that share NVLink switches) may be one more. Columns may stand in
any order, others are passed over.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping

from parsers.parser import OnError, ParseError
from store.event import RecordError, parse_time
from store.node import Node

_MAX_GPUS = 1024


def nodes(lines: Iterable[str], on_error: OnError | None = None) -> Iterator[Node]:
    """Every node of the table. A broken row is told to `on_error` and skipped.

    Raises:
        ParseError: the first line names no column `node`.
    """
    rows = csv.DictReader(_clean(lines), strict=True)
    try:
        if "node" not in (rows.fieldnames or ()):
            raise ParseError("the first line names no column `node`: write node,rack,leaf,gpu_model,gpus,driver,...")
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
    )


def _gpus(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > _MAX_GPUS:
        raise RecordError(f"gpus is {text[:20]!r}: write a whole number up to {_MAX_GPUS}")
    return int(text)
