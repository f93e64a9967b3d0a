"""What Slurm's own tools print of the cluster: `sacct -P` and `sacctmgr show event -P`.

JobID|JobName|State|Submit|Start|End|Elapsed|NNodes|NodeList|ExitCode
NodeName|TimeStart|TimeEnd|State|Reason|User
"""

from collections.abc import Iterable, Sequence

from simulator.faults.fault import NodeFailure, PlannedDrain
from simulator.mechanisms.registry import mechanisms_of
from simulator.site import SimulationSettings, SiteLayout
from simulator.training.attempt import SimulatedAttempt

SACCT_HEADER = "JobID|JobName|State|Submit|Start|End|Elapsed|NNodes|NodeList|ExitCode"
EVENT_HEADER = "NodeName|TimeStart|TimeEnd|State|Reason|User"
_REASONS = {
    "hbm_ecc": ("Xid 48: uncorrectable ECC error on GPU {gpu}", "Xid 95: uncontained ECC error on GPU {gpu}"),
    "nvlink": ("Xid 74: NVLink error on GPU {gpu}", "Xid 74: NVLink error on GPU {gpu}"),
    "link_optics": ("IB link down on mlx5_0", "IB port mlx5_0: transceiver fault"),
    "thermal_psu": ("GPU {gpu} thermal shutdown", "PSU failure"),
    "off_bus": ("Xid 79: GPU {gpu} has fallen off the bus", "Xid 79: GPU {gpu} has fallen off the bus"),
    "gsp": ("Xid 119: GSP timeout on GPU {gpu}", "Xid 119: GSP timeout on GPU {gpu}"),
    "host": ("Not responding", "Node unexpectedly rebooted"),
}


def compress(names: Sequence[str]) -> str:
    """Host names in Slurm's bracket form: gpu-[001-003,007].

    >>> compress(["gpu-001", "gpu-002", "gpu-003", "gpu-007"])
    'gpu-[001-003,007]'
    """
    if len(names) == 1:
        return names[0]
    prefix = names[0].rstrip("0123456789")
    width = len(names[0]) - len(prefix)
    numbers = sorted(int(name[len(prefix) :]) for name in names)
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in ranges]
    return f"{prefix}[{','.join(words)}]"


def _stamp(settings: SimulationSettings, time_ms: int) -> str:
    return f"{settings.moment(time_ms):%Y-%m-%dT%H:%M:%S}"


def job_row(settings: SimulationSettings, layout: SiteLayout, attempt: SimulatedAttempt, until_ms: int) -> str | None:
    """One attempt as it stands at a moment; None before its submit."""
    if until_ms < attempt.submit_ms:
        return None
    started, ended = until_ms >= attempt.start_ms, until_ms >= attempt.end_ms
    state = attempt.state if ended else "RUNNING" if started else "PENDING"
    elapsed = max(min(until_ms, attempt.end_ms) - attempt.start_ms, 0) // 1000
    days, seconds = divmod(elapsed, 86_400)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    cells = (
        str(attempt.job_id),
        attempt.run,
        state,
        _stamp(settings, attempt.submit_ms),
        _stamp(settings, attempt.start_ms) if started else "Unknown",
        _stamp(settings, attempt.end_ms) if ended else "Unknown",
        f"{days}-{clock}" if days else clock,
        str(len(attempt.nodes)),
        compress([layout.names[node] for node in attempt.nodes]) if started else "None assigned",
        attempt.exit_code if ended else "0:0",
    )
    return "|".join(cells)


def failure_row(settings: SimulationSettings, layout: SiteLayout, failure: NodeFailure, until_ms: int) -> str | None:
    """One unplanned outage as it stands at a moment; None before its start."""
    if until_ms < failure.start_ms:
        return None
    kind = failure.kind.name
    second = failure.variant >= (60 if kind == "hbm_ecc" else 50)
    reason = _REASONS[kind][second].format(gpu=failure.gpu)
    for mechanism in mechanisms_of(settings.mechanisms):
        reason = reason if mechanism.reason is None else mechanism.reason(failure, reason)
    state = "DOWN" if kind in ("host", "link_optics") or reason == "PSU failure" else "DRAIN"
    user = "slurm" if reason == "Not responding" else "root"
    return _event(
        settings, layout.names[failure.node], (failure.start_ms, failure.end_ms), until_ms, (state, reason, user)
    )


def drain_row(settings: SimulationSettings, layout: SiteLayout, drain: PlannedDrain, until_ms: int) -> str | None:
    """One planned time out of service as it stands at a moment; None before its start."""
    if until_ms < drain.start_ms:
        return None
    words = ("DRAIN", drain.reason, drain.user)
    return _event(settings, layout.names[drain.node], (drain.start_ms, drain.end_ms), until_ms, words)


def _event(settings: SimulationSettings, node: str, times: tuple[int, int], until_ms: int, words: Iterable[str]) -> str:
    start, end = times
    return "|".join((node, _stamp(settings, start), _stamp(settings, end) if until_ms >= end else "Unknown", *words))
