"""What we would have held of the tapes: the archive's own way in, and the policy as it decides, lived through again.

    ours = our_holds(Path("fixtures/real/gwdg"), tapes)      # OurHolds(holds, errors)

The tapes are ingested into a database of their own as any archive is. The policy's defaults are asked at each hour and
at the begin of each fatal fault, without budgets and breaker (a handful of nodes is no cluster) and without a model.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from cli.study.detector_rules import ONE_HOLD, DetectorHold, joined
from cli.study.tapes import NodeTape


@dataclass(frozen=True, slots=True)
class OurHolds:
    """Holds that the policy asks for, and all that was told as an error or worse, held or not."""

    holds: list[DetectorHold]
    errors: list[DetectorHold]


def our_holds(folder: Path, tapes: Sequence[NodeTape]) -> OurHolds:
    """Ingest the tapes and live through them."""
    from cli.commands.ingest import ingest_archive
    from store.database.connections import migrate, open_database

    with tempfile.TemporaryDirectory(prefix="foreshock-study-") as place:
        archive = Path(place) / "archive"
        write_archive(folder, archive)
        engine = open_database(f"sqlite:///{place}/study.db")
        try:
            migrate(engine)
            ingest_archive(engine, archive)
            with engine.connect() as connection:
                return OurHolds(joined(replay_holds(connection, tapes)), _errors(connection))
        finally:
            engine.dispose()


def write_archive(folder: Path, archive: Path) -> None:
    """The tapes as one archive, each sample once."""
    import pandas as pd

    paths = sorted((folder / "tapes").iterdir())
    (archive / "telemetry").mkdir(parents=True)
    nodes = pd.concat([pd.read_csv(path / "nodes.csv") for path in paths]).drop_duplicates("node")
    nodes.drop(columns=["in_service_since", "in_service_until"], errors="ignore").to_csv(
        archive / "nodes.csv", index=False
    )
    for name, keys in (("gpu", ["time", "node", "gpu"]), ("host", ["time", "node"])):
        rows = pd.concat([pd.read_parquet(path / "telemetry" / f"{name}.parquet") for path in paths])
        rows.drop_duplicates(keys).sort_values(keys).to_parquet(archive / "telemetry" / f"{name}.parquet", index=False)


def replay_holds(connection: sa.Connection, tapes: Sequence[NodeTape]) -> list[DetectorHold]:
    """What the policy's defaults hold over the tapes, asked at each hour and each fatal fault."""
    from schedulers.backtest.episode import ReplaySpan
    from schedulers.backtest.replay import Contender, ask_by, replay_side_by_side, without_limits
    from schedulers.policy.fact_queries import ScoreHistory
    from schedulers.policy.settings import Policy

    policy = without_limits(Policy())
    found = []
    for since, until in _spans(tapes):
        span = ReplaySpan(since, until)
        (lived,) = replay_side_by_side(
            connection, [Contender(ask_by(policy))], policy, span, scores=ScoreHistory.of([])
        )
        found += [
            DetectorHold(one.node, one.since, one.until or until, (one.reason.removeprefix("foreshock: "),))
            for one in lived.episodes
            if one.is_hold and one.held_back is None
        ]
    return found


def _spans(tapes: Sequence[NodeTape]) -> list[tuple[datetime, datetime]]:
    """The times that any tape covers."""
    found: list[tuple[datetime, datetime]] = []
    for tape in sorted(tapes, key=lambda one: one.moment(0)):
        begin, end = tape.moment(0), tape.moment(len(tape.times) - 1) + timedelta(hours=1)
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _errors(connection: sa.Connection) -> list[DetectorHold]:
    """Each node's incidents of an error or worse, with the day that follows them."""
    from store.tables import schema

    table = schema.incidents.c
    query = sa.select(table.node, table.start, table.end, table.kind, table.code).where(
        table.severity.in_(("error", "fatal")), table.node.is_not(None)
    )
    return joined(
        [
            DetectorHold(node, start, end + ONE_HOLD, (kind if code is None else f"{kind} {code}",))
            for node, start, end, kind, code in connection.execute(query.order_by(table.start))
        ]
    )
