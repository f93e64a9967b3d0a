"""The rows of the shipped catalogues (`store/catalogs/*.csv`)."""

import csv
from collections.abc import Iterator
from pathlib import Path


def rows(table: str) -> Iterator[dict[str, str]]:
    """The rows of a shipped table, without its comment lines."""
    text = (Path(__file__).parent / f"catalogs/{table}.csv").read_text(encoding="utf-8")
    return iter(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
