"""docs/formats.md, and the testimony of each format in store/catalogs/sources.csv: `make formats` writes both."""

import json
from collections import defaultdict
from pathlib import Path

from parsers.registry import PARSERS
from parsers.text.parser import Context, Format, parse
from store.catalog_rows import rows
from store.records.event import to_wire

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
PAGE = ROOT / "docs" / "formats.md"
SOURCES = ROOT / "store" / "catalogs" / "sources.csv"
# Sources that no format decodes.
_NO_FORMAT = {"sidecar": "self", "ranks": "starts"}
_HEAD = """# Formats and kinds

Made by `make formats` of the registry, the fixtures and `store/catalogs/kinds.csv`; a test holds it to them.
[parsers.md](parsers.md) says how to use them.

"""


def page() -> str:
    """The whole page."""
    sections = [_section(entry) for _name, entry in sorted(PARSERS.items())]
    return "".join((_HEAD, _overview(), *sections, _kinds()))


def sources() -> str:
    """The table of sources: every format's testimony as it is registered, and the sources that are no format."""
    head = "# The testimony of each source of events (`store/records/event_sources.py` explains the words).\n"
    head += "# Made by `make formats` of the registry of formats: change `testimony` in `parsers/formats/`, not here.\n"
    found = {name: str(entry.testimony) for name, entry in PARSERS.items()} | _NO_FORMAT
    return head + "source,testimony\n" + "".join(f"{name},{found[name]}\n" for name in sorted(found))


def kinds_of(name: str) -> list[str]:
    """Every kind of event that a format's fixtures hold."""
    lines = (line for path in (FIXTURES / name).glob("*.jsonl") for line in path.read_text().splitlines())
    return sorted({json.loads(line)["kind"] for line in lines})


def _overview() -> str:
    table = ["| format | what it reads | kinds of events |", "|---|---|---|"]
    for name, entry in sorted(PARSERS.items()):
        kinds = " ".join(f"`{kind}`" for kind in kinds_of(name))
        table.append(f"| [`{name}`](#{name}) | {_cell(entry.description)} | {kinds} |")
    return "\n".join(table) + "\n\n"


def _section(entry: Format) -> str:
    origin = (
        f"What it was tested with, and where that is from: [fixtures/{entry.name}](../fixtures/{entry.name}/ORIGIN.md)."
    )
    parts = [f"## {entry.name}\n\n{entry.description}. {origin}\n\n```\n{entry.sample}\n```\n"]
    context = Context(node="gpu-017", year=2025, run="llm-70b")
    for event in parse(entry.make(context), [entry.sample]):
        parts.append(f"\n```json\n{json.dumps(to_wire(event), ensure_ascii=False)}\n```\n")
    return "".join(parts) + "\n"


def _kinds() -> str:
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name in sorted(PARSERS):
        for kind in kinds_of(name):
            by_kind[kind].append(name)
    table = [
        "## Kinds\n\nWhat is judged by its kind, not by a code; a variant is a form of it that is judged otherwise.\n"
        "`xid`, `quoted_xid`, `sxid`, `sxid_detail` and `fabricmanager_nvswitch` are judged by their code: "
        "`store/catalogs/xid.csv`, `sxid.csv` and `nvlink5.csv`.\n",
        "| kind | variant | severity | cause | action | what it means | said by |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows("kinds"), key=lambda row: (row["kind"], row["variant"])):
        said = " ".join(by_kind.get(row["kind"], []))
        words = (row["variant"], row["severity"], row["cause"], row["action"], _cell(row["description"]), said)
        table.append(f"| `{row['kind']}` | " + " | ".join(words) + " |")
    return "\n".join(table) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    SOURCES.write_text(sources(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
