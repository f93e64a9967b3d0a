"""Which format a log is of, by what its first lines say.

detect(["Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> SUBNET UP"]) -> "opensm"
"""

from collections import Counter
from collections.abc import Sequence

from parsers.registry import PARSERS

# How many lines to look at: a training log opens with some 1,500 lines of settings.
SAMPLE_LINES = 4000


def detect(sample_lines: Sequence[str]) -> str | None:
    """The name of the format that most of the lines speak for; None where none does."""
    hits: Counter[str] = Counter()
    for text in sample_lines:
        name = recognise(text)
        if name is None:
            continue
        if PARSERS[name].shape == "table":  # its rows are of no form that could be told
            return name
        hits[name] += 1
    return hits.most_common(1)[0][0] if hits else None


def recognise(text: str) -> str | None:
    """The format that a line speaks for, the first of the registry that recognises it; None where none does."""
    return next((name for name, entry in PARSERS.items() if entry.recognises.search(text)), None)
