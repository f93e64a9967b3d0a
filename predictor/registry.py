"""The registry: which model serves, which ones are on trial beside it, and what each was made of."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from importlib import metadata

import numpy as np
import sqlalchemy as sa

from predictor.dataset import Dataset
from predictor.feature import Feature
from predictor.history import from_ms
from predictor.labels import Labels
from store.model import ModelRole, StoredModel
from store.model_roles import give_role, lock_roles, note
from store.read_scores import challengers, read_model, serving_model
from store.save_scores import save_model

# More on trial at a time cost scoring and tell little: the oldest gives way.
MOST_CHALLENGERS = 3


def register(connection: sa.Connection, model: StoredModel, role: ModelRole, by: str, now: datetime) -> ModelRole:
    """Add a model, in the caller's transaction; returns the role that it got.

    The first of its horizon is the champion, whatever was asked for. A model that is there already (the same data,
    the same program) keeps its role, unless it is to be the champion.
    """
    lock_roles(connection)
    known, champion = read_model(connection, model.id), serving_model(connection, model.horizon_h)
    if known is None:
        why = model.why or f"trained until {model.trained_until:%Y-%m-%d %H:%M} UTC"
        save_model(connection, replace(model, role="challenger", why=why, by=by, since=now))
        if champion is not None and role != "champion":
            note(connection, now, by, ("challenger", model.id), {"why": why})
            _make_room(connection, model.horizon_h, by, now)
            return "challenger"
        first = "" if champion is not None else ", the first of its horizon"
        give_role(connection, model.id, "champion", why + first, by, now)
        return "champion"
    if role == "champion" and known.role != "champion":
        give_role(connection, model.id, "champion", "trained again, with the same result", by, now)
        return "champion"
    return known.role


def _make_room(connection: sa.Connection, horizon_h: int, by: str, now: datetime) -> None:
    on_trial = challengers(connection, horizon_h)
    for one in on_trial[: max(0, len(on_trial) - MOST_CHALLENGERS)]:
        why = f"{MOST_CHALLENGERS} newer ones are on trial, and it had not shown itself better"
        give_role(connection, one.id, "rejected", why, by, now)


def code_version(features: Sequence[Feature]) -> str:
    """The program's version and a digest of what its features are."""
    text = "\n".join(f"{f.name} {f.group} {f.reference} {f.monotonic}" for f in features)
    return f"{metadata.version('foreshock')}+{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def data_of(data: Dataset, labels: Labels) -> dict[str, object]:
    """What a model learned from: counts, ends, and a digest over every row, its answer and its features."""
    digest = hashlib.sha256("\n".join(data.fleet.names).encode())
    for part in (data.rows.node, data.rows.time_ms, labels.positive, data.values):
        digest.update(np.ascontiguousarray(part).tobytes())
    return {
        "rows": len(data.rows),
        "positives": int(labels.positive.sum()),
        "nodes": len(data.fleet.names),
        "since": from_ms(int(data.rows.time_ms[0])).isoformat(),
        "until": from_ms(int(data.rows.time_ms[-1])).isoformat(),
        "sha256": digest.hexdigest(),
    }
