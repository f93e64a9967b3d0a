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
    """By how much one device is likelier than a quiet one to fail, or to be worse than healthy; all devices' risks."""
    found = device_states(history.precursors, history.outages, rows)
    return {
        "device_failing": found.highest(FAILING),
        "device_degraded": found.highest(FAILING, DEGRADED),
        "device_risk_24h": found.sign_risk(24.0),
        "device_risk_7d": found.sign_risk(168.0),
    }
