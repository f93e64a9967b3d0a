"""The kill switch, the breaker's trips and the used budget: what stops hints as a whole."""

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from dashboard.client import ApiProblem
from dashboard.panels import page
from dashboard.panels.page import Site
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.policy import BudgetJson, StopJson, TripJson

REASON = "stopped on the dashboard"
BACKLOGS = {
    "drop": ("Reset, drop the requests", "earlier requests are dropped; a new fault makes a new one"),
    "review": ("Reset, review each", "each request waits for your approval"),
}


def draw(site: Site, cluster: ClusterJson) -> None:
    """The switch, the trips, the budget: in the order of what stops more."""
    stopped = site.client.stopped()
    if stopped.stop != "none":
        page.banner("error", words.STOPS.get(stopped.stop, words.plain(stopped.stop)))
        for line in sources(stopped, cluster):
            st.caption(line)
    trips = site.client.trips()
    if trips:
        _trips(site, trips, cluster)
    problem = site.client.policy().problem
    if problem:
        page.banner(
            "warning", f"The policy file is refused, the previous policy stays in force: {words.plain(problem)}"
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(used(site.client.budget(), cluster.mode), width="stretch")
        _switch(site, stopped)


def sources(stopped: StopJson, cluster: ClusterJson) -> list[str]:
    """Who stopped it, why, and how it is lifted."""
    lifts = {"switch": "the button below lifts it", "file": "remove the file", "setting": "set `stop: none`"}
    return [
        f"{words.plain(one.by or 'the ' + one.source)}"
        f"{f', {words.at(one.time, cluster.now)}' if one.time else ''}: {words.plain(one.reason)}"
        f" · {lifts.get(one.source, 'see the documentation')}"
        for one in stopped.sources
    ]


def used(budget: BudgetJson, mode: str | None) -> str:
    """How many nodes are held, of how many that may be."""
    verb = "would be held" if mode == "shadow" else "held or requested"
    nodes = f"**{budget.held} of {budget.most}** {'node' if budget.most == 1 else 'nodes'}"
    return f"{nodes} {verb} · **{budget.held_within_hour} of {budget.most_per_hour}** within the hour"


def _trips(site: Site, trips: Sequence[TripJson], cluster: ClusterJson) -> None:
    """One box for all: a large fault trips several groups at once."""
    with st.container(border=True, gap="small"):
        st.markdown(
            f":material/bolt: **The breaker is open for {words.many(len(trips), 'group')}:** too many hints at once: "
            "none of these nodes is held; releases continue"
        )
        for trip in trips:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(f"{trip_text(trip)} · {words.at(trip.time, cluster.now)}", width="stretch")
                for backlog, (label, meaning) in BACKLOGS.items() if site.may("act:reset") else ():
                    done = f"The breaker is reset for {trip.kind} {trip.name}: {meaning}."
                    args = (partial(site.client.reset, trip.seq, backlog), done)
                    st.button(label, key=f"{backlog}_{trip.seq}", help=meaning, on_click=_do, args=args)


def trip_text(trip: TripJson) -> str:
    """Which group it is, and why."""
    named = "the whole cluster" if trip.kind == "cluster" else f"{trip.kind.replace('_', ' ')} {trip.name}"
    return f"**{words.plain(named)}**: {words.plain(trip.why.removeprefix('breaker: '))}"


def _switch(site: Site, stopped: StopJson) -> None:
    if not site.may("act:stop"):
        return
    if any(one.source == "switch" for one in stopped.sources):
        args = (partial(site.client.stop, "none", "resumed on the dashboard"), "Hints are resumed.")
        st.button("Resume hints", key="resume", on_click=_do, args=args)
    elif stopped.stop == "none":
        args = (partial(site.client.stop, "holds", REASON), "Stopped. No new hints are sent; releases continue.")
        st.button(
            "Stop all new hints",
            key="stop",
            icon=":material/dangerous:",
            help="at once, for every scheduler; what is held stays held until it is released",
            on_click=_do,
            args=args,
        )


def _do(act: Callable[[], None], said: str) -> None:
    """Send the request and store its outcome for the page."""
    try:
        act()
    except ApiProblem as trouble:
        st.session_state["outcome"] = (False, str(trouble))
    else:
        st.session_state["outcome"] = (True, said)
