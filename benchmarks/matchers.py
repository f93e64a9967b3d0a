"""`python -m benchmarks.matchers`: how fast each matcher finds the lines of interest in blocks of a log.

One process, then two that share the blocks. What is not installed here is left out:
`uv pip install ahocorasick_rs` brings a candidate that the product does not use.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks import kernel_log
from parsers.formats.kernel import SIGNS
from parsers.text.parser import FormatSigns
from parsers.text.scan import by_hyperscan, by_re2

# Searches a block, from 1 to the end; the number of hits.
Count = Callable[[bytearray, int], int]
LOG_BYTES = 1_000_000_000
BLOCK_BYTES = 4 * 1024 * 1024
# A slow matcher is shown so much of the log.
BUDGET_S = 1.5
RUNS = 5


def hyperscan(signs: tuple[str, ...]) -> Count:
    """Hyperscan, as the product uses it."""
    search = by_hyperscan(FormatSigns(signs))
    return lambda block, end: len(search(block, 1, end))


def re2_block(signs: tuple[str, ...]) -> Count:
    """One alternation over blocks, as the product uses it."""
    search = by_re2(FormatSigns(signs))
    return lambda block, end: len(search(block, 1, end))


def ahocorasick(signs: tuple[str, ...]) -> Count:
    """Rust's aho-corasick: vectorised for some sixty literals, an automaton beyond."""
    import ahocorasick_rs

    automaton = ahocorasick_rs.BytesAhoCorasick(
        [sign.encode() for sign in signs], matchkind=ahocorasick_rs.MatchKind.LeftmostFirst
    )
    return lambda block, end: len(automaton.find_matches_as_indexes(bytes(memoryview(block)[1:end])))


def re_block(signs: tuple[str, ...]) -> Count:
    """Python's own alternation over blocks."""
    pattern = re.compile("|".join(map(re.escape, signs)).encode())
    return lambda block, end: sum(1 for _ in pattern.finditer(block, 1, end))


def re_lines(signs: tuple[str, ...]) -> Count:
    """The same, line by line."""
    search = re.compile("|".join(map(re.escape, signs)).encode()).search
    return lambda block, end: sum(1 for line in bytes(memoryview(block)[1:end]).split(b"\n") if search(line))


def re2_set_lines(signs: tuple[str, ...]) -> Count:
    """RE2's set of patterns, line by line."""
    import re2

    chosen = re2.Set.SearchSet()
    for sign in signs:
        chosen.Add(re.escape(sign).replace("\\ ", " "))
    chosen.Compile()
    return lambda block, end: sum(1 for line in bytes(memoryview(block)[1:end]).split(b"\n") if chosen.Match(line))


def find_each(signs: tuple[str, ...]) -> Count:
    """`bytes.find` of each literal in turn."""
    literals = [sign.encode() for sign in signs]

    def count(block: bytearray, end: int) -> int:
        hits = 0
        for literal in literals:
            at = block.find(literal, 1, end)
            while at >= 0:
                hits += 1
                at = block.find(literal, at + 1, end)
        return hits

    return count


def arrow(signs: tuple[str, ...]) -> Count:
    """Arrow's regular expressions (RE2) over a column of lines."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pattern = "|".join(re.escape(sign).replace("\\ ", " ") for sign in signs)

    def count(block: bytearray, end: int) -> int:
        lines = pa.array(bytes(memoryview(block)[1:end]).split(b"\n"))
        found: int = pc.sum(pc.match_substring_regex(lines, pattern)).as_py()
        return found

    return count


MATCHERS: dict[str, Callable[[tuple[str, ...]], Count]] = {
    "hyperscan": hyperscan,
    "ahocorasick_rs": ahocorasick,
    "google-re2, one alternation": re2_block,
    "google-re2, a set, line by line": re2_set_lines,
    "pyarrow, one alternation, a column of lines": arrow,
    "re, one alternation": re_block,
    "re, line by line": re_lines,
    "bytes.find, each literal": find_each,
}


def rate(log: Path, count: Count, processes: int) -> float:
    """MB/s, the median of several runs."""
    rates = []
    for _ in range(RUNS):
        began = time.perf_counter()
        children = [pid for part in range(1, processes) if (pid := _forked(log, count, part, processes))]
        done = _search(log, count, 0, processes)
        for child in children:
            os.waitpid(child, 0)
        rates.append(done * processes / (time.perf_counter() - began) / 1e6)
    return median(rates)


def _forked(log: Path, count: Count, part: int, parts: int) -> int:
    child = os.fork()
    if not child:
        _search(log, count, part, parts)
        os._exit(0)
    return child


def _search(log: Path, count: Count, part: int, parts: int) -> int:
    """Search every so manieth block, for a while; how many bytes that were."""
    buffer = bytearray(1 + BLOCK_BYTES)
    done, began = 0, time.perf_counter()
    for got in _blocks(log, buffer, part, parts):
        count(buffer, 1 + got)
        done += got
        if time.perf_counter() - began > BUDGET_S:
            break
    return done


def _blocks(log: Path, buffer: bytearray, part: int, parts: int) -> Iterator[int]:
    with log.open("rb", buffering=0) as file, memoryview(buffer) as view:
        for place in range(part * BLOCK_BYTES, log.stat().st_size, parts * BLOCK_BYTES):
            file.seek(place)
            yield file.readinto(view[1:])


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="foreshock-bench-") as folder:
        log = Path(folder) / "kern.log"
        kernel_log.write(log, LOG_BYTES)
        table(log)


def table(log: Path) -> None:
    """The rates over a log, in Markdown."""
    some = SIGNS[:: max(1, len(SIGNS) // 30)][:30]
    print(
        f"| matcher | {len(some)} signs | two processes | {len(SIGNS)} signs | two processes |\n|---|---|---|---|---|"
    )
    for name, make in MATCHERS.items():
        try:
            counts = [make(signs) for signs in (some, SIGNS)]
        except ImportError:
            continue
        cells = [f"{rate(log, count, processes):.0f}" for count in counts for processes in (1, 2)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
