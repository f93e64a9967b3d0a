"""What each shipped alert must fire on, and what it must not: series as promtool writes them, one sample a minute.

`0x20` is twenty minutes of 0, `0+60x20` grows by 60 a minute, `_` is a scrape that brought nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Series: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlertCase:
    """Series, and whether an alert fires on them at a minute."""

    alert: str
    fires: bool
    what: str
    series: Series
    at_min: int = 45


def _fires(alert: str, what: str, series: Series, at_min: int = 45) -> AlertCase:
    return AlertCase(alert, True, what, series, at_min)


def _quiet(alert: str, what: str, series: Series, at_min: int = 45) -> AlertCase:
    return AlertCase(alert, False, what, series, at_min)


SIDECAR = 'job="foreshock-sidecar",instance="gpu-017:10871"'
SERVER = 'job="foreshock-server",instance="foreshock:10870"'
SERVER_UP = {f"up{{{SERVER}}}": "1x90"}
CONTACT = f"foreshock_sidecar_last_contact_timestamp_seconds{{{SIDECAR}}}"
LOST = f'foreshock_sidecar_lost_records_total{{{SIDECAR},source="kmsg"}}'
STARTED = f"process_start_time_seconds{{{SIDECAR}}}"


def _above(alert: str, series: str, good: str = "0x90", bad: str = "1x90") -> list[AlertCase]:
    return [_fires(alert, "it stays so", {series: bad}, 80), _quiet(alert, "it never was so", {series: good}, 80)]


SIDECAR_CASES = [
    _fires("ForeshockSidecarDown", "killed", {f"up{{{SIDECAR}}}": "1x20 0x70"}),
    _quiet("ForeshockSidecarDown", "one scrape failed", {f"up{{{SIDECAR}}}": "1x40 0 1x40"}),
    _quiet("ForeshockSidecarDown", "another job is down", {'up{job="node",instance="gpu-017:9100"}': "0x90"}),
    *_above("ForeshockSourceDown", f'foreshock_sidecar_source_up{{{SIDECAR},source="kmsg"}}', "1x90", "0x90"),
    _fires("ForeshockSidecarSilent", "the server took nothing since minute 10", {CONTACT: "0+60x10 600x80"}),
    _fires("ForeshockSidecarSilent", "the server never took anything", {CONTACT: "0x90"}),
    _quiet("ForeshockSidecarSilent", "only heartbeats: a quiet node", {CONTACT: "0+60x90"}),
    _quiet("ForeshockSidecarSilent", "a server that was away for ten minutes", {CONTACT: "0+60x30 1800x10 2460+60x40"}),
    _fires(
        "ForeshockSpoolFilling",
        "60 of 100 bytes",
        {
            f"foreshock_sidecar_spool_events_bytes{{{SIDECAR}}}": "60x90",
            f"foreshock_sidecar_spool_limit_bytes{{{SIDECAR}}}": "100x90",
        },
    ),
    _quiet(
        "ForeshockSpoolFilling",
        "40 of 100 bytes",
        {
            f"foreshock_sidecar_spool_events_bytes{{{SIDECAR}}}": "40x90",
            f"foreshock_sidecar_spool_limit_bytes{{{SIDECAR}}}": "100x90",
        },
    ),
    *_above("ForeshockSourceBlocked", f'foreshock_sidecar_source_blocked{{{SIDECAR},source="kmsg"}}'),
    _fires("ForeshockRecordsLost", "seven in a scrape", {LOST: "0x40 7x50"}),
    _fires("ForeshockRecordsLost", "before the first scrape", {LOST: "_x40 7x50", STARTED: "_x40 2400x50"}),
    _quiet("ForeshockRecordsLost", "none", {LOST: "0x90"}),
    _quiet(
        "ForeshockRecordsLost", "of last month, seen for the first time", {LOST: "_x40 7x50", STARTED: "_x40 -9e5x50"}
    ),
    _quiet("ForeshockRecordsLost", "long ago", {LOST: "0x5 7x85", STARTED: "0x90"}),
    _fires(
        "ForeshockSpoolLost", "one", {f'foreshock_sidecar_spool_lost_total{{{SIDECAR},reason="full"}}': "0x40 1x50"}
    ),
    _quiet("ForeshockSpoolLost", "none", {f'foreshock_sidecar_spool_lost_total{{{SIDECAR},reason="full"}}': "0x90"}),
    _fires("ForeshockRecordsRejected", "one", {f"foreshock_sidecar_rejected_items_total{{{SIDECAR}}}": "0x40 1x50"}),
    _quiet(
        "ForeshockRecordsRejected", "of yesterday", {f"foreshock_sidecar_rejected_items_total{{{SIDECAR}}}": "5x90"}
    ),
    _fires("ForeshockExporterDown", "killed", {'up{job="dcgm-exporter",instance="gpu-017:9400"}': "0x90"}),
    _quiet("ForeshockExporterDown", "well", {'up{job="dcgm-exporter",instance="gpu-017:9400"}': "1x90"}),
    _quiet("ForeshockExporterDown", "another job is down", {'up{job="grafana",instance="a:3000"}': "0x90"}),
]

SERVER_CASES = [
    _fires("ForeshockServerDown", "killed: its own series end, `up` is 0", {f"up{{{SERVER}}}": "1x20 0x70"}),
    _fires("ForeshockServerDown", "nothing scrapes one", {f"up{{{SIDECAR}}}": "1x90"}),
    _fires("ForeshockServerDown", "its target is gone", {f"up{{{SERVER}}}": "1x20 stale _x69"}),
    _quiet("ForeshockServerDown", "well", SERVER_UP),
    _quiet("ForeshockServerDown", "one scrape failed", {f"up{{{SERVER}}}": "1x44 0 1x45"}, 45),
    _quiet("ForeshockServerDown", "its database is away", {**SERVER_UP, f"foreshock_database_up{{{SERVER}}}": "0x90"}),
    *_above("ForeshockDatabaseDown", f"foreshock_database_up{{{SERVER}}}", "1x90", "0x90"),
    *_above("ForeshockProcessDown", f'foreshock_process_up{{{SERVER},process="1"}}', "1x90", "0x90"),
    *_above("ForeshockShedding", f'foreshock_shed_total{{{SERVER},reason="busy"}}', "7x90", "0+6x90"),
    *_above("ForeshockIntakeBacklog", f"foreshock_intake_age_seconds{{{SERVER}}}", "59x90", "61x90"),
    *_above("ForeshockIntakeSetAside", f"foreshock_intake_set_aside_events{{{SERVER}}}"),
    *_above("ForeshockLoopFailing", f'foreshock_loop_failures_total{{{SERVER},loop="scores"}}', "3x90", "0+1x90"),
    *_above("ForeshockBreakerTripped", f'foreshock_breaker_tripped{{{SERVER},kind="rack"}}'),
    *_above("ForeshockNodeWantsRepair", f'foreshock_held_nodes_waiting{{{SERVER},what="repair"}}'),
    _quiet(
        "ForeshockNodeWantsRepair",
        "waits for its test",
        {f'foreshock_held_nodes_waiting{{{SERVER},what="test"}}': "1x90"},
    ),
    *_above("ForeshockSchedulerAway", f'foreshock_scheduler_up{{{SERVER},scheduler="slurm"}}', "1x90", "0x90"),
    *_above("ForeshockOrphanHold", f'foreshock_scheduler_holds{{{SERVER},scheduler="slurm",owner="orphan"}}'),
    _quiet(
        "ForeshockOrphanHold",
        "our own",
        {f'foreshock_scheduler_holds{{{SERVER},scheduler="slurm",owner="own"}}': "9x90"},
    ),
    *_above("ForeshockHintsStopped", f'foreshock_hints_stopped{{{SERVER},stop="all"}}'),
    _quiet(
        "ForeshockHintsStopped", "for ten minutes", {f'foreshock_hints_stopped{{{SERVER},stop="all"}}': "0x70 1x20"}, 80
    ),
    *_above("ForeshockPolicyStale", f"foreshock_policy_stale{{{SERVER}}}"),
]

DAY_MIN = 1440


def _run(bucket: str, other: str = "productive") -> Series:
    """A run of two days that spends half of its time so."""
    return {
        f'foreshock_run_seconds{{run="a",bucket="{bucket}"}}': "0+30x2900",
        f'foreshock_run_seconds{{run="a",bucket="{other}"}}': "0+30x2900",
    }


WELL = {
    'foreshock_run_seconds{run="a",bucket="productive"}': "0+57x2900",
    'foreshock_run_seconds{run="a",bucket="checkpoint_save"}': "0+3x2900",
}
GOODPUT_CASES = [
    _fires("ForeshockGoodputLow", "half is lost work", _run("lost_work"), 2 * DAY_MIN),
    _quiet("ForeshockGoodputLow", "95 % count", WELL, 2 * DAY_MIN),
    _fires("ForeshockRunUnaccounted", "half is unknown", _run("unknown"), 2 * DAY_MIN),
    _quiet("ForeshockRunUnaccounted", "all is known", WELL, 2 * DAY_MIN),
    _fires("ForeshockSavesTooLong", "half is saves", _run("checkpoint_save"), 2 * DAY_MIN),
    _quiet("ForeshockSavesTooLong", "5 % are saves", WELL, 2 * DAY_MIN),
    _fires(
        "ForeshockLossesUnexplained",
        "three quarters",
        {
            'foreshock_lost_gpu_seconds{cause="unexplained"}': "900000x2900",
            'foreshock_lost_gpu_seconds{cause="hardware"}': "300000x2900",
        },
        2 * DAY_MIN,
    ),
    _quiet(
        "ForeshockLossesUnexplained",
        "a quarter",
        {
            'foreshock_lost_gpu_seconds{cause="unexplained"}': "300000x2900",
            'foreshock_lost_gpu_seconds{cause="hardware"}': "900000x2900",
        },
        2 * DAY_MIN,
    ),
]


def _open(kind: str, values: str) -> Series:
    """Verdicts of a class, as two processes of a server tell them."""
    return {f'foreshock_verdicts_open{{class="{kind}",instance="{instance}"}}': values for instance in ("a", "b")}


WAITING = f"foreshock_symptom_events_waiting{{{SERVER}}}"
VERDICT_CASES = [
    _fires("ForeshockSharedCause", "a switch, for two minutes", _open("switch", "0x20 2x2 0x60"), 22),
    _quiet("ForeshockSharedCause", "a switch that was named for a moment", _open("switch", "0x20 1 0x60"), 21),
    _quiet("ForeshockSharedCause", "planned work, and a GPU", {**_open("planned", "3x90"), **_open("gpu", "1x90")}),
    _fires("ForeshockDeviceAtFault", "a GPU", _open("gpu", "1x90")),
    _quiet("ForeshockDeviceAtFault", "one that comes and goes within minutes", _open("port", "0x39 1x4 0x60")),
    _fires("ForeshockCauseUnknown", "for half an hour", _open("unknown", "0x15 1x90")),
    _quiet("ForeshockCauseUnknown", "for ten minutes", _open("unknown", "0x35 1x90")),
    _fires("ForeshockEventsNotWeighed", "the engine stands", {WAITING: "0x20 5x70"}),
    _quiet("ForeshockEventsNotWeighed", "each is weighed at the next turn", {WAITING: "0 5 0 5 0 0 7 0 0 3 0x80"}),
]
CASES = [*SIDECAR_CASES, *SERVER_CASES, *GOODPUT_CASES, *VERDICT_CASES]
