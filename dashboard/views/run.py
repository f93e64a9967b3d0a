"""The Run page: a run attempt by attempt, how each ended and by what, and what if it saved or came back otherwise."""

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from dashboard.charts import attempts as attempt_charts
from dashboard.charts.charts import CONFIG
from dashboard.client import ApiProblem
from dashboard.panels import frames, links, stops
from dashboard.panels import page as panels
from dashboard.panels.page import Site
from dashboard.text import words
from wire.advice import WhatIfJson
from wire.cluster import ClusterJson
from wire.goodput import AttemptJson, AttemptsJson, LedgerJson
from wire.money.price import shown as money_shown

# The scheduler's word for an attempt's end, after "it" or "attempt 3".
ENDS = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "NODE_FAIL": "ended with a node's failure",
    "OUT_OF_MEMORY": "ran out of memory",
    "TIMEOUT": "ran out of its time",
    "CANCELLED": "was cancelled",
    "PREEMPTED": "gave way to another job",
    "BOOT_FAIL": "ended with a node that did not boot",
    "RESIZING": "was given another size",
    "RESTARTED": "started its program anew",
    "RUNNING": "runs",
    "PENDING": "waits to start",
    "SUSPENDED": "is suspended",
}
_MINUTE, _HOUR = 60.0, 3600.0
_HOURS = (1, 1.5, 2, 3, 4, 6, 8, 12, 24)
INTERVALS = (*(m * _MINUTE for m in (1, 2, 5, 10, 15, 20, 30, 45)), *(h * _HOUR for h in _HOURS))
RESTARTS = (0.0, 10.0, 30.0, *(m * _MINUTE for m in (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120)))
KEEP_S = 30.0  # the attempts are read again when the ledger has news, else as rarely


def page(site: Site) -> None:
    """The selector (kept in the address as ?run=), then the run."""
    with panels.troubles():
        chosen = panels.chosen_run(site)
        if chosen is None:
            return
        _live(site, chosen)
        _what_if(site, chosen)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site, run: str) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        ledger = site.client.goodput(run)
        told = panels.kept("attempts", (run, ledger.as_of), KEEP_S, lambda: site.client.attempts(run))
        panels.answer(cluster, *headline(told, ledger, cluster.now))
        panels.as_of(cluster)
        _course(told, cluster)
        if site.goodput_page is not None:
            label = "Where its time went, and what it lost"
            st.page_link(site.goodput_page, label=label, query_params=links.query(run=run))


def headline(told: AttemptsJson, ledger: LedgerJson, now: datetime) -> tuple[str, str]:
    """Whether it runs, since when, and how often it was stopped; of one that stands still, by what."""
    name = words.plain(told.run)
    if not told.items:
        return "info", f"Run {name} has done nothing yet: it has no attempt."
    last, stopped = told.items[-1], len(ledger.interruptions)
    times = "never interrupted" if not stopped else f"interrupted {words.many(stopped, 'time')}"
    kept = "" if ledger.goodput is None else f", {words.share(ledger.goodput)} of it useful training"
    so_far = "so far" if last.end is None else "in all"
    whole = f"{words.duration(ledger.wall_s)} {so_far}{kept}, {times}."
    said = f"attempt {last.number} {_ended(last)}"
    if last.interruption is not None:
        by = words.plain(stops.culprit(last.interruption))
        when = f" {words.ago(last.end, now)}" if last.end else ""
        return "error", f"{name} was stopped{when} by {by} and has not been started again. {whole}"
    if last.end is None:
        since = "" if last.start is None else f" since {words.utc(last.start)}"
        return ("success" if last.state == "RUNNING" else "info"), f"{name}: {words.plain(said)}{since}. {whole}"
    return "info", f"{name}: {words.plain(said)} {words.ago(last.end, now)}. {whole}"


def _ended(attempt: AttemptJson) -> str:
    return ENDS.get(attempt.state, attempt.state.replace("_", " ").lower())


def _course(told: AttemptsJson, cluster: ClusterJson) -> None:
    """The attempts on one time axis, and the same as a table."""
    st.subheader(
        "Attempt by attempt",
        anchor=False,
        help="a cross: where it was stopped. Draw over a stretch to look closer, press twice to go back",
    )
    if not told.items:
        panels.empty("It has no attempt: an attempt begins with a job of the scheduler, or with its training log.")
        return
    span = panels.span()
    shown = [one for one in told.items if one.start is None or span.holds(one.start, one.end or cluster.now)]
    if not shown:
        st.caption(span.nothing("No attempt ran"))
        return
    drawn = AttemptsJson(run=told.run, start=told.start, wall_s=told.wall_s, attempts=told.attempts, items=tuple(shown))
    causes = ["" if one.interruption is None else stops.culprit(one.interruption) for one in shown]
    st.plotly_chart(attempt_charts.gantt(drawn, causes), key="attempts_chart", config=CONFIG)
    if told.attempts > len(told.items):
        st.caption(f"The newest {len(told.items):,} of {words.many(told.attempts, 'attempt')}.")
    if told.shortest_s > 0:
        st.caption(f"Parts shorter than {words.duration(told.shortest_s)} are drawn and counted as useful training.")
    rows = attempt_rows(shown[::-1], cluster.now)
    frames.show(rows, "attempts_table", {"number": "Attempt", "ended": "How it ended", "by": "Stopped by"}, most=8)


def attempt_rows(attempts: list[AttemptJson], now: datetime) -> list[frames.Row]:
    """An attempt a row: when, how long, how it ended, what its start and saves took, what was lost."""
    return [
        {
            "number": one.number,
            "began": words.when(one.start, now),
            "lasted": words.duration(one.length_s),
            "nodes": words.count(one.nodes),
            "ended": _ended(one),
            "by": words.DASH if one.interruption is None else stops.culprit(one.interruption),
            **{
                name: words.duration(sum(length for bucket, _, length in one.parts if bucket in buckets))
                for name, buckets in (
                    ("start-up", ("startup", "checkpoint_load")),
                    ("saves", ("checkpoint_save",)),
                    ("waited", ("waiting",)),
                    ("lost work", ("lost_work", "detection")),
                )
            },
        }
        for one in attempts
    ]


@st.fragment
def _what_if(site: Site, run: str) -> None:
    """The sliders stand at what the run's history measured until somebody moves them."""
    st.subheader(
        "What if",
        anchor=False,
        help="the run's own history lived again: the same failures at the same moments, with other settings",
    )
    try:
        measured = panels.kept("what_if", run, 2 * KEEP_S, lambda: site.client.what_if(run, {}))
        inputs = measured.inputs
        if inputs is None:
            st.caption("Not known. The server does not say what it measured: it is of an older version.")
            return
        left, right = st.columns(2, gap="large")
        with left:
            interval_s = _slider("A save every", INTERVALS, inputs.interval_s, f"interval_{run}")
        with right:
            restart_s = _slider("To start up and load takes", RESTARTS, inputs.restart_s, f"restart_{run}")
        changes = {
            name: value
            for name, value, now in (
                ("interval_s", interval_s, inputs.interval_s),
                ("restart_s", restart_s, inputs.restart_s),
            )
            if value != now
        }
        told = measured if not changes else site.client.what_if(run, changes)
    except ApiProblem as trouble:
        st.caption(f"Not known. {words.plain(str(trouble))}")
        return
    st.markdown("\n\n".join(lines(told, bool(changes))))


def _slider(label: str, of: Sequence[float], measured_s: float, key: str) -> float:
    listed = choices(of, measured_s)
    # A measure moves on with the run: what was chosen stays where it can be chosen still.
    if st.session_state.get(key) not in listed:
        st.session_state[key] = measured_s
    return float(
        st.select_slider(
            label,
            listed,
            key=key,
            format_func=lambda s: f"{words.duration(s)} (as now)" if s == measured_s else words.duration(s),
        )
    )


def choices(of: Sequence[float], measured_s: float) -> list[float]:
    """The choices of a slider, in order: what was measured, and those that read otherwise than it."""
    said = words.duration(measured_s)
    return sorted([measured_s, *(s for s in of if words.duration(s) != said)])


def lines(told: WhatIfJson, is_changed: bool) -> list[str]:
    """The answer first, then by what it was reckoned; each line is Markdown."""
    found, inputs = told.replayed, told.inputs
    basis = f"Measured: {words.many(told.stops, 'interruption')}"
    if inputs is not None:
        basis += (
            f", each noticed after {words.duration(inputs.detection_s)}, "
            f"then {words.duration(inputs.waiting_s)} until nodes were there; "
            f"a save stops training for {words.duration(inputs.save_s)}"
        )
    if not is_changed:
        return ["Move a slider: the answer stands here.", f"{basis}."]
    first = f"**{_points(found.gain)} of goodput.**"
    if found.low is not None and found.high is not None:
        first += f" With 95 % certainty {_points(found.low)} to {_points(found.high)}."
    if found.money_per_day is not None and told.gpus:
        worth = words.plain(money_shown(found.money_per_day))
        first += f" That is worth {worth} a day of its {words.count(told.gpus)} GPUs."
    lived = (
        f"Its history lived again: {words.share(found.changed)} instead of {words.share(found.as_was)}; "
        f"the run itself had {words.share(told.measured)}. By the formula alone: {_points(told.analytic.gain)}."
    )
    return [first, lived, f"{basis}."]


def _points(share: float) -> str:
    return f"{100 * share:+.2f} points".replace("-", "\N{MINUS SIGN}")
