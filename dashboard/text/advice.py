"""The advice on the goodput page: how often to save, how many spare nodes, what each change would gain, and why."""

from dataclasses import dataclass

from dashboard.text import words

WORTH = 0.001  # a gain in goodput below this is none


@dataclass(frozen=True, slots=True)
class CheckpointInputs:
    """What was measured of a run: failures over node-days, the stall of a save, the way back after a failure."""

    nodes: int
    failures: int
    node_days: float
    save_s: float
    restart_s: float
    interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class CheckpointAdvice:
    """`GET /advice/checkpoint`: the time between two saves that loses least."""

    run: str
    inputs: CheckpointInputs
    interval_s: float
    mttf_s: float
    rate_is_measured: bool = True
    interval_shortest_s: float | None = None
    interval_longest_s: float | None = None
    goodput_now: float | None = None
    goodput_advised: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class SparesInputs:
    """What was measured of the cluster: unplanned outages over node-days, and how long they last."""

    nodes: int
    outages: int
    node_days: float
    mttr_s: float


@dataclass(frozen=True, slots=True)
class SparesAdvice:
    """`GET /advice/spares`: how many spare nodes suffice with probability `confidence` at any moment."""

    inputs: SparesInputs
    spares: int
    confidence: float
    expected_down: float
    spares_low: int | None = None
    spares_high: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Gain:
    """A change and its worth in goodput (0-1), with the 95 % interval; `says` in words."""

    lever: str
    gain: float
    low: float
    high: float
    says: str = ""


@dataclass(frozen=True, slots=True)
class GainsAdvice:
    """`GET /advice/gains`: what each change of a run would gain, the largest first."""

    run: str
    gains: tuple[Gain, ...]


def gain_rows(advice: GainsAdvice, most: int = 8) -> list[dict[str, str]]:
    """The changes worth most, in points of goodput; those that are worth nothing are left out."""
    return [
        {
            "change": gain.says.partition(": ")[0] or gain.lever,
            "gain": f"{100 * gain.gain:+.2f}",
            "interval": f"{100 * gain.low:+.2f} to {100 * gain.high:+.2f}",
        }
        for gain in advice.gains
        if gain.gain >= WORTH / 10
    ][:most]


def checkpoint_lines(advice: CheckpointAdvice) -> list[str]:
    """What to do first, then why; each line is Markdown."""
    inputs = advice.inputs
    first = f"**Save every {words.duration(advice.interval_s)}"
    first += f"; now it is every {words.duration(inputs.interval_s)}.**" if inputs.interval_s else ".**"
    lines = [first]
    if advice.goodput_now is not None and advice.goodput_advised is not None:
        if advice.goodput_advised - advice.goodput_now < WORTH:
            lines.append(
                f"The change is worth little: expected goodput {words.share(advice.goodput_advised)} either way."
            )
        else:
            lines.append(
                f"Expected goodput {words.share(advice.goodput_advised)} instead of {words.share(advice.goodput_now)}."
            )
    if advice.rate_is_measured:
        lines.append(
            f"Measured: {words.many(inputs.failures, 'interruption')} in {words.count(inputs.node_days)} node-days, "
            f"so on {words.count(inputs.nodes)} nodes one every {words.duration(advice.mttf_s)}."
        )
    else:
        lines.append(
            "The run was not interrupted yet, so a published failure rate stands in: "
            f"one every {words.duration(advice.mttf_s)} on {words.count(inputs.nodes)} nodes."
        )
    lines.append(
        f"A save stops training for {words.duration(inputs.save_s)}; "
        f"coming back after a failure takes {words.duration(inputs.restart_s)}."
    )
    if advice.interval_shortest_s is not None and advice.interval_longest_s is not None:
        lines.append(
            f"So few failures allow anything from {words.duration(advice.interval_shortest_s)} "
            f"to {words.duration(advice.interval_longest_s)} (95 % certainty)."
        )
    return lines


def spares_lines(advice: SparesAdvice) -> list[str]:
    """What to do first, then why; each line is Markdown."""
    inputs = advice.inputs
    lines = [
        f"**Keep {words.many(advice.spares, 'node')} spare: enough {words.share(advice.confidence, 0)} of the time.**",
        f"On average {advice.expected_down:.1f} of {words.count(inputs.nodes)} nodes are down.",
        f"Measured: {words.many(inputs.outages, 'unplanned outage')} in {words.count(inputs.node_days)} node-days, "
        f"each {words.duration(inputs.mttr_s)} long on average.",
    ]
    if advice.spares_low is not None and advice.spares_high is not None:
        lines.append(
            f"So few outages allow anything from {advice.spares_low} to {advice.spares_high} (95 % certainty)."
        )
    return lines
