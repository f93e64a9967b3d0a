"""The gauges of the models, from what the database knows of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from store.models.registry import MODEL_ROLES, LastTraining

_HORIZONS = {24: "24h", 168: "7d"}
# By the name of the check: a measured state, of which `unknown` is no alarm.
_CHECKS = ("drift", "calibration")


def model_gauges(models: Sequence[Mapping[str, Any]], last: LastTraining | None) -> Iterable[Metric]:
    """How many models have each role, how old the champions are, whether they drift, whether training fails."""
    count = GaugeMetricFamily("foreshock_models", "Models by horizon and role.", labels=["horizon", "role"])
    until = GaugeMetricFamily(
        "foreshock_model_trained_until_timestamp_seconds",
        "Up to when the model that serves has learned.",
        labels=["horizon"],
    )
    drift = GaugeMetricFamily(
        "foreshock_model_drift",
        "Whether the model that serves drifts: by how nodes look (drift), by what comes of its scores (calibration).",
        labels=["horizon", "check"],
    )
    for horizon_h, name in _HORIZONS.items():
        mine = [model for model in models if model["horizon_h"] == horizon_h]
        for role in MODEL_ROLES:
            count.add_metric([name, role], sum(model["role"] == role for model in mine))
        for champion in [model for model in mine if model["role"] == "champion"][:1]:
            until.add_metric([name], champion["trained_until"].timestamp())
            for check in _CHECKS:
                drift.add_metric([name, check], champion["checks"].get(check, {}).get("state") == "drifted")
    failed = GaugeMetricFamily("foreshock_model_training_failed", "Whether the server's last training failed.")
    failed.add_metric([], last is not None and last.outcome == "failed")
    yield from (count, until, drift, failed)
