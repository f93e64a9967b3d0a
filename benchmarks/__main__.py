"""`python -m benchmarks [--write] [NAME...]`: measure the design's budgets on this machine and print a table."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
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
    "load": (load.WHAT, load.BUDGET, load.measure),
    "rescore": (predict.WHAT, predict.BUDGET, predict.measure),
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
    if options.write:
        PAGE.write_text(with_rows(PAGE.read_text(), found) if options.names else page(results, options.names))
    return 0


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
