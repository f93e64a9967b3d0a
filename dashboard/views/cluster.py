"""The Cluster page: is anything wrong, where, and what is to be done."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import charts
from dashboard.client import ApiProblem
from dashboard.panels import fabric_map, frames, links, stops
from dashboard.panels import page as panels
from dashboard.panels import thread as people
from dashboard.panels import verdicts as verdict_panels
from dashboard.panels.page import Site
from dashboard.text import verdicts as sayings
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.events import IncidentJson
from wire.nodes import NodeJson

FIRST_S = 1.0  # what is wrong, and what is said, is asked for so often
ATTENTION, LIKELY = 6, 3  # nodes that are shown: not well, and the riskiest of those that are
STOP_S = 15.0  # what stopped the run is requested so often
RECENT = 300  # incidents read
VERDICTS = 100  # of those that stand
FEED = 200  # events read for the feed; the routine ones among them are left out
MOST_NOTES = 3  # nodes with a note that stand under the map
_DAY = timedelta(days=1)
_SKEW = timedelta(minutes=1)  # what is dated later than this is ahead of the page's clock


def page(site: Site) -> None:
    """Two parts, each drawn again by itself: what is wrong and what is said within a second, the rest has time."""
    fabric_map.begin()
    first, places, said = st.container(), st.container(), st.container()
    with first:
        _news(site, said)
    with places:
        _places(site)


@st.fragment(run_every=FIRST_S)
def _news(site: Site, said: DeltaGenerator) -> None:
    """The first row and the last: one turn draws both, a turn costs more than what it draws."""
    _first(site)
    with said, st.container():  # even with nothing to say: a part may only write where the whole page has written
        _said(site)


def _first(site: Site) -> None:
    """The verdict and what can be done about it, the state of the whole, its figures."""
    with panels.troubles():
        cluster = site.client.cluster()
        verdicts = site.client.open_verdicts(VERDICTS)
        panels.blind(cluster)
        if (first := sayings.first_of(verdicts)) is not None:
            panels.banner(*sayings.headline(first, cluster.now, len(sayings.standing(verdicts)) - 1))
            whose = replace(site, caller=site.client.whoami())
            people.draw(whose, "verdicts", first.id, first.life, cluster.now, next(iter(first.incidents), None))
        if not (cluster.stale and cluster.nodes):
            panels.banner(*words.headline(cluster))
        _last_stop(site, cluster)
        panels.as_of(cluster)
        if cluster.nodes:
            _metrics(cluster)


def _known(site: Site) -> ClusterJson | None:
    """The cluster, where there is one to draw; that there is none, or no answer, the first row says."""
    try:
        cluster = site.client.cluster()
    except ApiProblem:
        return None
    return cluster if cluster.nodes else None


@st.fragment(run_every=panels.REFRESH_S)
def _places(site: Site) -> None:
    """Where it is: the map, the incidents, what is behind them and which nodes to look at."""
    cluster = _known(site)
    if cluster is None:
        return
    left, right = st.columns([8, 5], gap="medium")
    with left:
        _map(site, cluster)  # first of all: its frame takes a while to load in the browser
        noted = st.container()
    with panels.troubles():
        verdicts = site.client.open_verdicts(VERDICTS)
        incidents = site.client.incidents(RECENT, until=cluster.now + _SKEW)
        within, reach = _within(site, cluster, incidents)
        ahead = site.client.incidents_since(RECENT, since=cluster.now + _SKEW)
        with left:
            _incidents((within, reach), ahead, cluster, sayings.by_incident(verdicts))
        with right:
            verdict_panels.cards(site, verdicts, cluster.now)
            nodes = site.client.nodes()
            _attention(site, nodes, [*ahead, *incidents], cluster)
        with noted:
            _noted(site, nodes)


def _said(site: Site) -> None:
    """The events as they come, and who is silent."""
    cluster = _known(site)
    if cluster is None:
        return
    with panels.troubles():
        _feed(site, cluster)
        _sources(cluster)


def _within(site: Site, cluster: ClusterJson, newest: Sequence[IncidentJson]) -> tuple[Sequence[IncidentJson], str]:
    """The incidents of the page's time range, and among how many was looked; the newest where it has none."""
    span = panels.span()
    if not span:
        return newest, ""
    found = newest if span.until is None else site.client.incidents(RECENT, until=span.end(cluster.now + _SKEW))
    reach = f"the newest {RECENT}" if len(found) >= RECENT else ""
    return [one for one in found if span.holds(one.start, one.end)], reach


def _last_stop(site: Site, cluster: ClusterJson) -> None:
    """What stopped the newest run within the last day, and where its losses are laid open."""
    if cluster.run is None:
        return
    run = cluster.run
    try:
        ledger = panels.kept("last_stop", run, STOP_S, lambda: site.client.goodput(run))
    except ApiProblem as trouble:
        st.caption(f"What stopped {words.plain(run)} is not known. {words.plain(str(trouble))}")
        return
    stop = stops.newest(ledger)
    if stop is None or stop.time is None or cluster.now - stop.time > _DAY:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f":material/timelapse: {stops.sentence(ledger, cluster.now)}.", width="content")
        if site.goodput_page is not None:
            st.page_link(site.goodput_page, label="What it lost", query_params=links.query(run=run), width="content")


def _metrics(cluster: ClusterJson) -> None:
    name, well = ("Not known", words.count(cluster.states.get("silent"))) if cluster.stale else ("Well", None)
    incidents = None if cluster.stale and not cluster.incidents_24h else cluster.incidents_24h
    missed = None
    if cluster.goodput is not None and cluster.target is not None and not cluster.stale:
        missed = f"{(cluster.goodput - cluster.target) * 100:+.1f} points"
    shown: tuple[tuple[str, str, str | None, str | None], ...] = (
        (f"{name}, of {words.many(cluster.nodes, 'node')}", well or _counted(cluster, "ok"), None, None),
        ("Faulty", _counted(cluster, "faulty"), None, words.STATE_MEANINGS["faulty"]),
        ("At risk", _counted(cluster, "at_risk"), None, words.STATE_MEANINGS["at_risk"]),
        ("Out or cordoned", _counted(cluster, "out", "cordoned"), None, "takes no new work"),
        ("Incidents, 24 h", words.count(incidents), None, "faults, each counted once"),
        (
            f"Goodput, target {words.share(cluster.target, 0)}",
            words.share(cluster.goodput),
            missed,
            "the share of the run's time in which it did work that was kept",
        ),
    )
    for column, (label, value, delta, meaning) in zip(st.columns(len(shown)), shown, strict=True):
        column.metric(label, value, delta, help=meaning, border=True, height="stretch")


def _counted(cluster: ClusterJson, *names: str) -> str:
    """How many nodes are in these states: a dash where the server counts none, or hears of none and knows of none."""
    found = sum(cluster.states.get(name, 0) for name in names)
    return words.count(found if found or (cluster.states and not cluster.stale) else None)


def _map(site: Site, cluster: ClusterJson) -> None:
    _inventory(cluster, cluster.states.get("unknown", 0))
    st.subheader("Fabric", anchor=False)
    fabric_map.show(site)
    if cluster.model is None:
        panels.empty("No node is scored yet: `foreshock train --db URL` fits the model from the outages known so far.")


def _noted(site: Site, nodes: Sequence[NodeJson]) -> None:
    """The nodes of which the inventory notes something, as far as there is room."""
    for node in [node for node in nodes if node.note][:MOST_NOTES]:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            panels.node_link(site, node.node)
            panels.state_badge(node.state)
            panels.note(node)


def _inventory(cluster: ClusterJson, unknown: int) -> None:
    """Nodes that only name themselves or never reported, and what a cluster without an inventory means."""
    unheard = cluster.never_heard
    if unheard.count:
        named = ", ".join(map(words.plain, unheard.first)) + (", ..." if unheard.count > len(unheard.first) else "")
        who = "has" if unheard.count == 1 else "have"
        st.caption(
            f":material/help: {words.many(unheard.count, 'node')} of the inventory {who} never reported ({named}): "
            "no sidecar runs there, or it cannot reach the server."
        )
    if unknown:
        st.caption(
            f":material/help: {words.many(unknown, 'node')} that the inventory does not know: not counted, never held. "
            "Name them in a scheduler, nodes.csv or `inventory: {nodes: ...}`, or see who sends in their names."
        )
    if not cluster.inventory and cluster.nodes:
        st.caption(
            ":material/help: Nobody says which nodes there are: every node that speaks counts, and in the mode `act` "
            "each request waits for your approval. Set `inventory: {nodes: ...}`, or load nodes.csv."
        )


def _attention(site: Site, nodes: Sequence[NodeJson], incidents: Sequence[IncidentJson], cluster: ClusterJson) -> None:
    """The nodes to look at, worst first, each with its reasons in words."""
    if not nodes:
        panels.empty("The nodes are not listed at present: they come with the next answer.")
        return
    bad = [node for node in nodes if node.state != "ok"]
    if bad:
        st.subheader("Look at these first", anchor=False)
    for node in bad[:ATTENTION]:
        _node_row(site, node, why(node, incidents, cluster), cluster)
    if len(bad) > ATTENTION:
        st.caption(f"and {len(bad) - ATTENTION} more that are not well: see the map")
    likely = [node for node in nodes if node.state == "ok"][:LIKELY]
    if likely:
        st.subheader(
            "Likely next" if bad else "Nothing needs you; likely next", anchor=False, help="well, with the highest risk"
        )
    for node in likely:
        _node_row(site, node, why(node, incidents, cluster), cluster)


def _past(site: Site, node: NodeJson, cluster: ClusterJson) -> str | None:
    """Its risk of the last seven days as a small drawing; None where it is not known."""
    try:
        return charts.sparkline(site.client.node_scores(node.node), cluster.now)
    except ApiProblem:
        return None


def why(node: NodeJson, incidents: Sequence[IncidentJson], cluster: ClusterJson) -> str:
    """What speaks against a node, as Markdown: its newest fatal fault, its silence, what raised its score."""
    said = []
    fatal = words.newest_fatal(incidents, node.node, cluster.now)
    if fatal is not None:
        said.append(words.fault(fatal, cluster.now))
    if node.state == "silent":
        said.append(f"last heard of {panels.age(node.last_seen, cluster)}" if node.last_seen else "never heard of")
    said += [
        words.plain(reason.text) for reason in node.reasons if reason.contribution > 0 and not words.is_rest(reason)
    ][:2]
    if node.state == "out":
        said.insert(0, "taken out of service by the scheduler; its page says since when and why")
    return "; ".join(said) or words.STATE_MEANINGS.get(node.state, "its page says why")


def _node_row(site: Site, node: NodeJson, reason: str, cluster: ClusterJson) -> None:
    with st.container(border=True, gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            panels.node_link(site, node.node)
            panels.state_badge(node.state)
            if node.score_24h is not None:
                st.markdown(f"**{words.risk(node.score_24h)}** risk in 24 h", width="content")
                if (past := _past(site, node, cluster)) is not None:
                    st.html(past, width="content")
        st.caption(reason)
        if node.hint is not None:
            st.caption(f":material/campaign: {panels.hint_line(node.hint, cluster)}")


def _incidents(
    within: tuple[Sequence[IncidentJson], str],
    ahead: Sequence[IncidentJson],
    cluster: ClusterJson,
    causes: Mapping[str, str],
) -> None:
    found, reach = within
    st.subheader("Newest incidents", anchor=False, help="the events of one fault count as one incident")
    if found:
        rows = frames.incident_rows(found[:50], cluster.now, brief=True, causes=causes)
        frames.show(rows, "incidents", {"do": "What to do"}, most=8, wide_px=280, device_px=130)
    elif panels.span():
        st.caption(panels.span().nothing("No incident showed", reach=reach))
    else:
        panels.empty(
            "No fault is known. Kernel and fabric logs arrive through `foreshock sidecar` or `foreshock ingest`."
        )
    if ahead:
        newest, why_later = ahead[0], "a replay" if panels.replayed(cluster) else "a host's clock runs ahead"
        st.caption(
            f"Dated later than this page's clock ({why_later}): "
            f"{words.many(len(ahead), 'incident')}, the newest on {words.plain(newest.node or 'no node')} "
            f"at {words.utc(newest.start)}: {words.plain(words.what(newest))}"
        )


def _feed(site: Site, cluster: ClusterJson) -> None:
    st.subheader("Events as they come", anchor=False, help="training steps and other routine records are left out")
    span = panels.span()
    told = site.client.events(FEED, until=span.end(cluster.now + _SKEW))
    found = [e for e in told if e.kind not in frames.ROUTINE and (e.time is None or span.holds(e.time))]
    if span and not found:
        reach = f"the newest {FEED}" if len(told) >= FEED else ""
        oldest = min((e.time for e in told if e.time is not None), default=None)
        st.caption(span.nothing("Nothing but routine records", oldest, reach))
    elif found:
        frames.show(frames.event_rows(found[:50], cluster.now), "events", most=8)
    else:
        panels.empty("Nothing but routine records of late. A node's kernel log arrives through `foreshock sidecar`.")


def _sources(cluster: ClusterJson) -> None:
    """Which sources speak: a silent source is a blind eye, not good news."""
    if cluster.sources:
        said = [f"{s.source} {panels.age(s.last_event, cluster)}" for s in cluster.sources]
        st.caption("Last seen: " + " · ".join(words.plain(text) for text in said))
    counted = cluster.sidecars
    if counted is not None and counted.silent + counted.troubled:
        st.caption(
            f":material/sensors: Of {words.many(counted.known, 'sidecar')} {counted.silent:,} are silent and "
            f"{counted.troubled:,} in trouble: see Collection."
        )
