"""What every parser makes of all fixtures and of mutated lines, as one digest a format.

    PYTHONPATH=OTHER_TREE python tests/result_digests.py --runs 50000 > before.txt
    python tests/result_digests.py --runs 50000 | diff before.txt -

Equal digests say that two versions give the same events, the same errors and the same picked lines, bit for bit; a run
is 200 lines. The lines come from this tree's fixtures, so a change of them changes the digests.
"""

import argparse
import hashlib
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from fuzz import RUN_LINES, corpus, mutated

from parsers.registry import MIXED, PARSERS, detect, make_parser
from parsers.text.parser import Context, ParseError, clean
from parsers.text.scan import LineSelector, by_re2
from store.records.event import Event
from store.records.event_sources import Trust

FIXTURES = Path(__file__).parents[1] / "fixtures"
# The kernel's families are many: every second run is of them.
KERNEL_SHARE = 0.5
_UNTIL = datetime(2026, 11, 20, 23, tzinfo=UTC)
_CONTEXTS = (
    Context(year=2026, node="n", run="r"),
    Context(until=_UNTIL, node="n", boot_time=datetime(2026, 11, 19, tzinfo=UTC)),
    Context(year=2026),
)
_TRUSTS: tuple[Trust | None, ...] = (None, None, "kernel", "system", "user")


class Digest(Protocol):
    """What hashlib gives."""

    def update(self, data: bytes, /) -> None:
        """Take more."""

    def hexdigest(self) -> str:
        """All of it."""


def feed(name: str, lines: Sequence[bytes], context: Context, digest: Digest) -> None:
    """Feed lines to a new parser; everything that comes of them goes into the digest."""
    parser = make_parser(name, context)
    for number, raw in enumerate(lines, start=1):
        _take(lambda raw=raw, number=number: parser.feed(clean(raw), number), digest)  # type: ignore[misc]  # called at once
        digest.update(b"%d" % bool(getattr(parser, "holds", True)))
    _take(parser.flush, digest)


def _take(step: Callable[[], Iterable[Event]], digest: Digest) -> None:
    try:
        for event in step():
            digest.update(repr(event).encode("utf-8", "backslashreplace"))
    except ParseError as error:
        digest.update(f"{type(error).__name__} {error}".encode("utf-8", "backslashreplace"))


def pick(selector: LineSelector, lines: Sequence[bytes], digest: Digest) -> None:
    """The lines that a search of the whole block picks."""
    block = b"".join(line + b"\n" for line in lines)
    digest.update(repr(selector(block, 0, len(block))).encode("utf-8", "backslashreplace"))


def digests(runs: int, first: int = 0) -> dict[str, str]:
    """The digest of each format, of its fixtures and of so many runs of mutated lines in all."""
    found: dict[str, Digest] = {name: hashlib.blake2b(digest_size=12) for name in (*PARSERS, MIXED)}
    selectors = {name: LineSelector(entry.signs, by_re2(entry.signs)) for name, entry in PARSERS.items() if entry.signs}
    for path in sorted(path for path in FIXTURES.rglob("*") if path.is_file()):
        lines = path.read_bytes().split(b"\n")[:20_000]
        own = path.parent.name if path.parent.name in PARSERS else MIXED
        found[MIXED].update(repr(detect([clean(line) for line in lines[:500]])).encode())
        for name in {own, MIXED}:
            feed(name, lines, _CONTEXTS[0], found[name])
            if name in selectors:
                pick(selectors[name], lines, found[name])
    known = corpus()
    names = [*sorted(known), MIXED]
    for seed in range(first, first + runs):
        chance = random.Random(seed)  # a seed gives the same run each time
        name = "kernel" if chance.random() < KERNEL_SHARE else chance.choice(names)
        others = known[chance.choice(sorted(known))]
        own_lines = known[chance.choice(sorted(known)) if name == MIXED else name]
        lines = [mutated(chance, own_lines if chance.random() < 0.9 else others) for _ in range(RUN_LINES)]
        context = chance.choice(_CONTEXTS)
        feed(name, lines, Context(**{**_fields(context), "trust": chance.choice(_TRUSTS)}), found[name])
        if name in selectors:
            pick(selectors[name], lines, found[name])
    return {name: digest.hexdigest() for name, digest in found.items()}


def _fields(context: Context) -> dict[str, object]:
    return {name: getattr(context, name) for name in ("node", "year", "until", "zone", "boot_time", "run")}


def main() -> int:
    """Print the digests."""
    parser = argparse.ArgumentParser(prog="python tests/result_digests.py", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="runs of mutated lines in all [default: 1000]")
    parser.add_argument("--first", type=int, default=0, help="the first run's seed [default: 0]")
    options = parser.parse_args()
    for name, digest in digests(options.runs, options.first).items():
        sys.stdout.write(f"{name} {digest}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
