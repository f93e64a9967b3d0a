"""Settings of the policy: mode, thresholds, budgets, breaker, quiet hours, release and validity, and their version.

The defaults are cautious: in shadow mode nothing is sent. `schedulers/policy/thresholds.py` derives the thresholds.
Quiet hours are times of the day in which a new hold waits for a person:

    "22:00-06:00"                   in UTC
    "22:00-06:00 Asia/Shanghai"     in a zone of the IANA database, with its summer time
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, time, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson

_HOURS = re.compile(r"(\d{2}):(\d{2})-(\d{2}):(\d{2})(?: +(\S+))?", re.ASCII)


class QuietHoursError(ValueError):
    """Hours that cannot be read; the message says what they look like."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one time of the day to another, the second one not included; over midnight where it is the earlier."""

    begin: time
    end: time
    zone: tzinfo

    def hold(self, now: datetime) -> bool:
        """Whether a moment lies within."""
        here = now.astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= here < self.end
        return here >= self.begin or here < self.end


@lru_cache(maxsize=64)
def read_quiet_hours(text: str) -> QuietHours:
    """Quiet hours of a text.

    Raises:
        QuietHoursError: it is not `HH:MM-HH:MM`, with or without a zone, or begins when it ends.
    """
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise QuietHoursError(f"{text!r} is not HH:MM-HH:MM, or HH:MM-HH:MM ZONE (as in 22:00-06:00 Asia/Shanghai)")
    hours = [int(part) for part in found.groups()[:4]]
    try:
        begin, end = time(hours[0], hours[1]), time(hours[2] % 24 if hours[3] == 0 else hours[2], hours[3])
        zone = ZoneInfo(found[5] or "UTC")
    except (ValueError, ZoneInfoNotFoundError, OSError) as error:
        raise QuietHoursError(f"{text!r}: no such time or zone: {error}") from error
    if begin == end:
        raise QuietHoursError(f"{text!r} begins when it ends: to confirm every hold by hand, set `mode: approve`")
    return QuietHours(begin, end, zone)


def quiet_now(hours: Sequence[str], now: datetime) -> str | None:
    """The quiet hours, as they are written, that a moment lies in; None for none."""
    return next((text for text in hours if read_quiet_hours(text).hold(now)), None)


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
    """How many nodes we may hold out of service, or avoid, at once and per hour. The tightest one decides.

    Counts our own cordons and drains, or avoids, alone. The percentage is of the nodes known, not of those reporting.
    """

    nodes: int = 8
    percent_of_nodes: float = 2.0
    per_rack: int = 2
    per_leaf: int = 4
    per_hour: int = 4
    per_nvlink_domain: int = 2
    keep_spares: int = 0  # idle nodes that must be left after a hold; what is not known to be idle is no spare
    # The same of `avoid`, where a scheduler takes a node out of use for it (Slurm's soft: reservation), and for a link.
    avoid_nodes: int = 16
    avoid_percent: float = 4.0
    avoid_per_rack: int = 4
    avoid_per_leaf: int = 8
    avoid_per_hour: int = 8
    avoid_per_nvlink_domain: int = 4

    def of_avoid(self) -> "Budgets":
        """The limits of `avoid`, under the names of those of a hold."""
        return Budgets(
            nodes=self.avoid_nodes,
            percent_of_nodes=self.avoid_percent,
            per_rack=self.avoid_per_rack,
            per_leaf=self.avoid_per_leaf,
            per_hour=self.avoid_per_hour,
            per_nvlink_domain=self.avoid_per_nvlink_domain,
            keep_spares=self.keep_spares,
        )


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
    """Hints on a running job whose node is a confirmed culprit. The mode holds for them, too."""

    checkpoint: bool = True  # save now, where the node still works (a risk, not a confirmed fault)
    requeue: bool = False  # start again without the node
    swap: bool = True  # go on with a named spare, of the same leaf where there is one
    most_swaps: int = 3  # of one job within an hour: more culprits than that share a cause
    most_requeues: int = 3  # of one job in a day: a crash loop is not the node's fault


@dataclass(frozen=True, slots=True)
class SharedCauseRule:
    """From which probability on a verdict about what nodes share keeps those from being held that only suffer from it.

    None: no verdict does, nor does one hold the node that it names.
    """

    probability: float | None = 0.8


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """From which size on an approval needs two people.

    The size: nodes of the hints that people approved within the hour before, and the node of this one. None: never.
    """

    two_people_above_nodes: int | None = None


CheckName: TypeAlias = Literal["pair", "dcgmi", "ping", "site"]
CHECK_NAMES: tuple[CheckName, ...] = get_args(CheckName)


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """The site's commands (empty: it has none), and how much of them there may be.

    `at_once`, `per_hour`: checks that run at a time, and begin within an hour, of the whole site. `suspects`: nodes of
    one verdict that are checked. `with_jobs`: also nodes on which a job runs, which a check may disturb.
    """

    pair: str = ""
    dcgmi: str = ""
    ping: str = ""
    site: str = ""
    at_once: int = 2
    per_hour: int = 20
    suspects: int = 3
    timeout_s: float = 900.0
    with_jobs: bool = False

    def commands(self) -> dict[CheckName, str]:
        """The commands that there are, by name."""
        found: dict[CheckName, str] = {"pair": self.pair, "dcgmi": self.dcgmi, "ping": self.ping, "site": self.site}
        return {name: command for name, command in found.items() if command.strip()}


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
    # One of the two that at this site was surely followed by an outage less often than this weighs less; 0: never.
    corroborate_precision: float = 0.25
    budgets: Budgets = field(default_factory=Budgets)
    breaker: Breaker = field(default_factory=Breaker)
    shared_causes: SharedCauseRule = field(default_factory=SharedCauseRule)
    control: Control = field(default_factory=Control)
    # Where fewer than this share of the nodes with a sidecar report, no node is held anew: too little is seen.
    quorum: float = 0.5
    quiet_hours: tuple[str, ...] = ()  # "22:00-06:00" of UTC, "22:00-06:00 Asia/Shanghai": a person confirms new holds
    opt_out: tuple[str, ...] = ()  # nodes of which nothing is asked: names, with * and ?
    validity: Validity = field(default_factory=Validity)
    release: Release = field(default_factory=Release)
    job_watch: JobWatch = field(default_factory=JobWatch)
    approval: ApprovalRule = field(default_factory=ApprovalRule)

    @property
    def healthy_s(self) -> float:
        """How long a node must have shown no fault before its hold is released, seconds."""
        return self.release.healthy_s


class ActuatorSettings(Protocol):
    """A frozen dataclass of a kind's settings. Its `__post_init__` may refuse values: ValueError with the remedy."""

    @property
    def name(self) -> str:
        """What the operator calls it; no two receivers share one."""

    @property
    def avoid_takes(self) -> bool:
        """Whether its way to carry out an `avoid` takes the node out of use for new work."""


class PolicySource(Protocol):
    """The policy in force, and whether its file has been changed to one that does not hold."""

    @property
    def place(self) -> str:
        """The file, for messages."""

    @property
    def errors(self) -> int:
        """Changes that were refused."""

    @property
    def problem(self) -> str | None:
        """Why the file as it is now is not in force; None while it is."""

    def current(self) -> Policy:
        """The policy in force."""


@lru_cache(maxsize=64)
def version_of(policy: Policy) -> str:
    """Twelve hex digits that change with every value, whether it was written out or left to its default."""
    return hashlib.blake2b(canonical(policy).encode(), digest_size=6).hexdigest()


def canonical(policy: Policy) -> str:
    """All of a policy as JSON with sorted keys: what `version_of` digests and the table `policies` keeps."""
    return orjson.dumps(asdict(policy), option=orjson.OPT_SORT_KEYS, default=_text).decode()


def _text(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a policy")
