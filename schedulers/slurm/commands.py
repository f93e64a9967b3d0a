"""Slurm's commands, run one at a time: words, never a shell; a timeout; a cap on how many go out in a minute.

    scontrol = Commands(settings)
    said = scontrol.run("scontrol", "-o", "show", "node", "gpu-001")
    said.code, said.out, said.error

Of a prefix that ends in a remote shell (`ssh head`) the words are quoted for that shell.
"""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, TypeAlias

from schedulers.reconcile.actuator import SchedulerAwayError

# How a Slurm is reached and what may be done in it: the settings of `schedulers: [{kind: slurm, ...}]`.

# How new work is kept away softly. weight: other nodes are taken first. reservation: no new job at all until it ends,
# running ones go on. mark: a note in the node's Comment alone. none: watch and avoid are not asked of this Slurm.
Soft: TypeAlias = Literal["weight", "reservation", "mark", "none"]

_SIGNAL = re.compile(r"(SIG)?[A-Z][A-Z0-9]{1,9}", re.ASCII)
_LARGEST_WEIGHT = 2**32 - 3  # what lies above are Slurm's own words: infinite, not set


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """One Slurm. What could hurt a running job (requeue, a signal, a swap's exclusion) is off until it is asked for.

    Args:
        conf: the SLURM_CONF that its commands read; their own default where there is none.
        prefix: words before each command, such as `sudo -n` or `ssh head`.
        calls_per_min: orders stop where this many commands went out within a minute; reading goes on.
        hard: the state for cordon and drain. FAIL lets jobs finish, too, and asks Slurm not to reuse the node.
        opt_out: a word of the node's Features, Comment or Extra that forbids us to touch it.
        checkpoint_signal: sent to a job's batch script to ask for a checkpoint; a script without a handler dies of it.
        requeue: whether a requeue hint may end and requeue a job.
        exclude: whether a requeued job is also told to leave out the culprit (ExcNodeList).
        swap_comment: whether a swap hint is written into the job's AdminComment.
    """

    name: str = "slurm"
    conf: str | None = None
    bin: str | None = None  # the folder of scontrol; None: the PATH
    prefix: tuple[str, ...] = ()
    timeout_s: float = 15.0  # of one command
    calls_per_min: int = 600
    nodes_per_read: int = 20  # nodes that are written upon one reading: the smaller, the shorter a race can be
    hard: Literal["drain", "fail"] = "drain"
    soft: Soft = "weight"
    avoid_weight: int = 1_000_000
    opt_out: str = "foreshock=off"
    checkpoint_signal: str | None = None
    requeue: bool = False
    exclude: bool = True
    swap_comment: bool = True

    @property
    def avoid_takes(self) -> bool:
        """A reservation keeps all new work off; a weight or a mark keeps off none."""
        return self.soft == "reservation"

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: with the remedy.
        """
        if not self.name:
            raise ValueError("name: expected a word, such as slurm")
        if self.timeout_s <= 0:
            raise ValueError("timeout_s: expected seconds above 0")
        if self.calls_per_min < 1 or self.nodes_per_read < 1:
            raise ValueError("calls_per_min, nodes_per_read: expected 1 or more")
        if not 1 <= self.avoid_weight <= _LARGEST_WEIGHT:
            raise ValueError(f"avoid_weight: expected 1 to {_LARGEST_WEIGHT}, above the weights of slurm.conf")
        if not self.opt_out.strip():
            raise ValueError("opt_out: expected a word, such as foreshock=off")
        if self.checkpoint_signal is not None and not _SIGNAL.fullmatch(self.checkpoint_signal):
            raise ValueError("checkpoint_signal: expected a signal's name, such as USR1")


# What Slurm's commands say where the controller does not answer, is a standby or does not know us (`slurm_errno`).
_AWAY = (
    "unable to contact",
    "connect failure",
    "connection refused",
    "connection reset",
    "socket timed out",
    "zero bytes were transmitted",
    "unexpected message received",
    "unexpected eof",
    "authentication error",
    "standby mode",
    "munge",
    "could not establish a configuration source",
    "unable to establish",
    "communications connection failure",
    "communication connection failure",
)
_REMOTE_SHELLS = frozenset({"ssh", "rsh"})
_SSH_FAILED = 255
_SAID = 300


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended; `error` is its last line of complaint."""

    code: int
    out: str
    error: str

    @property
    def is_away(self) -> bool:
        """Whether the controller did not answer."""
        return self.code != 0 and any(sign in self.error.lower() for sign in _AWAY)


class CallAllowance:
    """A token bucket: a minute's calls at once, then as many as the time brings. What must go out may overdraw it."""

    def __init__(self, per_min: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._most, self._clock = per_min / 60.0, float(per_min), clock
        self._left, self._at = float(per_min), clock()

    def take(self) -> None:
        """One call."""
        self._refill()
        self._left -= 1.0

    @property
    def has_some(self) -> bool:
        """Whether another may go out."""
        self._refill()
        return self._left >= 1.0

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._per_s)
        self._at = now


class SlurmCommands:
    """Runs them. Counts each against the allowance."""

    def __init__(self, settings: SlurmSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self.allowance = CallAllowance(settings.calls_per_min, clock)

    @property
    def address(self) -> str:
        """Where they ask, for messages."""
        via = f" through {shlex.join(self._settings.prefix)}" if self._settings.prefix else ""
        return f"{self._settings.conf or 'slurm.conf'}{via}"

    def run(self, program: str, *words: str) -> CommandResult:
        """What a command said.

        Raises:
            SchedulerAwayError: it cannot be started, takes too long, or says that nobody answers.
        """
        self.allowance.take()
        line = command_line(self._settings, program, words)
        try:
            done = subprocess.run(  # noqa: S603 - a list of words, and no shell
                line,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=_environment(self._settings),
                timeout=self._settings.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SchedulerAwayError(f"{program}: no answer within {self._settings.timeout_s:g} s") from error
        except OSError as error:
            raise SchedulerAwayError(f"{line[0]} cannot be started: {error.strerror}: set bin or prefix") from error
        out, complaint = (text.decode("utf-8", errors="replace") for text in (done.stdout, done.stderr))
        said = CommandResult(done.returncode, out, " ".join(complaint.split())[-_SAID:])
        if said.is_away or (self._is_remote and said.code == _SSH_FAILED) or said.code < 0:
            raise SchedulerAwayError(f"{program}: {said.error or f'ended with {said.code}'}")
        return said

    @property
    def _is_remote(self) -> bool:
        return ends_in_shell(self._settings.prefix)


def ends_in_shell(prefix: Sequence[str]) -> bool:
    """Whether what follows a prefix is read by a shell elsewhere."""
    return any(PurePath(word).name in _REMOTE_SHELLS for word in prefix)


def command_line(settings: SlurmSettings, program: str, words: Sequence[str]) -> list[str]:
    """The words of one call; a prefix loses our environment, so it is named again behind it."""
    path = str(PurePath(settings.bin) / program) if settings.bin else program
    if not settings.prefix:
        return [path, *words]
    known = [f"{key}={value}" for key, value in _zone(settings).items()]
    tail = ["env", *known, path, *words]
    return [*settings.prefix, *(map(shlex.quote, tail) if ends_in_shell(settings.prefix) else tail)]


def _zone(settings: SlurmSettings) -> dict[str, str]:
    conf = {"SLURM_CONF": settings.conf} if settings.conf else {}
    # Times and words as they are read here, whatever the machine's own setting is.
    return {"TZ": "UTC", "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard", **conf}


def _environment(settings: SlurmSettings) -> dict[str, str]:
    kept = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "SLURM_CONF", "SLURM_JWT")
    default = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    return {**default, **{key: os.environ[key] for key in kept if key in os.environ}, **_zone(settings)}
