"""Sets of ranks as short texts: `0-511,513-1023`, `0-1016/8` (every eighth); and a number of each rank, `21:0-6;20:7`.

An event's attributes hold plain values, and a job has a hundred thousand ranks: a set is told as its ranges, or where
that is too long, as the ranges of every second, fourth ... rank (`1-2749/4,2757-4093/4,2-4094/4`). What does not fit in
a text's bound is counted in it, as in `0-2046/2,+500`: nothing is lost without a word, and `is_cut` tells.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

# Characters of one text; ranks that a text is read to; the highest number of a rank.
MOST_CHARS = 8_000
MOST_RANKS = 200_000
_HIGHEST = 10_000_000
# A step between ranks is told as one from so many ranks on.
_LEAST_STRIDED = 4
# Steps that jobs have: GPUs of a node, of a tensor or pipeline group.
_STEPS = (2, 4, 8, 16, 32, 64)
_PART = re.compile(r"(?P<first>\d{1,8})(?:-(?P<last>\d{1,8})(?:/(?P<step>\d{1,8}))?)?", re.ASCII)


def text_of_ranks(ranks: Iterable[int]) -> str:
    """The ranges of a set of ranks, in order; by a step, if these are too many."""
    ordered = sorted(set(ranks))
    text = _text_of_parts(ordered, _ranges(ordered))
    if not is_cut(text):
        return text
    by_step = (_text_of_parts(ordered, _ranges_by(ordered, step)) for step in _STEPS)
    return next((other for other in by_step if not is_cut(other)), text)


def is_cut(value: object) -> bool:
    """Whether a text does not tell all ranks of its set."""
    return isinstance(value, str) and value.rpartition(",")[2].startswith("+")


def _ranges(ordered: list[int]) -> Iterator[tuple[str, int]]:
    """The parts of a set, each with how many ranks it tells."""
    at = 0
    while at < len(ordered):
        step, end = _run(ordered, at)
        yield _part(ordered[at], ordered[end], step), end + 1 - at
        at = end + 1


def _ranges_by(ordered: list[int], step: int) -> Iterator[tuple[str, int]]:
    """The same, of every `step`-th rank after the other."""
    for rest in range(step):
        own = [rank for rank in ordered if rank % step == rest]
        at = 0
        while at < len(own):
            end = at
            while end + 1 < len(own) and own[end + 1] - own[end] == step:
                end += 1
            yield _part(own[at], own[end], step), end + 1 - at
            at = end + 1


def _text_of_parts(ordered: list[int], parts: Iterable[tuple[str, int]]) -> str:
    found: list[str] = []
    chars = told = 0
    for part, count in parts:
        chars += len(part) + 1
        if chars > MOST_CHARS:
            found.append(f"+{len(ordered) - told}")
            break
        found.append(part)
        told += count
    return ",".join(found)


def _run(ordered: list[int], at: int) -> tuple[int, int]:
    """The step of the run that begins at a place, and its last place."""
    if at + 1 == len(ordered):
        return 1, at
    step, end = ordered[at + 1] - ordered[at], at + 1
    while end + 1 < len(ordered) and ordered[end + 1] - ordered[end] == step:
        end += 1
    return (step, end) if step == 1 or end - at + 1 >= _LEAST_STRIDED else (1, at)


def _part(first: int, last: int, step: int) -> str:
    if first == last:
        return str(first)
    return f"{first}-{last}" if step == 1 else f"{first}-{last}/{step}"


def ranks_of(value: object) -> frozenset[int]:
    """The ranks of a text, or of one number; what is no rank is passed over, and no more than MOST_RANKS are read."""
    if isinstance(value, int) and not isinstance(value, bool):
        return frozenset((value,)) if 0 <= value <= _HIGHEST else frozenset()
    if not isinstance(value, str):
        return frozenset()
    found: set[int] = set()
    for part in value[: 2 * MOST_CHARS].split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            continue
        first = int(match["first"])
        last = min(int(match["last"] or first), _HIGHEST)
        room = MOST_RANKS - len(found)
        found.update(range(first, last + 1, max(int(match["step"] or 1), 1))[: max(room, 0)])
    return frozenset(found)


def text_of_numbers(numbers: Mapping[int, int]) -> int | str | None:
    """A number of each rank: the number alone where all have the same, else each number with its ranks."""
    by_number: dict[int, list[int]] = {}
    for rank, number in numbers.items():
        by_number.setdefault(number, []).append(rank)
    if len(by_number) <= 1:
        return next(iter(by_number), None)
    parts: list[str] = []
    chars = 0
    for place, number in enumerate(sorted(by_number)):
        part = f"{number}:{text_of_ranks(by_number[number])}"
        chars += len(part) + 1
        if chars > MOST_CHARS:
            parts.append(f"+{sum(len(by_number[one]) for one in sorted(by_number)[place:])}")
            break
        parts.append(part)
    return ";".join(parts)


def numbers_of(value: object, ranks: Iterable[int]) -> dict[int, int]:
    """The number of each rank, as `text_of_numbers` tells it; `ranks` are those that one number is of."""
    if isinstance(value, int) and not isinstance(value, bool):
        return dict.fromkeys(ranks, value)
    found: dict[int, int] = {}
    if isinstance(value, str):
        for part in value[: 2 * MOST_CHARS].split(";"):
            number, colon, text = part.partition(":")
            if colon and number.strip().removeprefix("-").isdecimal() and len(number) < 20:
                found.update(dict.fromkeys(ranks_of(text), int(number)))
    return found
