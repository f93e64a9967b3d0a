"""Answers of `GET /models` and `GET /checks`, for the dashboard's tests."""

PARTS = [
    {"score": 0.004, "observed": 0.003, "interval": [0.001, 0.006], "rows": 5_000, "positives": 15},
    {"score": 0.05, "observed": 0.08, "interval": [0.02, 0.2], "rows": 100, "positives": 8},
]
MODEL = {
    "id": "gbt-24h-3f2a0c5a9b8e",
    "horizon_h": 24,
    "kind": "gbt",
    "role": "champion",
    "why": "trees: they beat both baselines",
    "by": "train",
    "since": "2025-03-28T00:00:00Z",
    "created": "2025-03-28T00:00:00Z",
    "trained_until": "2025-03-28T00:00:00Z",
    "data": {"rows": 12345, "positives": 210},
    "code": "0.1.0+5a9b8e4d1f8a",
    "metrics": {
        "holdout": {"roc_auc": 0.842, "average_precision": 0.2},
        "last_folds": {
            "trees": {"average_precision": 0.061, "recall": 0.4, "outages": 40, "log_loss": 0.0212},
            "blend": {"average_precision": 0.064, "recall": 0.42, "outages": 40, "log_loss": 0.0208}
            | {"over_trees": {"average_precision": [-0.004, 0.011], "log_loss": [0.0001, 0.0007]}},
            "history_count": {"average_precision": 0.03, "recall": 0.3, "outages": 40},
        },
    },
    "checks": {"drift": {"state": "ok", "alarms": []}, "calibration": {"state": "unknown"}, "reliability": PARTS},
    "sha256": "3f2a",
    "bytes": 40000,
}
MODELS = {
    "items": [MODEL, MODEL | {"id": "gbt-24h-new", "role": "challenger", "why": "3 outages in 2 days", "checks": {}}],
    "next_cursor": None,
    "training": {"time": "2025-03-28T00:00:00Z", "outcome": "trained", "by": "server", "why": None},
    "control": {"percent": 3.0, "period_days": 28.0},
}
CHECK = {
    "source": "kernel",
    "name": "xid 79",
    "said": 14,
    "waiting": 1,
    "followed": 9,
    "cleared": 2,
    "contradicted": 1,
    "unknown": 1,
    "nodes": 11,
    "precision": 0.71,
    "low": 0.46,
    "high": 0.9,
    "weight": 1.0,
    "last": "2025-03-29T03:00:00Z",
}
CHECKS = {
    "items": [
        CHECK,
        CHECK
        | {"source": "dcgm", "name": "row_remap_failure", "followed": 0, "cleared": 40, "precision": 0.02, "low": 0.0}
        | {"high": 0.09, "weight": 0.36},
        CHECK | {"source": "nhc", "name": "check_hw_ib", "followed": 0, "cleared": 0, "contradicted": 0, "waiting": 14},
    ],
    "next_cursor": None,
    "horizon_h": 168,
    "enough": 0.25,
}
