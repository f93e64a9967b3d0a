"""The mechanisms that a simulated world may have, by their names: `foreshock simulate --mechanism NAME`.

A new one is a line in `MECHANISMS`, and what it does in the file of its kind; one of figures alone is that line.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from simulator.faults.fault import FaultClass
from simulator.mechanisms import bursts, ramps
from simulator.mechanisms.mechanism import Mechanism
from simulator.mechanisms.shared_causes import MAINTENANCE, SHARED_CAUSES
from simulator.mechanisms.silent_telemetry import LOG_HABITS, SILENT_TELEMETRY


def _unseen(kind: FaultClass) -> FaultClass:
    return replace(kind, visible=0.0)


def _rebooted(kind: FaultClass) -> FaultClass:
    """Repaired by reboot, which helps little."""
    return replace(kind, tiers=(0.85, 0.1, 0.05))


# Every node alike, at all times.
_ALIKE = {
    "frailty_shape": 1e4,
    "frailty_floor": 0.0,
    "frailty_drift_per_day": 0.0,
    "relapse_share": 0.0,
    "infant_shape": 1.0,
    "shock_factor": 1.0,
    "sign_frailty_share": 0.0,
}
# The shares and the factor of relapses are those that the records of three real sites gave (`calibration.csv`).
_REPEATING = {
    "frailty_shape": 0.3,
    "frailty_drift_per_day": 0.0,
    "relapse_share": 0.6,
    "relapse_factor": 32.0,
    "resample_on_board_swap": 0.1,
    "resample_on_reimage": 0.0,
    "rate_scale": 0.45,
}

MECHANISMS: Mapping[str, Mechanism] = {
    "ramps": ramps.MECHANISM,
    "bursts": bursts.MECHANISM,
    "maintenance": MAINTENANCE,
    "shared_causes": SHARED_CAUSES,
    "silent_telemetry": SILENT_TELEMETRY,
    "log_habits": LOG_HABITS,
    "repeat_offenders": Mechanism("the same node again and again; a reboot does not help", _REPEATING, _rebooted),
    "no_precursor": Mechanism("nothing is seen before a failure; some nodes fail more often", kind=_unseen),
    "memoryless": Mechanism("every node is alike at all times, and nothing is seen before", _ALIKE, _unseen),
    "no_telemetry": Mechanism("logs and Slurm alone", {"sample_s": 0}),
    "ten_minutes": Mechanism("telemetry every ten minutes", {"sample_s": 600}),
    "quarter_minute": Mechanism("telemetry every 15 seconds: for small and short worlds", {"sample_s": 15}),
}


def mechanisms_of(names: Iterable[str]) -> tuple[Mechanism, ...]:
    """The mechanisms of these names, in their order.

    Raises:
        ValueError: there is none of such a name.
    """
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown:
        raise ValueError(f"a mechanism {unknown[0]!r} is not known: choose of {', '.join(MECHANISMS)}")
    return tuple(MECHANISMS[name] for name in names)
