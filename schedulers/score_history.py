"""Scores that are not in the store: those of a backtest, which each were made by a model of what came before. Pure.

ScoreHistory.of([(moment, "gpu-017", 0.04), ...]).newest(now)       # (moment, {"gpu-017": 0.04})
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ScoreHistory:
    """The 24 h probabilities (0-1) of nodes by the moment that they speak from; `moments` in order."""

    moments: tuple[datetime, ...]
    scores: Mapping[datetime, Mapping[str, float]]

    @classmethod
    def of(cls, rows: Iterable[tuple[datetime, str, float]]) -> "ScoreHistory":
        """From rows of moment, node and score, in any order; of two for the same the later row."""
        found: dict[datetime, dict[str, float]] = {}
        for moment, node, score in rows:
            found.setdefault(moment, {})[node] = score
        return cls(tuple(sorted(found)), found)

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that were ever scored."""
        return frozenset(node for scores in self.scores.values() for node in scores)

    def newest(self, at: datetime) -> tuple[datetime | None, Mapping[str, float]]:
        """The newest moment no later than `at` and its scores, as `store/read_states.py` tells of those stored."""
        place = bisect_right(self.moments, at)
        if not place:
            return None, {}
        moment = self.moments[place - 1]
        return moment, self.scores[moment]
