"""The report's plain words and colours: buckets, causes, levels; and figures as people write them."""

from collections.abc import Mapping

# Bucket: its name, what it means, its colour. In the order in which they are stacked.
BUCKETS: Mapping[str, tuple[str, str, str]] = {
    "productive": ("Useful training", "steps whose result was kept", "#3a9d74"),
    "evaluation": ("Evaluation", "measuring the model instead of training it", "#57b8c9"),
    "degraded": ("Slow steps", "the extra time of steps slower than the run's usual pace", "#c9b33b"),
    "data_stall": ("Waiting for data", "steps that stood still until their data came", "#a8743a"),
    "checkpoint_save": ("Saving checkpoints", "training stood still while the state was written", "#3b7dd8"),
    "checkpoint_load": ("Loading checkpoints", "reading the state back after a start", "#7aa5e6"),
    "startup": ("Starting up", "from the scheduler's start to the first step", "#b58be0"),
    "waiting": ("Waiting for nodes", "queued: nothing ran", "#8d949c"),
    "detection": ("Noticing the failure", "from the fault until the job was ended", "#e9a11a"),
    "lost_work": ("Work done twice", "steps since the last checkpoint, lost when the job failed", "#d6403b"),
    "unknown": ("Not accounted for", "no log says what happened", "#5c6470"),
}
# What of a day no run held.
IDLE = ("No job", "nodes that were ready and had nothing to do", "#d9dde2")
OUT = ("Out of service", "nodes that the scheduler had taken out", "#8454a6")

CAUSES = {
    "hardware": "hardware",
    "fabric": "network fabric",
    "host": "host",
    "driver": "driver",
    "storage": "storage",
    "application": "the training program",
    "unknown": "cause not known",
}
CAUSE_COLOURS = {
    "hardware": "#d6403b",
    "fabric": "#3b7dd8",
    "host": "#e9a11a",
    "driver": "#8454a6",
    "storage": "#a8743a",
    "application": "#3a9d74",
    "unknown": "#5c6470",
}
LEVELS = {
    "existing": "GPU-hours that existed",
    "out_planned": "out of service, planned",
    "out_unplanned": "out of service, not planned",
    "schedulable": "ready for jobs",
    "idle": "no job on them",
    "allocated": "held by jobs",
    "running": "in the training loop",
    "productive": "training that counts",
}

STYLE = (
    ".bar{display:flex;height:1.35rem;border-radius:3px;overflow:hidden;background:var(--line);min-width:16rem}"
    ".bar i{display:block;height:100%}td.wide{width:60%}td.wide .bar{background:none}"
    "p.keys span{display:inline-flex;align-items:center;margin-right:1rem;font-size:12px;white-space:nowrap}"
    "p.keys b{width:.8rem;height:.8rem;border-radius:2px;margin-right:.35rem;display:inline-block}"
    ".up{color:var(--c3)}.down{color:var(--c0)}td.text,th.text{text-align:left}"
    "dl{display:grid;grid-template-columns:max-content 1fr;"
    "gap:.2rem 1rem;max-width:60rem;margin:.4rem 0}dt{font-weight:600}dd{margin:0;color:var(--dim)}"
    + "".join(f".b-{name}{{fill:{colour};stroke:none}}" for name, (_, _, colour) in BUCKETS.items())
    + f".b-idle{{fill:{IDLE[2]};stroke:none}}.b-out{{fill:{OUT[2]};stroke:none}}"
    + "".join(f".k-{name}{{fill:{colour};stroke:{colour}}}" for name, colour in CAUSE_COLOURS.items())
)


def bucket_name(bucket: str) -> str:
    """A bucket in words."""
    return BUCKETS[bucket][0] if bucket in BUCKETS else bucket.replace("_", " ")


def bucket_colour(bucket: str) -> str:
    """Its colour."""
    return BUCKETS[bucket][2] if bucket in BUCKETS else "#5c6470"


def cause_name(cause: str) -> str:
    """A cause in words."""
    return CAUSES.get(cause, cause)


def hours(value: float | None) -> str:
    """Hours with as many digits as help: 12,345 or 3.4; a dash for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:,.1f}"


def percent(value: float | None) -> str:
    """A share; a dash for None."""
    return "-" if value is None else f"{value * 100:.1f} %"


def times(count: int, word: str) -> str:
    """A count with its word: 1 stop, 3 stops."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
