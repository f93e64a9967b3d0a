"""What holds hints back as a whole: the kill switch, the breaker's trips, and how much of the budget is used."""

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from dashboard.client import ApiProblem
from dashboard.panels import page
from dashboard.panels.page import Site
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.policy import BudgetJson, StopJson, TripJson

STOPS = {
    "holds": "Stopped: nothing new is asked of any scheduler; releases go on.",
    "all": "Stopped: hands off entirely, not even releases are sent.",
}
REASON = "stopped on the dashboard"
BACKLOGS = {
    "drop": ("Reset, forget the calls", "what called before calls no more; a new fault does"),
    "review": ("Reset, review each", "each node that called waits for your approval"),
}


def draw(site: Site, cluster: ClusterJson) -> None:
    """The switch, the trips, the budget: in the order of what stops more."""
    stopped = site.client.stopped()
    if stopped.stop != "none":
        page.banner("error", STOPS.get(stopped.stop, words.plain(stopped.stop)))
        for line in sources(stopped, cluster):
            st.caption(line)
    trips = site.client.trips()
    if trips:
        _trips(site, trips, cluster)
    problem = site.client.policy().problem
    if problem:
        page.banner(
            "warning", f"The policy's file does not hold, the one before stays in force: {words.plain(problem)}"
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(used(site.client.budget(), cluster.mode), width="stretch")
        _switch(site, stopped)


def sources(stopped: StopJson, cluster: ClusterJson) -> list[str]:
    """Who stopped it, why, and how it is lifted."""
    lifts = {"switch": "the button below lifts it", "file": "remove the file", "setting": "set `stop: none`"}
    return [
        f"{words.plain(one.by or 'the ' + one.source)}"
        f"{f', {words.when(one.time, cluster.now)} UTC' if one.time else ''}: {words.plain(one.reason)}"
        f" · {lifts.get(one.source, 'see the documentation')}"
        for one in stopped.sources
    ]


def used(budget: BudgetJson, mode: str | None) -> str:
    """How many nodes are held, of how many that may be."""
    verb = "would be held" if mode == "shadow" else "held or asked for"
    return (
        f"**{budget.held} of {budget.most}** nodes {verb} · **{budget.held_within_hour} of {budget.most_per_hour}** "
        "within the hour"
    )


def _trips(site: Site, trips: Sequence[TripJson], cluster: ClusterJson) -> None:
    """One box for all: a large fault trips several groups at once."""
    with st.container(border=True, gap="small"):
        st.markdown(
            f":material/bolt: **The breaker is open for {words.many(len(trips), 'group')}:** too many nodes called at "
            "once, none of them is held; releases go on"
        )
        for trip in trips:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(f"{trip_text(trip)} · {words.when(trip.time, cluster.now)} UTC", width="stretch")
                for backlog, (label, meaning) in BACKLOGS.items():
                    done = f"The breaker is reset for {trip.kind} {trip.name}: {meaning}."
                    args = (partial(site.client.reset, trip.seq, backlog), done)
                    st.button(label, key=f"{backlog}_{trip.seq}", help=meaning, on_click=_do, args=args)


def trip_text(trip: TripJson) -> str:
    """Which group it is, and why."""
    named = "the whole cluster" if trip.kind == "cluster" else f"{trip.kind.replace('_', ' ')} {trip.name}"
    return f"**{words.plain(named)}**: {words.plain(trip.why.removeprefix('breaker: '))}"


def _switch(site: Site, stopped: StopJson) -> None:
    if any(one.source == "switch" for one in stopped.sources):
        args = (partial(site.client.stop, "none", "resumed on the dashboard"), "Hints go on.")
        st.button("Let hints go on", key="resume", on_click=_do, args=args)
    elif stopped.stop == "none":
        args = (partial(site.client.stop, "holds", REASON), "Stopped. Nothing new is asked; releases go on.")
        st.button(
            ":material/dangerous: Stop all new hints",
            key="stop",
            help="at once, for every scheduler; what is held stays held until it is released",
            on_click=_do,
            args=args,
        )


def _do(act: Callable[[], None], said: str) -> None:
    """Do it, and keep what came of it for the page to say."""
    try:
        act()
    except ApiProblem as trouble:
        st.session_state["outcome"] = (False, str(trouble))
    else:
        st.session_state["outcome"] = (True, said)
