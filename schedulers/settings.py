"""What an operator may set about hints: the mode, the thresholds, the budgets, the webhooks.

Defaults are cautious: shadow mode, nothing is sent. `schedulers/thresholds.py` has the sums behind the thresholds.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

# shadow: written down, never sent. approve: a person confirms each. act: sent. (`auto` in a file is read as act.)
Mode: TypeAlias = Literal["shadow", "approve", "act"]
# What the kill switch stops: nothing; new holds and all else that is asked (releases go on); releases, too.
Stop: TypeAlias = Literal["none", "holds", "all"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Probabilities of an unplanned outage within 24 h from which a node is watched and avoided, and its job to save.

    None: from where it pays, by the size of the job (`Costs`), but never under `watch`. No score cordons: it takes a
    confirmed fault, or two detectors.
    """

    watch: float = 0.02
    avoid: float | None = None
    checkpoint: float | None = None
    # A hint falls only below this share of the threshold that raised it: no flapping.
    release_ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class Costs:
    """What a failure costs a job, and what acting costs, for the thresholds that are None.

    The figures are FIELD section C's: a failure loses a quarter of an hour of the whole job, an avoided node 2.2 h.
    """

    lost_work_s: float = 540.0  # half the interval between two checkpoints
    restart_s: float = 360.0
    avoided_s: float = 7920.0  # of one node, while it is kept from work
    save_s: float = 60.0  # for which a checkpoint that is asked for stops the job
    averted: float = 1.0  # the share of the failures that acting averts; nobody has measured it
    job_gpus: int = 1024  # where no job is known to run
    node_gpus: int = 8  # where a node's are not known


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many nodes we may hold out of service at once and per hour. The tightest one decides.

    Counts our own cordons and drains alone. The percentage is of the nodes known, not of those reporting.
    """

    nodes: int = 8
    percent_of_nodes: float = 2.0
    per_rack: int = 2
    per_leaf: int = 4
    per_hour: int = 4
    per_nvlink_domain: int = 2
    keep_spares: int = 0  # idle nodes that must be left after a hold; what is not known to be idle is no spare


@dataclass(frozen=True, slots=True)
class Breaker:
    """Trips when this many nodes that may fail together call for a hold within the window: a shared cause.

    `percent_of_group` raises the number in large groups: all nodes may share a driver.
    """

    nodes: int = 4  # of one leaf, rack, NVLink domain or driver
    cluster_nodes: int = 8  # of one fault (`xid 79`), and of the whole cluster
    percent_of_group: float = 2.0
    window_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Control:
    """How many nodes of which nothing is asked for their score alone, and for how long the same ones.

    Without them nobody knows what hints prevent, and a model learns that what it flags does not fail (FIELD A2, A3.4:
    2 to 5 %). Confirmed faults are never left alone.
    """

    percent: float = 3.0  # of the nodes; 0: none
    period_days: float = 28.0


@dataclass(frozen=True, slots=True)
class Validity:
    """Seconds after which a hint lapses by itself, unless its ground lasts and it is renewed."""

    watch_s: float = 24 * 3600.0
    avoid_s: float = 24 * 3600.0
    cordon_s: float = 24 * 3600.0
    drain_s: float = 24 * 3600.0
    job_s: float = 900.0  # checkpoint, requeue, swap: a job's trouble is over soon, one way or the other


@dataclass(frozen=True, slots=True)
class Release:
    """What a held node must show before it takes work again: time without a fault, and the operator's own test."""

    healthy_s: float = 24 * 3600.0
    # Of words; {node} is the node's name. Exit code 0: it is well. None: the healthy time is enough.
    validate: tuple[str, ...] = ()
    timeout_s: float = 3600.0
    retry_s: float = 6 * 3600.0  # after a test that failed
    most_tries: int = 3  # then a person is asked
    at_once: int = 4  # tests that run at a time


@dataclass(frozen=True, slots=True)
class JobWatch:
    """What is asked of a running job whose node is a confirmed culprit. All are hints: the mode holds for them, too."""

    checkpoint: bool = True  # save now, where the node still works (a risk, not a confirmed fault)
    requeue: bool = False  # start again without the node
    swap: bool = True  # go on with a named spare, of the same leaf where there is one
    most_swaps: int = 3  # of one job within an hour: more culprits than that share a cause
    most_requeues: int = 3  # of one job in a day: a crash loop is not the node's fault


@dataclass(frozen=True, slots=True)
class Policy:
    """When to ask what of a scheduler, under which budgets."""

    version: int = 1  # of the file's form; the content's is `version_of`
    mode: Mode = "shadow"
    stop: Stop = "none"
    stop_file: Path | None = None  # while it is there: `holds`, or `all` where that is its text
    thresholds: Thresholds = field(default_factory=Thresholds)
    costs: Costs = field(default_factory=Costs)
    # Two detectors that see an error of one node in different ways, no further apart than this, are as good as a
    # confirmed fault; 0: they are not.
    corroborate_s: float = 3600.0
    budgets: Budgets = field(default_factory=Budgets)
    breaker: Breaker = field(default_factory=Breaker)
    control: Control = field(default_factory=Control)
    # Where fewer than this share of the nodes with a sidecar report, no node is held anew: too little is seen.
    quorum: float = 0.5
    quiet_hours: tuple[str, ...] = ()  # "22:00-06:00" of UTC, "22:00-06:00 Asia/Shanghai": a person confirms new holds
    opt_out: tuple[str, ...] = ()  # nodes of which nothing is asked: names, with * and ?
    validity: Validity = field(default_factory=Validity)
    release: Release = field(default_factory=Release)
    job_watch: JobWatch = field(default_factory=JobWatch)

    @property
    def healthy_s(self) -> float:
        """How long a node must have shown no fault before its hold is released, seconds."""
        return self.release.healthy_s


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """One receiver over HTTP (docs/webhooks.md).

    `secret` is `whsec_` and base64 of 24 to 64 bytes, unless the format has another; `secrets` and the lines of
    `secret_files`, which are read anew for every message, sign as well.
    """

    name: str
    url: str = field(repr=False)  # a chat's holds its token
    secret: str = field(default="", repr=False)
    timeout_s: float = 15.0  # of a whole attempt
    send_shadow: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)
    secret_files: tuple[str, ...] = ()
    format: Literal["standard", "cloudevents", "pagerduty", "slack", "feishu", "dingtalk", "template"] = "standard"
    template_file: str = ""  # of format template
    content_type: str = "application/json"  # of format template
    actions: tuple[str, ...] = ()  # that it is told; none: all, of chats and pagers LOUD_ACTIONS
    states: tuple[str, ...] = ()  # approved (the default), proposed: that a hint waits for a person
    allow: tuple[str, ...] = ()  # networks that its name may lead to
    proxy: str = ""  # http://...: it resolves the name
