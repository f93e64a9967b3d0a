"""A model as it is stored: its bytes, their digest, what it was made of and how well it did."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One fitted model of one horizon. `trained_until` is the end of the data that it learned from."""

    id: str
    created: datetime
    trained_until: datetime
    horizon_h: int
    features: tuple[str, ...]
    metrics: Mapping[str, Any]
    blob: bytes
    sha256: str
