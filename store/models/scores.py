"""Scores of nodes and links: written by the predictor in the caller's transaction, read by time or by page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from statistics import median
from typing import Any, TypeAlias

import orjson
import sqlalchemy as sa

from store.database.coordination import move_mark, read_marks
from store.records.score import Reason, Score
from store.tables import schema
from store.tables.bulk_rows import copy_text, escaped, insert_rows, is_one_of, upsert
from store.tables.pages import answer_rows

_TABLE = schema.link_scores


@dataclass(frozen=True, slots=True)
class LinkScore:
    """The probability that a link is lost in (time, time + horizon_h]; `ends` are the names of both its ends.

    `node`: the host at its end; None between two switches. `own_risk`: what the link's own signs add to the probability
    of one that shows nothing, whatever its neighbours show; None: not told. `stop_risk`: the same probability that it
    is lost and that this stops the job on its host; None: nobody has seen here that one could tell.
    """

    link: str
    ends: tuple[str, ...]
    horizon_h: int
    time: datetime
    score: float
    reasons: tuple[Reason, ...]
    model: str
    node: str | None = None
    own_risk: float | None = None
    stop_risk: float | None = None

    @property
    def own_reasons(self) -> tuple[Reason, ...]:
        """What speaks against this link itself: reasons that events of its own are behind."""
        return tuple(reason for reason in self.reasons if reason.contribution > 0 and reason.events)


def save_link_scores(connection: sa.Connection, horizon_h: int, scores: Sequence[LinkScore]) -> None:
    """Put a scoring of all links in the place of the last one of its horizon."""
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.horizon_h == horizon_h))
    rows = [{**asdict(score), "ends": list(score.ends)} for score in scores]
    if rows:
        connection.execute(sa.insert(_TABLE), rows)


def newest_link_scoring(connection: sa.Connection, horizon_h: int) -> datetime | None:
    """When links were scored last for a horizon; None where they never were."""
    query = sa.select(sa.func.max(_TABLE.c.time, type_=schema.UtcTime())).where(_TABLE.c.horizon_h == horizon_h)
    newest: datetime | None = connection.scalar(query)
    return newest


def usual_link_score(connection: sa.Connection, horizon_h: int) -> float:
    """The median probability of all links of the newest scoring; 0 where there is none."""
    scores = connection.scalars(sa.select(_TABLE.c.score).where(_TABLE.c.horizon_h == horizon_h)).all()
    return float(median(scores)) if scores else 0.0


def link_score_page(
    connection: sa.Connection, horizon_h: int, limit: int, after: tuple[float, str] | None = None
) -> list[dict[str, Any]]:
    """Rows of the newest scoring, the likeliest to be lost first, those after a (score, link)."""
    query = sa.select(_TABLE).where(_TABLE.c.horizon_h == horizon_h)
    if after is not None:
        same = sa.and_(_TABLE.c.score == after[0], _TABLE.c.link > after[1])
        query = query.where(sa.or_(_TABLE.c.score < after[0], same))
    query = query.order_by(_TABLE.c.score.desc(), _TABLE.c.link).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


def links_at_risk(
    connection: sa.Connection, horizon_h: int, window: tuple[datetime, datetime], least: float, most: int
) -> list[LinkScore]:
    """The `most` links of the highest `own_risk`, from `least` on, scored in (since, until], the riskiest first."""
    query = _link_query(horizon_h, window).where(_TABLE.c.own_risk >= least)
    query = query.order_by(_TABLE.c.own_risk.desc(), _TABLE.c.link).limit(most)
    return [_link_score(row) for row in connection.execute(query).mappings()]


def link_scores_of(
    connection: sa.Connection, horizon_h: int, window: tuple[datetime, datetime], links: Sequence[str]
) -> list[LinkScore]:
    """Those of some links, as far as their `own_risk` is told."""
    query = _link_query(horizon_h, window).where(is_one_of(connection, _TABLE.c.link, links))
    return [_link_score(row) for row in connection.execute(query).mappings()] if links else []


def _link_query(horizon_h: int, window: tuple[datetime, datetime]) -> sa.Select[Any]:
    since, until = window
    query = sa.select(_TABLE).where(_TABLE.c.horizon_h == horizon_h, _TABLE.c.time > since, _TABLE.c.time <= until)
    return query.where(_TABLE.c.own_risk.is_not(None))


def _link_score(row: sa.RowMapping) -> LinkScore:
    return LinkScore(**{**row, "ends": tuple(row["ends"]), "reasons": _read_reasons(row["reasons"])})


def scores_of(connection: sa.Connection, moment: datetime) -> list[Score]:
    """The scores of one scoring, by horizon and node."""
    table = schema.scores
    horizons = sa.select(schema.models.c.horizon_h)
    query = sa.select(table).where(table.c.time == moment, table.c.horizon_h.in_(horizons))
    return [score_of(row) for row in connection.execute(query.order_by(table.c.horizon_h, table.c.node))]


def scoring_times(connection: sa.Connection, since: datetime, until: datetime) -> list[datetime]:
    """The moments of scorings in [since, until), oldest first."""
    table = schema.scores
    query = sa.select(table.c.time).where(table.c.time >= since, table.c.time < until).distinct()
    return list(connection.scalars(query.order_by(table.c.time)))


def score_of(row: Any) -> Score:
    """The score of a row of `scores`."""
    return Score(
        node=row.node,
        time=row.time,
        horizon_h=row.horizon_h,
        score=row.score,
        reasons=_read_reasons(row.reasons),
        model=row.model,
    )


def score_page(
    connection: sa.Connection, horizon_h: int, moment: datetime, nodes: tuple[str | None, str], limit: int
) -> list[dict[str, Any]]:
    """The scores of one scoring by node; `nodes` is the only node asked for, and the one to continue after."""
    table = schema.scores
    only, after = nodes
    query = sa.select(table).where(table.c.horizon_h == horizon_h, table.c.time == moment, table.c.node > after)
    if only is not None:
        query = query.where(table.c.node == only)
    page = query.order_by(table.c.node).limit(limit).subquery()
    return answer_rows(connection, page, page.c.node)


# Whoever writes scores moves it: what was read of them before may be another's.
_MARK = "scores"


@dataclass(slots=True)
class KnownScores:
    """The scores of each horizon's newest scoring; they are read again once the mark says that any were written."""

    _read: dict[int, tuple[tuple[datetime, int], Mapping[str, float]]] = field(default_factory=dict)

    def read(self, connection: sa.Connection, horizon_h: int, moment: datetime | None) -> Mapping[str, float]:
        """Each node's score of a moment."""
        if moment is None:
            return _NONE
        # The mark first: scores that come in between are taken for older ones, and read once more.
        version = moment, read_marks(connection).get(_MARK, 0)
        known = self._read.get(horizon_h)
        if known is None or known[0] != version:
            table = schema.scores.c
            query = sa.select(table.node, table.score).where(table.horizon_h == horizon_h, table.time == moment)
            self._read[horizon_h] = known = version, dict(connection.execute(query).all())
        return known[1]


_NONE: Mapping[str, float] = {}
_COLUMNS = ("node", "horizon_h", "time", "score", "reasons", "model")
_BLOCK = 100
_ESCAPE, _ESCAPED = "\\", "\\\\"


def save_scores(connection: sa.Connection, scores: Iterable[Score]) -> int:
    """Save scores; a later score of the same node, horizon and moment replaces the earlier one. Returns how many."""
    unique = {(score.node, score.horizon_h, score.time): score for score in scores}
    moments = {(horizon_h, moment) for _node, horizon_h, moment in unique}
    if any(_is_scored(connection, *moment) for moment in moments):
        upsert(
            connection, schema.scores, [{**asdict(one), "reasons": _reason_documents(one)} for one in unique.values()]
        )
    else:
        insert_rows(connection, schema.scores, _COLUMNS, [_row(one) for one in unique.values()])
    move_mark(connection, _MARK)
    return len(unique)


# A score as its row: node, horizon_h, time, score, reasons (JSON, as `Score.reasons`), model.
ScoreRow: TypeAlias = tuple[str, int, datetime, float, str, str]


def save_scoring_in_blocks(
    connection: sa.Connection, moment: datetime, horizons_h: Sequence[int], rows: Iterable[ScoreRow]
) -> int:
    """Save a scoring while it is made: PostgreSQL takes its first scores as the last are worded. Returns how many.

    Args:
        moment: that of all scores.
        horizons_h: those of all scores; a node has one score of each.
    """
    if connection.dialect.name != "postgresql" or any(_is_scored(connection, one, moment) for one in horizons_h):
        return save_scores(connection, map(_of_row, rows))
    saved = 0

    def blocks() -> Iterator[str]:
        nonlocal saved
        waiting = iter(rows)
        while block := list(islice(waiting, _BLOCK)):
            saved += len(block)
            yield _lines(block, moment.isoformat())

    copy_text(connection, f"COPY scores ({', '.join(_COLUMNS)}) FROM STDIN", blocks())
    move_mark(connection, _MARK)
    return saved


def _row(score: Score) -> ScoreRow:
    reasons = orjson.dumps(score.reasons).decode()
    return score.node, score.horizon_h, score.time, score.score, reasons, score.model


def _of_row(row: ScoreRow) -> Score:
    node, horizon_h, time, score, reasons, model = row
    return Score(node, time, horizon_h, score, _read_reasons(orjson.loads(reasons)), model)


def _read_reasons(documents: Iterable[Mapping[str, Any]]) -> tuple[Reason, ...]:
    return tuple(Reason(one["text"], one["contribution"], tuple(one["events"])) for one in documents)


def _lines(rows: Sequence[ScoreRow], moment: str) -> str:
    """Rows of one moment as COPY reads them; in JSON no control character stands as itself."""
    models = {model: escaped(model) for _node, _horizon_h, _time, _score, _reasons, model in rows}
    lines = [
        f"{escaped(node)}\t{horizon_h}\t{moment}\t{score}\t{reasons.replace(_ESCAPE, _ESCAPED)}\t{models[model]}\n"
        for node, horizon_h, _time, score, reasons, model in rows
    ]
    return "".join(lines)


def _is_scored(connection: sa.Connection, horizon_h: int, moment: datetime) -> bool:
    table = schema.scores
    found = sa.select(table.c.node).where(table.c.horizon_h == horizon_h, table.c.time == moment).limit(1)
    return connection.scalar(found) is not None


def _reason_documents(score: Score) -> list[dict[str, Any]]:
    return [{**asdict(reason), "events": list(reason.events)} for reason in score.reasons]


def forget_scoring(connection: sa.Connection, moment: datetime) -> None:
    """Let go of the scores of one moment, of every horizon."""
    table = schema.scores
    horizons = sa.select(schema.models.c.horizon_h)
    connection.execute(table.delete().where(table.c.time == moment, table.c.horizon_h.in_(horizons)))
    move_mark(connection, _MARK)
