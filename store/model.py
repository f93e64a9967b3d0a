"""A model as it is stored: its bytes and digest, what it was made of, how well it did, and what it is used for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

# gbt: trees over all features. history, rules: the baselines, which serve where no trees beat them.
ModelKind: TypeAlias = Literal["gbt", "history", "rules"]
# champion: its scores are served. challenger: it scores beside, unseen, until it is judged. retired: was champion.
# rejected: was a challenger and did not show itself better.
ModelRole: TypeAlias = Literal["champion", "challenger", "retired", "rejected"]
MODEL_ROLES: tuple[ModelRole, ...] = get_args(ModelRole)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One fitted model of one horizon. `trained_until` is the end of the data that it learned from.

    Attributes:
        data: what it learned from: `rows positives nodes since until sha256`, the last over the rows themselves.
        code: the program's version and the digest of its features' definitions.
        why, by, since: why it has its role, who gave it that, and when (None: as it was made).
        profile: how each feature was spread when it learned, which drift is measured against.
        checks: what was last found of it: its trial, its calibration, its drift.
    """

    id: str
    created: datetime
    trained_until: datetime
    horizon_h: int
    features: tuple[str, ...]
    metrics: Mapping[str, Any]
    blob: bytes
    sha256: str
    kind: ModelKind = "gbt"
    role: ModelRole = "champion"
    data: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    why: str = ""
    by: str = ""
    since: datetime | None = None
    profile: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Any] = field(default_factory=dict)
