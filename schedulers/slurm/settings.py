"""How a Slurm is reached and what may be done in it: the settings of `schedulers: [{kind: slurm, ...}]`."""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

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
