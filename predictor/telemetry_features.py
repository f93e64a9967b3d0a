"""Features of telemetry: levels, trends, and what is missing.

Only hours that have ended count: at 10:20 the newest is 09:00-10:00.
Vanished telemetry is itself a precursor (FIELD A1, "GPUs fail quietly"): gaps are features and are never filled with 0.
A gap of the whole fleet (a collector that restarts) is subtracted from a node's own.
"""

import numpy as np
from numpy.typing import NDArray

from predictor.feature import Feature
from predictor.history import HOUR_MS, Floats, Grid, History, Ints, TelemetryGrid

DAY_H, WEEK_H = 24, 168

FEATURES: tuple[Feature, ...] = (
    Feature("gpu_temp_max_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_mean_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_trend_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_above_fleet_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_spread_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_spread_trend_c", "temperature", reference=None, monotonic=1),
    Feature("memory_temp_max_c", "temperature", reference=None, monotonic=1),
    Feature("power_mean_w", "power", reference=None),
    Feature("power_trend_w", "power", reference=None),
    Feature("power_max_w", "power", reference=None),
    Feature("gpu_util_mean", "load", reference=None),
    Feature("sm_clock_min_mhz", "load", reference=None),
    Feature("telemetry_gap_24h", "telemetry_gap"),
    Feature("telemetry_gap_7d", "telemetry_gap"),
    Feature("samples_lost_24h", "telemetry_gap"),
    Feature("gpus_missing", "gpu_missing", monotonic=1),
    Feature("gpus_missing_24h", "gpu_missing", monotonic=1),
)


def compute(history: History, moments_ms: Ints) -> dict[str, Grid]:
    """Every telemetry feature, each (moments, nodes); NaN where nothing was measured."""
    grid = history.telemetry
    end = np.clip(moments_ms // HOUR_MS - grid.first_hour, 0, grid.values.shape[1])
    found = _levels(grid, end) | _gaps(grid, end) | _missing_gpus(grid, end, history.fleet.gpus)
    return {name: values.astype(np.float32) for name, values in found.items()}


def _mean(values: NDArray[np.float32], start: Ints, end: Ints) -> Floats:
    """The mean of the hours start <= h < end that were measured, (moments, nodes)."""
    known = np.isfinite(values)
    totals = np.cumsum(np.where(known, values, 0.0), axis=1, dtype=np.float64)
    counts = np.cumsum(known, axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        means: Floats = (_between(totals, start, end) / _between(counts, start, end)).T
    return means


def _between(running: Floats, start: Ints, end: Ints) -> Floats:
    """Differences of running sums along the hours, (nodes, moments)."""
    padded = np.concatenate([np.zeros((running.shape[0], 1)), running], axis=1)
    found: Floats = padded[:, end] - padded[:, np.maximum(start, 0)]
    return found


def _max(values: NDArray[np.float32], start: Ints, end: Ints) -> Floats:
    """The largest measured value of the hours, (moments, nodes)."""
    found = np.full((len(end), values.shape[0]), np.nan)
    for row, (first, last) in enumerate(zip(np.maximum(start, 0), end, strict=True)):
        if last > first:
            found[row] = np.fmax.reduce(values[:, first:last], axis=1)
    return found


def _above_median(values: Floats) -> Floats:
    """How far each node lies above its fleet's median at the moment."""
    found = np.full_like(values, np.nan)
    for row, level in enumerate(values):
        known = np.isfinite(level)
        if known.any():
            found[row] = level - np.median(level[known])
    return found


def _levels(grid: TelemetryGrid, end: Ints) -> dict[str, Floats]:
    """Temperature, power and load of the last 24 hours, and against the node's own week before."""
    day, week = end - DAY_H, end - DAY_H - WEEK_H
    mean_c = _mean(grid.column("gpu_temp_mean_c"), day, end)
    spread_c = _mean(grid.column("gpu_temp_spread_c"), day, end)
    power_w = _mean(grid.column("power_mean_w"), day, end)
    return {
        "gpu_temp_max_c": _max(grid.column("gpu_temp_max_c"), day, end),
        "gpu_temp_mean_c": mean_c,
        "gpu_temp_trend_c": mean_c - _mean(grid.column("gpu_temp_mean_c"), week, day),
        "gpu_temp_above_fleet_c": _above_median(mean_c),
        "gpu_temp_spread_c": spread_c,
        "gpu_temp_spread_trend_c": spread_c - _mean(grid.column("gpu_temp_spread_c"), week, day),
        "memory_temp_max_c": _max(grid.column("memory_temp_max_c"), day, end),
        "power_mean_w": power_w,
        "power_trend_w": power_w - _mean(grid.column("power_mean_w"), week, day),
        "power_max_w": _max(grid.column("power_max_w"), day, end),
        "gpu_util_mean": _mean(grid.column("gpu_util_mean"), day, end),
        "sm_clock_min_mhz": _mean(grid.column("sm_clock_min_mhz"), day, end),
    }


def _gaps(grid: TelemetryGrid, end: Ints) -> dict[str, Floats]:
    """The share of hours without a roll-up beyond the fleet's own, and of samples below the node's usual number.

    A node that gave no telemetry in the 8 days before has none to miss: NaN.
    """
    samples = grid.column("samples")
    seen = np.isfinite(samples)
    hours = seen.astype(np.float32)
    watched = np.isfinite(_mean(samples, end - DAY_H - WEEK_H, end))
    found = {}
    for name, window in (("telemetry_gap_24h", DAY_H), ("telemetry_gap_7d", WEEK_H)):
        gap = 1.0 - _mean(hours, end - window, end)
        usual = np.array([np.median(row[kept]) if kept.any() else 0.0 for row, kept in zip(gap, watched, strict=True)])
        found[name] = np.where(watched, gap - usual[:, None], np.nan)
    lately = _mean(samples, end - DAY_H, end)
    with np.errstate(invalid="ignore", divide="ignore"):
        found["samples_lost_24h"] = 1.0 - lately / _mean(samples, end - DAY_H - WEEK_H, end - DAY_H)
    return found


def _missing_gpus(grid: TelemetryGrid, end: Ints, gpus: Floats) -> dict[str, Floats]:
    """GPUs that a node should have and telemetry did not show: in the newest hour, and on average over 24 hours."""
    seen = grid.column("gpus_seen")
    most = _max(seen, end - DAY_H - WEEK_H, end)
    expected = np.fmax(gpus[None, :], most)
    newest = _mean(seen, end - 1, end)
    return {
        "gpus_missing": np.where(np.isnan(most), np.nan, np.maximum(expected - newest, 0.0)),
        "gpus_missing_24h": np.where(np.isnan(most), np.nan, np.maximum(expected - _mean(seen, end - DAY_H, end), 0.0)),
    }
