"""What the server is told once, at its start; handed down as an argument."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from schedulers.settings import Mode, Policy, WebhookSettings

Scope: TypeAlias = Literal["ingest", "read", "act"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token: known by the SHA-256 of its text (64 hex digits), never by the text itself."""

    name: str
    sha256: str = field(repr=False)
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two turns of each background loop; 0 switches a loop off."""

    score_s: float = 60.0
    policy_s: float = 10.0
    dispatch_s: float = 2.0


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The server's settings. Without tokens every caller may do all: for loopback alone."""

    tokens: tuple[Token, ...] = ()
    policy: Policy = field(default_factory=Policy)
    webhooks: tuple[WebhookSettings, ...] = ()
    intervals: Intervals = field(default_factory=Intervals)
    body_limit_bytes: int = 32 * 1024 * 1024  # of a request body, packed and unpacked alike
    rules: Path | None = None  # the site's own reading of faults
    silent_after_s: float = 900.0  # a node not heard of for this long is silent, while others report

    @property
    def mode(self) -> Mode:
        """shadow, approve or auto."""
        return self.policy.mode
