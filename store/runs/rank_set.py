"""Sets of ranks as short texts: `0-511,513-1023`, `0-1016/8` (every eighth); and a number of each rank, `21:0-6;20:7`.

An event's attributes hold plain values, and a job has a hundred thousand ranks: a set is told as its ranges. What does
not fit in a text's bound is counted in it, as in `0-2046/2,+500`: nothing is lost without a word.
"""

import re
from collections.abc import Iterable, Mapping

# Characters of one text; ranks that a text is read to; the highest number of a rank.
MOST_CHARS = 8_000
MOST_RANKS = 200_000
_HIGHEST = 10_000_000
# A step between ranks is told as one from so many ranks on.
_LEAST_STRIDED = 4
_PART = re.compile(r"(?P<first>\d{1,8})(?:-(?P<last>\d{1,8})(?:/(?P<step>\d{1,8}))?)?", re.ASCII)


def text_of_ranks(ranks: Iterable[int]) -> str:
    """The ranges of a set of ranks, in order."""
    ordered = sorted(set(ranks))
    parts: list[str] = []
    chars = at = 0
    while at < len(ordered):
        step, end = _run(ordered, at)
        part = _part(ordered[at], ordered[end], step)
        chars += len(part) + 1
        if chars > MOST_CHARS:
            parts.append(f"+{len(ordered) - at}")
            break
        parts.append(part)
        at = end + 1
    return ",".join(parts)


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
            if colon and number.strip().lstrip("-").isdecimal() and len(number) < 20:
                found.update(dict.fromkeys(ranks_of(text), int(number)))
    return found
