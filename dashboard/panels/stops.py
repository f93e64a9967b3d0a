"""What stopped a run last, in a sentence: when, by which device, and what that cost."""

from datetime import datetime

from dashboard.charts import ledger_charts
from dashboard.text import words
from wire.goodput import InterruptionJson, LedgerJson


def newest(ledger: LedgerJson) -> InterruptionJson | None:
    """The last stop whose time is known."""
    found = [stop for stop in ledger.interruptions if stop.time is not None]
    return max(found, key=lambda stop: stop.time.timestamp() if stop.time else 0.0, default=None)


def sentence(ledger: LedgerJson, now: datetime) -> str | None:
    """`llm-70b was last stopped 5 min ago by GPU 5 of gpu-003 (hardware); 12 GPU-hours were lost`, as Markdown.

    Then the newest whole save, and a later one that is torn, where they are known. None where nothing has stopped it.
    """
    stop = newest(ledger)
    if stop is None:
        return None
    save = _save(stop)
    text = f"{words.plain(ledger.run)} was last stopped {words.ago(stop.time, now)} by {words.plain(culprit(stop))}"
    if ledger.gpus is None:
        return f"{text}; {words.duration(stop.lost_s)} were lost{save}"
    return f"{text}; {words.count(stop.lost_s / 3600 * ledger.gpus)} GPU-hours were lost{save}"


def _save(stop: InterruptionJson) -> str:
    """`; newest whole save: 1100, 37 min before; save 1200 is torn`, as far as that is known."""
    text = ""
    if stop.kept is not None and stop.time is not None:
        iteration = "one" if stop.kept.iteration is None else str(stop.kept.iteration)
        before_s = max(0.0, (stop.time - stop.kept.time).total_seconds())
        text = f"; newest whole save: {iteration}, {words.duration(before_s)} before"
    return text if stop.torn is None else f"{text}; save {stop.torn} is torn"


def culprit(stop: InterruptionJson) -> str:
    """The device and the node that a stop is put down to, with the kind of its cause."""
    cause = ledger_charts.CAUSES.get(stop.cause, stop.cause)
    if stop.culprit is None:
        return "what nobody knows" if stop.cause == "unknown" else f"{cause} (no device is known)"
    device, node = words.device(stop.culprit, brief=True), stop.culprit.node
    named = f"{device} of {node}" if node and device and stop.culprit.type != "node" else node or device
    return f"{named} ({cause})" if named else cause
