"""No text says "1 verdicts": what follows a count is made by `store/plural.py`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.plural import many, plural

ROOT = Path(__file__).parents[1]
ROOMS = (
    "cli",
    "api/pages",
    "api/routes",
    "dashboard",
    "diagnosis",
    "schedulers",
    "goodput/cluster",
    "predictor/repair",
)
NOUNS = (
    "attempt batch cable event failure file fold hint incident interruption job line link moment node other "
    "outage pod question rank reason record roll-up row run sample score sidecar sign tape ticket verdict"
)
_PLURALS = {f"{noun}es" if noun == "batch" else f"{noun}s" for noun in NOUNS.split()}
# Where one is impossible: more than one was asked for, or the least is told beside it.
SURE = {
    ("cli/commands/demo.py", "nodes"),
    ("cli/config/outage_reasons.py", "rows"),
    ("dashboard/views/collection.py", "sidecars"),
    ("dashboard/views/models.py", "rows"),  # a mean
    ("dashboard/views/run.py", "nodes"),  # no count stands before it
    ("dashboard/views/verdicts.py", "nodes"),
    ("diagnosis/corruption/recurrence.py", "runs"),
    ("diagnosis/incidents/intake.py", "events"),
    ("diagnosis/incidents/maintenance.py", "nodes"),
    ("schedulers/policy/job_hints.py", "runs"),  # the verb
}


def spoken(path: Path) -> Iterator[tuple[int, str]]:
    """The nouns in the plural that stand behind a value in the f-strings of a file."""
    for text in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for value, after in zip(text.values, text.values[1:], strict=False) if isinstance(text, ast.JoinedStr) else ():
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            spec = "" if value.format_spec is None else ast.unparse(value.format_spec)
            is_limit = ast.unparse(value.value).lstrip("_").isupper()
            found = re.match(r" (?:[a-z]+ )?([A-Za-z-]+)\b", str(after.value))
            if found and found[1] in _PLURALS and not is_limit and not re.search(r"[fg%]", spec):
                yield value.lineno, found[1]


@pytest.mark.parametrize("room", ROOMS)
def test_what_follows_a_count_fits_one(room: str) -> None:
    """Wherever a person reads it."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {noun}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, noun in spoken(path)
        if (str(path.relative_to(ROOT)), noun) not in SURE and noun != "runs"
    ]
    assert wrong == [], "say it by `many` of store/plural.py"


def test_one_is_one() -> None:
    """And none is many."""
    assert [many(count, "verdict") for count in (0, 1, 2)] == ["0 verdicts", "1 verdict", "2 verdicts"]
    assert [many(count, "batch is", "batches are") for count in (1, 2)] == ["1 batch is", "2 batches are"]
    assert (plural(1, "is", "are"), plural(0.5, "node")) == ("is", "nodes")


def test_the_sweep_finds_what_it_looks_for(tmp_path: Path) -> None:
    """The line that began it."""
    file = tmp_path / "rma.py"
    file.write_text('MOST = 3\nprint(f"{len(found)} verdicts, {MOST} rows")\n')
    assert list(spoken(file)) == [(2, "verdicts")]
