"""A folded log as JSON and back. Tables of a line's fields, so that a field that is added makes the rest unreadable."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import orjson

from goodput.log.chapter import Chapter
from goodput.log.fold import FoldedLog
from goodput.log.median import Figures, Window
from goodput.log.rows import LogRow
from goodput.log.training_log import LogLine

# What is written otherwise is read anew from the log. Count it up when what is folded changes.
FORM = 2
_LINE = [field.name for field in fields(LogLine)]
_PLACE = ("received_ms", "file", "number", "stored_us", "id")
_PLAIN = ("heads", "grows", "count", "end", "end_ms", "oldest_us", "slowest_ms")


def encode(log: FoldedLog) -> bytes:
    """The text of a folded log."""
    return orjson.dumps(
        {
            "form": [FORM, *_LINE],
            "order": log.order,
            "source": log.source,
            "loaded": log.loaded,
            "windows": [[window.low, window.high] for window in log.windows],  # infinite is null
            "chapters": [_chapter(chapter) for chapter in log.chapters],
            "tail": [_columns([row.line for row in log.tail]), [[getattr(row, x) for x in _PLACE] for row in log.tail]],
        }
    )


def decode(text: bytes) -> FoldedLog | None:
    """The folded log of a text; None where another version wrote it."""
    told = orjson.loads(text)
    if told.get("form") != [FORM, *_LINE]:
        return None
    low, high = Window().low, Window().high
    windows = [Window(low if one[0] is None else one[0], high if one[1] is None else one[1]) for one in told["windows"]]
    tail = [LogRow(line, *place) for line, place in zip(_lines(told["tail"][0]), told["tail"][1], strict=True)]
    chapters = [_chapter_of(one) for one in told["chapters"]]
    return FoldedLog(told["order"], (windows[0], windows[1]), chapters, tail, told["source"], told.get("loaded", []))


def _chapter(chapter: Chapter) -> dict[str, Any]:
    previous = [] if chapter.previous is None else [chapter.previous]
    return {
        **{name: getattr(chapter, name) for name in _PLAIN},
        "lines": _columns(chapter.lines),
        "carry": _columns(chapter.carry),
        "previous": _columns(previous),
        "figures": [[one.below, one.above, [*one.inside], [*one.inside.values()]] for one in chapter.figures],
    }


def _chapter_of(told: dict[str, Any]) -> Chapter:
    figures = [
        Figures(below, above, dict(zip(values, counts, strict=True)))
        for below, above, values, counts in told["figures"]
    ]
    plain = {name: told[name] for name in _PLAIN}
    plain["end"] = None if plain["end"] is None else tuple(plain["end"])
    previous = _lines(told["previous"])
    return Chapter(
        **plain,
        lines=_lines(told["lines"]),
        carry=_lines(told["carry"]),
        previous=previous[0] if previous else None,
        figures=(figures[0], figures[1], figures[2]),
    )


def _columns(lines: Sequence[LogLine]) -> list[list[Any]]:
    return [[getattr(line, name) for line in lines] for name in _LINE]


def _lines(columns: Sequence[Sequence[Any]]) -> list[LogLine]:
    return [LogLine(*values) for values in zip(*columns, strict=True)]
