"""`python -m benchmarks [--write] [NAME...]`: measure the design's budgets on this machine and print a table.

It ends with what became slower than the table of docs/benchmarks.md says.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The starters of real programs stand with the tests.
sys.path.insert(0, str(ROOT / "tests"))

import pytest  # noqa: E402  # the starters say by its means what is not installed

from benchmarks import (  # noqa: E402
    archive,
    bodies,
    cordon,
    decode,
    diagnosis,
    formats,
    graph,
    history,
    http_ingest,
    latency,
    ledger,
    load,
    predict,
    rails,
    reads,
    scan,
    screen,
    sidecar,
    sites,
    slow_ranks,
    start,
    stored_bytes,
    storm_verdicts,
)  # fmt: skip
from benchmarks.result import Result, unmeasured  # noqa: E402

Measure = Callable[[Path], "Result | Iterable[Result]"]
BENCHMARKS: dict[str, tuple[str, str, Measure]] = {
    "scan": (scan.WHAT, scan.BUDGET, scan.measure),
    "decode": (decode.WHAT, decode.BUDGET, decode.measure),
    "formats": (formats.WHAT, formats.BUDGET, formats.measure),
    "latency": (latency.WHAT, latency.BUDGET, latency.measure),
    "cordon": (cordon.WHAT, cordon.BUDGET, cordon.measure),
    "sidecar": (sidecar.WHAT, sidecar.BUDGET, sidecar.measure),
    "rings": (sidecar.RINGS_WHAT, sidecar.RINGS_BUDGET, sidecar.measure_rings),
    "archive": (archive.WHAT, archive.BUDGET, archive.measure),
    "history": (history.WHAT, history.BUDGET, history.measure),
    "ingest": (http_ingest.WHAT, http_ingest.BUDGET, http_ingest.measure),
    "bodies": (bodies.WHAT, bodies.BUDGET, bodies.measure),
    "bytes": (stored_bytes.WHAT, stored_bytes.BUDGET, stored_bytes.measure),
    "load": (load.WHAT, load.BUDGET, load.measure),
    "rescore": (predict.WHAT, predict.BUDGET, predict.measure),
    "backtest": (predict.BACKTEST_WHAT, predict.BACKTEST_BUDGET, predict.measure_backtest),
    "rails": (rails.WHAT, rails.BUDGET, rails.measure),
    "ledger": (ledger.WHAT, ledger.BUDGET, ledger.measure),
    "reads": (reads.WHAT, reads.BUDGET, reads.measure),
    "storm-verdicts": (storm_verdicts.WHAT, storm_verdicts.BUDGET, storm_verdicts.measure),
    "graph": (graph.WHAT, graph.BUDGET, graph.measure),
    "diagnosis": (diagnosis.WHAT, diagnosis.BUDGET, diagnosis.measure),
    "slow-ranks": (slow_ranks.WHAT, slow_ranks.BUDGET, slow_ranks.measure),
    "screen": (screen.WHAT, screen.BUDGET, screen.measure),
    "start": (start.WHAT, start.BUDGET, start.measure),
    "sites": (sites.WHAT, sites.BUDGET, sites.measure),
}
PAGE = ROOT / "docs/benchmarks.md"


def run(name: str, folder: Path) -> list[Result]:
    """The results of one benchmark; one that cannot run here says why."""
    what, budget, measure = BENCHMARKS[name]
    (folder / name).mkdir()
    try:
        found = measure(folder / name)
        return [found] if isinstance(found, Result) else list(found)
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        return [unmeasured(what, budget, str(reason))]
    except Exception as error:  # noqa: BLE001  # one that breaks must not hide the others
        return [unmeasured(what, budget, f"{type(error).__name__}: {error}")]


def table(results: Iterable[Result]) -> str:
    """A Markdown table."""
    rows = ["| what | budget | here | the other | ratio | | |", "|---|---|---|---|---|---|---|"]
    for each in results:
        ratio = "-" if each.ratio is None else f"{each.ratio:.2f}"
        verdict = each.verdict if each.verdict == "met" else f"**{each.verdict}**"
        rows.append(
            f"| {each.what} | {each.budget} | {each.ours} | {each.theirs} | {ratio} | {verdict} | {each.note} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Measure what is named, or everything; with --write keep their rows in docs/benchmarks.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(BENCHMARKS)} [default: all]")
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}: use {', '.join(BENCHMARKS)}")
    found: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory(prefix="foreshock-bench-") as folder:
        for name in options.names or BENCHMARKS:
            began = time.monotonic()
            found[name] = run(name, Path(folder))
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    results = [result for each in found.values() for result in each]
    print(table(results))
    for sentence in slower(PAGE.read_text(), found):
        print(sentence)
    if options.write:
        PAGE.write_text(with_rows(PAGE.read_text(), found) if options.names else page(results, options.names))
    return 0


# What differs by less than this is the machine's mood.
_SLOWER = 1.25
_NAME = re.compile(r" \(`[\w-]+`\)$")
_FIGURE = re.compile(r"(\d[\d,]*(?:\.\d+)?) ?(\S*)")


def slower(text: str, found: Mapping[str, list[Result]]) -> list[str]:
    """What became slower than the table of a page says, and what met its budget there and does no longer.

    Rows are compared by their ratios, which the machine's speed touches little; where one has none, by the first
    figure. Of a budget that begins with >= more is better.
    """
    kept = [[cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    rows: dict[tuple[str, str], list[list[str]]] = {}
    for cells in kept:
        if len(cells) > 5:
            rows.setdefault((_NAME.sub("", cells[0]), cells[1]), []).append(cells)
    sentences = []
    for name, result in ((name, one) for name, results in found.items() for one in results):
        same = rows.get((result.what, result.budget))
        before = same.pop(0) if same else None  # SQLite's and PostgreSQL's bear one name, and stand in one order
        if before is None or result.verdict == "not measured":
            continue
        if before[5] == "met" and result.verdict == "not met":
            sentences.append(f"{name}: {result.what}: met before ({before[2]}), not met now ({result.ours})")
        elif (worse := _worse(before, result)) > _SLOWER:
            sentences.append(f"{name}: {result.what}: {worse:.2f} times worse: {before[2]} before, {result.ours} now")
    return sentences


def _worse(before: Sequence[str], result: Result) -> float:
    """How many times worse a figure is than that of a row; 1 where the two cannot be compared."""
    then, now = _figure(before[2]), _figure(result.ours)
    if result.ratio is not None and before[4] not in ("-", "0.00"):
        then, now = (float(before[4].split(",")[0]), ""), (result.ratio, "")
    if then is None or now is None or then[1] != now[1] or not then[0] or not now[0]:
        return 1.0
    return then[0] / now[0] if result.budget.startswith(">=") else now[0] / then[0]


def _figure(text: str) -> tuple[float, str] | None:
    """The first number of a text with its unit: `p50 76 ms, p99 100 ms` gives 76 ms."""
    found = _FIGURE.search(re.sub(r"\b[pP]\d\d? ", "", text))
    return None if found is None else (float(found[1].replace(",", "")), found[2].rstrip(",;)"))


def with_rows(text: str, found: Mapping[str, list[Result]]) -> str:
    """The page with the rows of some benchmarks in place of those that it had of them, and all others as they were."""
    lines = [line for line in text.splitlines() if not any(f"(`{name}`)" in line.split(" | ")[0] for name in found)]
    last = max(place for place, line in enumerate(lines) if line.startswith("|"))
    for name, results in found.items():
        rows = table(replace(result, what=f"{result.what} (`{name}`)") for result in results).splitlines()[2:]
        lines[last + 1 : last + 1] = rows
        last += len(rows)
    return "\n".join(lines) + "\n"


def page(results: list[Result], names: list[str]) -> str:
    """docs/benchmarks.md: the table, and how it came to be."""
    command = " ".join(['make bench ARGS="--write', *names]).rstrip() + '"'
    return f"""# Benchmarks

Measured {datetime.now(UTC):%Y-%m-%d} with `{command}`,
on {len(os.sched_getaffinity(0))} processors, Python {sys.version.split()[0]},
all programs on the same machine in the same run.
A ratio is of our figure to the other program's.
A budget that was measured at a smaller size than it names is *not measured*, unless it is missed there already.

{table(results)}

Which matcher searches large logs, and how fast others are:
[Hyperscan as an extra](decisions/2026-11-21-hyperscan-as-an-extra.md).
"""


if __name__ == "__main__":
    sys.exit(main())
