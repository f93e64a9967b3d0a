"""What the hidden faults leave behind, before it is put into any format: lines, link changes, counts, heat, gaps."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line of a node's kernel log. `xid` = (GPU, code) where it is an Xid."""

    time_ms: int
    node: int
    text: str
    xid: tuple[int, int] | None = None
    confounds: bool = False  # a decoder sees a fault of the machine in it


@dataclass(frozen=True, slots=True)
class LinkLoss:
    """A host's port is down for a time; `root` = more than a flap: the fault of an outage or of a leaf switch."""

    down_ms: int
    up_ms: int
    node: int
    root: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """A counter of a GPU rises by `amount`."""

    time_ms: int
    node: int
    gpu: int
    counter: str
    amount: int


@dataclass(frozen=True, slots=True)
class Heat:
    """A GPU (None: the whole node) runs hotter by up to `rise_c`, in a ramp over the time."""

    start_ms: int
    end_ms: int
    node: int
    gpu: int | None
    rise_c: float


@dataclass(frozen=True, slots=True)
class Gap:
    """No samples of a GPU (None: of the whole node)."""

    start_ms: int
    end_ms: int
    node: int
    gpu: int | None


@dataclass(slots=True)
class Trace:
    """Everything that is left behind, in no order; a reset sets a node's counters back to zero."""

    kernel: list[KernelLine] = field(default_factory=list)
    links: list[LinkLoss] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    heat: list[Heat] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    resets: list[tuple[int, int]] = field(default_factory=list)  # (ms, node)

    def sort(self) -> None:
        """Put each list in time order; what is simultaneous keeps its order."""
        self.kernel.sort(key=lambda line: line.time_ms)
        self.links.sort(key=lambda loss: loss.down_ms)
        self.counts.sort(key=lambda count: count.time_ms)
        self.resets.sort()
