"""Mutated lines through every parser, by the million: `make fuzz ARGS="--lines 10000000"`.

Lines of all fixtures are cut, spliced, doubled, and have bytes changed; each parser is fed runs of them, a new parser
for each run, and flushed. Whatever is raised beside ParseError, an event that is no sound record, or a run that takes
longer than LIMIT_S ends the command with exit 1 and prints the run's seed, by which `--seed N --runs 1` repeats it.
"""

import argparse
import faulthandler
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
from real.patience import patience

from parsers.registry import PARSERS
from parsers.text.parser import Context, ParseError, clean
from store.records.event import Event, event_id, from_wire, to_wire

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN_LINES = 200
LIMIT_S = 20.0
_ALPHABET = bytes(range(256))
_PIECES = (*(bytes([byte]) for byte in b' \t\x00\xff"{}[]|=:,'), b"\\x00", b"-1", b"0x")


def corpus() -> dict[str, list[bytes]]:
    """Every line of every fixture, by format."""
    found: dict[str, list[bytes]] = {}
    for name in PARSERS:
        every = [path for path in sorted((FIXTURES / name).iterdir()) if path.is_file()]
        files = [path for path in every if path.suffix not in (".jsonl", ".md")]
        texts = [path.read_bytes() for path in files if "LICENSE" not in path.name]
        found[name] = sorted({line for text in texts for line in text.split(b"\n") if line})
    return found


def mutated(chance: random.Random, lines: Sequence[bytes]) -> bytes:
    """A line, changed a little or much."""
    line = bytearray(chance.choice(lines))
    for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
        MUTATIONS[chance.randrange(len(MUTATIONS))](chance, line, lines)
        if len(line) > 4096:
            del line[4096:]
    return bytes(line)


def _change(chance: random.Random, line: bytearray, _lines: Sequence[bytes]) -> None:
    if line:
        line[chance.randrange(len(line))] = chance.choice(_ALPHABET)


def _cut(chance: random.Random, line: bytearray, _lines: Sequence[bytes]) -> None:
    start = chance.randint(0, len(line))
    del line[start : start + chance.choice((1, 2, 5, 20, 4096))]


def _insert(chance: random.Random, line: bytearray, _lines: Sequence[bytes]) -> None:
    at = chance.randint(0, len(line))
    line[at:at] = chance.choice(_PIECES) * chance.choice((1, 1, 2, 300))


def _splice(chance: random.Random, line: bytearray, lines: Sequence[bytes]) -> None:
    other = chance.choice(lines)
    line[chance.randint(0, len(line)) :] = other[chance.randint(0, len(other)) :]


def _double(chance: random.Random, line: bytearray, _lines: Sequence[bytes]) -> None:
    start = chance.randint(0, len(line))
    piece = line[start : start + chance.choice((1, 3, 10, 40))]
    line[start:start] = piece * chance.choice((1, 5, 50))


def _digits(chance: random.Random, line: bytearray, _lines: Sequence[bytes]) -> None:
    places = [at for at, byte in enumerate(line) if 48 <= byte <= 57]
    if places:
        at = chance.choice(places)
        line[at : at + 1] = str(chance.choice((0, 9, 99, 2**31, 2**63, 2**64, 10**30))).encode()


Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]
MUTATIONS: tuple[Mutation, ...] = (_change, _change, _cut, _insert, _splice, _double, _digits)


def feed(name: str, lines: Sequence[bytes]) -> Counter[str]:
    """Feed lines to a new parser; counts what came of them.

    Raises:
        Exception: whatever the parser raises beside ParseError, and AssertionError for an unsound event.
    """
    parser = PARSERS[name].make(Context(year=2026, node="n", run="r"))
    counts: Counter[str] = Counter(lines=len(lines))
    steps = [lambda n=n, raw=raw: parser.feed(clean(raw), n) for n, raw in enumerate(lines, start=1)]
    for step in (*steps, parser.flush):
        try:
            events = list(step())
        except ParseError as error:
            assert str(error)
            counts["refused"] += 1
            continue
        for event in events:
            counts["events"] += 1
            _check(event, name)
    return counts


def _check(event: Event, name: str) -> None:
    """Refuse an event that is no sound record, and say which."""
    try:
        assert from_wire(orjson.loads(orjson.dumps(to_wire(event)))) == event
        assert event_id(event)
        assert event.source == name
    except Exception as error:
        raise AssertionError(f"no sound record: {event}") from error


def run(seed: int, known: dict[str, list[bytes]]) -> Counter[str]:
    """One run of one parser: mostly its own lines, some of others."""
    chance = random.Random(seed)  # a seed gives the same run each time
    name = chance.choice(sorted(known))
    own = known[name]
    others = known[chance.choice(sorted(known))]
    lines = [mutated(chance, own if chance.random() < 0.85 else others) for _ in range(RUN_LINES)]
    started = time.thread_time()
    faulthandler.dump_traceback_later(patience(LIMIT_S * 3), exit=True)
    counts = feed(name, lines)
    faulthandler.cancel_dump_traceback_later()
    assert time.thread_time() - started < LIMIT_S, f"{name} took longer than {LIMIT_S} s of a processor"
    return counts


def work(seeds: range) -> tuple[Counter[str], str | None]:
    """Many runs; the first failure, as text."""
    known, counts = corpus(), Counter[str]()
    for seed in seeds:
        try:
            counts += run(seed, known)
        except Exception:  # noqa: BLE001  # whatever it is, it is what we look for
            return counts, f"--seed {seed} --runs 1\n{traceback.format_exc()}"
    return counts, None


def guided(told: argparse.Namespace) -> None:
    """The same, led by coverage: atheris, which must be installed beside (`uv pip install atheris`). Never returns."""
    import atheris

    names = sorted(PARSERS)

    def one(data: bytes) -> None:
        if data:
            feed(names[data[0] % len(names)], data[1:].split(b"\n")[:RUN_LINES])

    with tempfile.TemporaryDirectory() as folder:
        for place, (name, lines) in enumerate(sorted(corpus().items())):
            for at in range(0, len(lines), 20):
                Path(folder, f"{name}-{at}").write_bytes(bytes([place]) + b"\n".join(lines[at : at + 20]))
        atheris.instrument_all()
        atheris.Setup([sys.argv[0], folder, f"-runs={told.runs}", f"-seed={told.seed + 1}", "-max_len=8192"], one)
        atheris.Fuzz()


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--runs", type=int)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--guided", action="store_true", help="led by coverage, with atheris; --runs inputs")
    told = options.parse_args()
    if told.guided:
        guided(told)
    runs = told.runs or -(-told.lines // RUN_LINES)
    step = max(1, min(500, runs // 8))
    parts = [range(first, min(first + step, told.seed + runs)) for first in range(told.seed, told.seed + runs, step)]
    total, started = Counter[str](), time.monotonic()
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        for counts, failure in pool.imap_unordered(work, parts):
            total += counts
            if failure is not None:
                print(failure, file=sys.stderr)  # noqa: T201
                return 1
    seconds = time.monotonic() - started
    print(f"{total['lines']} lines, {total['events']} events, {total['refused']} refused, {seconds:.0f} s: all sound")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
