"""The scores that `foreshock backtest --scores` writes, read back: `time,node,score`, a line a node and moment."""

import csv
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from cli.errors import Failure
from schedulers.score_history import ScoreHistory
from store.event import RecordError, parse_time

_HEADER = ["time", "node", "score"]
_HOW = "write it with `foreshock backtest --horizon-h 24 --scores FILE`"


def read_scores(path: Path) -> ScoreHistory:
    """The scores of a file.

    Raises:
        Failure: it cannot be read, is none, or has a line that does not hold; names file, line and remedy.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            found = ScoreHistory.of(_rows(path, csv.reader(stream)))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise Failure(f"{path} is no CSV of scores ({error}): {_HOW}") from error
    if not found.moments:
        raise Failure(f"{path} has no scores: {_HOW}")
    return found


def _rows(path: Path, lines: Iterator[list[str]]) -> Iterator[tuple[datetime, str, float]]:
    if next(lines, None) != _HEADER:
        raise Failure(f"{path} line 1: the header must be {','.join(_HEADER)}: {_HOW}")
    for number, cells in enumerate(lines, 2):
        place = f"{path} line {number}"
        if len(cells) != len(_HEADER):
            raise Failure(f"{place}: {len(cells)} cells instead of 3 (cut off?): {_HOW}")
        moment, node, score = cells
        if not node:
            raise Failure(f"{place}: no node: {_HOW}")
        try:
            yield _moment(moment), node, _probability(score)
        except (RecordError, ValueError) as error:
            raise Failure(f"{place}: {error}: {_HOW}") from error


@lru_cache(maxsize=16)
def _moment(text: str) -> datetime:
    return parse_time(text).astimezone(UTC)


def _probability(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"score {text[:40]!r} is no number from 0 to 1")
    return score
