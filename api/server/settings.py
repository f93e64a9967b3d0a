"""Settings of the server, handed down as an argument; read again while it runs (`SettingsSource`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, get_args

from api.server.people_settings import PeopleSettings
from goodput.formulas.shape import Shape
from predictor.live.trial_settings import TrialSettings
from schedulers.policy.settings import ActuatorSettings, CheckSettings, Mode, Policy, PolicySource
from schedulers.webhooks.settings import WebhookSettings
from store.database.retention import RetentionPeriods
from store.records.hostlist import EVERY_NODE, NodePattern
from store.records.outage import SHIPPED_REASONS, OutageReasons
from wire.money.price import GpuHourPrice

# ingest        events, telemetry and heartbeats of the nodes that the token speaks for
# ingest:fleet  the same, and what concerns the fleet: outages, alerts, topology, what names no node
# read          every answer
# act:approve   approve and withdraw hints, deliver them again; act:stop: stop and let go on; act:reset: the breaker
# report        what a scheduler or a test system reports of a hint: taken, passed, failed
# ticket        say that a ticket about a node of the token's pattern is closed
# join          give a sidecar a token of its own
# on_behalf     name the person who acts (a dashboard behind a proxy that signs people in); else it only reads
Scope: TypeAlias = Literal[
    "ingest", "ingest:fleet", "read", "act:approve", "act:stop", "act:reset", "report", "join", "ticket", "on_behalf"
]
# Each request at work has a thread of its own, of 40; probes, metrics and people's actions need some, too.
MOST_SLOTS = 32
SCOPES: tuple[Scope, ...] = get_args(Scope)
# What a configuration may write in place of several.
SCOPE_GROUPS: Mapping[str, tuple[Scope, ...]] = {"act": ("act:approve", "act:stop", "act:reset", "report")}


def expand_scopes(words: Iterable[str]) -> frozenset[Scope]:
    """The scopes of some words, each a scope or a group of them.

    Raises:
        ValueError: a word is neither.
    """
    found: set[Scope] = set()
    for word in words:
        group = SCOPE_GROUPS.get(word) or tuple(scope for scope in SCOPES if scope == word)
        if not group:
            raise ValueError(word)
        found.update(group)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token: known by the SHA-256 of its text (64 hex digits), never by the text itself.

    `certificate`: it is no text, but every client certificate that the server verified; its DNS names are the nodes.
    `names_nodes`: whether somebody has said of which nodes it may speak.
    """

    name: str
    sha256: str = field(repr=False)
    scopes: frozenset[Scope]
    nodes: NodePattern = EVERY_NODE  # of which nodes it may speak
    certificate: bool = False
    names_nodes: bool = True


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files in PEM of the server's own TLS; without a certificate it serves plain HTTP."""

    certificate: Path | None = None  # with its chain
    key: Path | None = None  # None: it stands in the certificate's file
    client_ca: Path | None = None  # the authorities that sign clients' certificates
    client: Literal["none", "optional", "required"] = "none"  # whether a client shows one


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two turns of each background loop; 0 switches a loop off."""

    score_s: float = 60.0
    policy_s: float = 10.0
    dispatch_s: float = 2.0
    observe_s: float = 10.0  # how often a scheduler is read back at the least; news bring it at once
    ledgers_s: float = 5.0
    lemons_s: float = 60.0
    models_s: float = 300.0  # how often it is looked whether models are to be judged or trained; and checks


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much one token may send, and how much the server does at a time; 0 switches a rate, or `node_requests`, off.

    The defaults let 12,500 sidecars share one token: 208 heartbeats and 42 roll-ups a second, and all of them at once
    when the server comes back.
    """

    requests_per_s: float = 2000.0
    bytes_per_s: float = 100.0e6  # of bodies as sent, packed
    node_records_per_s: float = 1000.0  # of one node, of all but tokens with `ingest:fleet`
    node_requests: int = 4  # with a body, at a time, of a token that speaks for one node alone
    burst_s: float = 15.0  # how many seconds' worth may come at once
    bodies_bytes: int = 64 * 1024 * 1024  # of all bodies in memory at a time, as sent; never less than one may have
    max_writes: int = 12  # requests that write at a time; they share transactions
    max_reads: int = 12
    slot_wait_s: float = 2.0  # how long a request waits for one of those
    body_s: float = 60.0  # a body that is not there by then is given up
    answer_s: float = 60.0  # an answer that is not there by then is a 503
    work_s: float = 20.0  # processor seconds that the records of one body may take


@dataclass(frozen=True, slots=True)
class TrainingSchedule:
    """How the server keeps its models fresh, once `foreshock train` has made the first."""

    every_days: float = 7.0  # 0: it never trains by itself
    least_outages: int = 10  # unplanned ones since the last training: less is no news
    window_days: int | None = 365  # learn from so many days; null: from all
    within_s: float = 3600.0  # a training that takes longer is given up
    nice: int = 10  # how far training and judging give way to requests: 0 (not at all) to 19
    links_every_h: float = 6.0  # links are scored so often, once enough were lost to learn from; 0: never by itself


@dataclass(frozen=True, slots=True)
class InventorySettings:
    """The nodes that an operator names, and what else they are called. `nodes`: a hostlist; schedulers that are read
    back, topology and nodes.csv add theirs. `domains`: whose FQDNs are short names; none: any. `notes`: what people
    should know of a node; its page shows it.
    """

    nodes: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)  # another name: the node's
    domains: tuple[str, ...] = ()
    fold_case: bool = False  # capital letters make no other node
    notes: Mapping[str, str] = field(default_factory=dict)  # of a node: a sentence


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The server's settings. Without tokens every caller may do all: for loopback alone."""

    tokens: tuple[Token, ...] = ()
    policy: Policy = field(default_factory=Policy)  # at the start
    policy_source: PolicySource | None = field(default=None, compare=False)  # and from then on; None: it stays
    source: "SettingsSource | None" = field(default=None, compare=False)  # all of them, as they are now
    webhooks: tuple[WebhookSettings, ...] = ()
    actuators: tuple[ActuatorSettings, ...] = ()  # schedulers that are read back: Slurm, Kubernetes
    intervals: Intervals = field(default_factory=Intervals)
    keep: RetentionPeriods = field(
        default_factory=RetentionPeriods
    )  # of events, telemetry and scores; for ever, unless it says so
    body_limit_bytes: int = 32 * 1024 * 1024  # of a request body, packed and unpacked alike
    limits: RequestLimits = field(default_factory=RequestLimits)
    training: TrainingSchedule = field(default_factory=TrainingSchedule)
    trial: TrialSettings = field(default_factory=TrialSettings)
    rules: Path | None = None  # the site's own reading of faults
    shapes: Mapping[str, Shape] = field(default_factory=dict)  # of runs' models, by a pattern of their names: for MFU
    processes: int = 1  # that share the port and the work; more than one on PostgreSQL alone
    tls: TlsSettings = field(default_factory=TlsSettings)
    inventory: InventorySettings = field(default_factory=InventorySettings)
    silent_after_s: float = 900.0  # a node not heard of for this long is silent, while others report
    people: PeopleSettings | None = None  # who signs in, and what each role may do
    checks: CheckSettings = field(default_factory=CheckSettings)  # commands that `foreshock check` runs on suspects
    outage_reasons: OutageReasons = SHIPPED_REASONS  # what the reasons of outages mean here
    gpu_hour_price: GpuHourPrice | None = None  # turns GPU-hours into money wherever they are told
    hosts: tuple[str, ...] = ()  # names by which clients may ask for this server: HOST or HOST:PORT; none: any name

    @property
    def mode(self) -> Mode:
        """shadow, approve or act."""
        return self.policy.mode


class SettingsSource(Protocol):
    """The settings in force, and whether newer ones were refused."""

    @property
    def place(self) -> str:
        """The file, for messages."""

    @property
    def version(self) -> str:
        """Twelve hex digits of what is in force."""

    @property
    def loaded(self) -> datetime:
        """When it came into force."""

    @property
    def errors(self) -> int:
        """Reloads that were refused."""

    @property
    def problem(self) -> str | None:
        """Why the file as it is now is not in force; None while it is."""

    @property
    def restart(self) -> tuple[str, ...]:
        """The keys whose change waits for a restart."""

    def current(self) -> ApiSettings:
        """The settings in force."""
