"""Features of the state of a node's devices, as the filter of `predictor/devices` sees them at the moment."""

from predictor.devices.filter import DEGRADED, FAILING
from predictor.devices.states import device_states
from predictor.history.arrays import Feature, Floats, History, Rows

FEATURES: tuple[Feature, ...] = (
    Feature("device_failing", "devices", monotonic=1),
    Feature("device_degraded", "devices", monotonic=1),
    Feature("device_risk_24h", "devices", monotonic=1),
    Feature("device_risk_7d", "devices", monotonic=1),
)


def compute(history: History, rows: Rows) -> dict[str, Floats]:
    """The highest chances of one device to be failing, or worse than healthy, and what all devices' risks come to."""
    found = device_states(history.precursors, history.outages, rows)
    failing = found.state[:, FAILING]
    return {
        "device_failing": found.highest(failing),
        "device_degraded": found.highest(failing + found.state[:, DEGRADED]),
        "device_risk_24h": found.sign_risk(24.0),
        "device_risk_7d": found.sign_risk(168.0),
    }
