"""The advice on the goodput page: how often to save, how many spare nodes, what each change would gain, and why."""

from dashboard.text import words
from wire.advice import CheckpointAdviceJson, ComponentRatesJson, GainsAdviceJson, SparesAdviceJson
from wire.money.price import shown

_DAY_S = 86_400.0
WORTH = 0.001  # a gain in goodput below this is none


def gain_rows(advice: GainsAdviceJson, most: int = 8) -> list[dict[str, str]]:
    """The changes worth most, in points of goodput; those that are worth nothing are left out."""
    return [
        {
            "change": gain.says.partition(": ")[0] or gain.lever,
            "gain": f"{100 * gain.gain:+.2f}",
            "interval": f"{100 * gain.low:.2f} to {100 * gain.high:.2f}".replace("-", "\N{MINUS SIGN}"),
            **({"worth": shown(gain.money_per_day)} if gain.money_per_day else {}),
        }
        for gain in advice.gains
        if gain.gain >= WORTH / 10
    ][:most]


def checkpoint_lines(advice: CheckpointAdviceJson) -> list[str]:
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
            if advice.money_per_day and advice.gpus:
                worth = f"{shown(advice.money_per_day)} a day of its {words.count(advice.gpus)} GPUs"
                lines.append(f"That is worth {words.plain(worth)}.")
    if advice.rate_is_measured:
        lines.append(
            f"Measured: {words.many(inputs.failures, 'interruption')} in {words.count(inputs.node_days)} node-days, "
            f"so on {words.many(inputs.nodes, 'node')} one every {words.duration(advice.mttf_s)}{_surely(advice)}."
        )
    else:
        lines.append(
            "The run was not interrupted yet, so a published failure rate stands in: "
            f"one every {words.duration(advice.mttf_s)} on {words.many(inputs.nodes, 'node')}."
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


def _surely(advice: CheckpointAdviceJson) -> str:
    """Between which times the time between failures lies, where the rate's interval is known."""
    if not (advice.rate_low and advice.rate_high):
        return ""
    low_s, high_s = (_DAY_S / (advice.inputs.nodes * rate) for rate in (advice.rate_high, advice.rate_low))
    return f" (95 % certainty: {words.duration(low_s)} to {words.duration(high_s)})"


def mtbf_rows(rates: ComponentRatesJson) -> list[dict[str, str]]:
    """A component a row, all of them first: the time between two failures of all nodes, with its interval."""
    return [
        {
            "component": "all together" if one.component == "all" else one.component,
            "failures": f"{one.failures:,}",
            "every": words.DASH if one.mtbf_h is None else words.duration(one.mtbf_h * 3600),
            "interval": f"{words.duration(one.mtbf_low_h * 3600)} to {words.duration(one.mtbf_high_h * 3600)}"
            if one.mtbf_high_h is not None
            else f"more than {words.duration(one.mtbf_low_h * 3600)}",
        }
        for one in rates.components
    ]


def spares_lines(advice: SparesAdviceJson) -> list[str]:
    """What to do first, then why; each line is Markdown."""
    inputs = advice.inputs
    if not inputs.outages:
        most = "" if advice.spares_high is None else f": up to {words.many(advice.spares_high, 'node')}"
        return [
            f"**How many nodes to keep spare is not known yet{most}.**",
            f"No unplanned outage is told of {words.count(inputs.node_days)} node-days; a repair is taken to last "
            f"{words.duration(inputs.mttr_s)}.",
            "Outages are read from the scheduler, or from a file (docs/outages.md).",
        ]
    spare = words.many(advice.spares, "node") if advice.spares else "no node"
    measured = f"{words.many(inputs.outages, 'unplanned outage')} in {words.count(inputs.node_days)} node-days"
    measured += f", each {words.duration(inputs.mttr_s)} long on average"
    lines = [
        f"**Keep {spare} spare: enough {words.share(advice.confidence, 0)} of the time.**",
        f"On average {advice.expected_down:.1f} of {words.many(inputs.nodes, 'node')} are down.",
        f"Measured: {measured}.",
    ]
    if None not in (advice.spares_low, advice.spares_high) and advice.spares_low != advice.spares_high:
        lines.append(
            f"So few outages allow anything from {advice.spares_low} to {advice.spares_high} (95 % certainty)."
        )
    return lines
