"""The Node page: how likely this node is to fail, why, and what happened to it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import streamlit as st

from dashboard.charts import charts
from dashboard.panels import frames, links, node_history
from dashboard.panels import page as panels
from dashboard.panels import verdicts as verdict_panels
from dashboard.panels.node_history import PAST, REACH, WEEK
from dashboard.panels.page import Site
from dashboard.text import verdicts as sayings
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.nodes import DeviceStateJson, NodeDetailJson, NodeJson
from wire.verdicts import VerdictJson

# By whether the node is out of service.
NOT_SCORED = {
    None: "it is not scored yet (`foreshock train --db URL` fits a model, the server then scores every minute)",
    "out": "nodes out of service are not scored",
    "faulty": "its score is withheld: it speaks of nodes that work, and this one has failed",
    "silent": "its score is withheld: nothing is heard of this node, so that it could only mislead",
}
_PAST_DAYS = PAST.days  # what the API tells of a node reaches so far
_NEWEST_WEEK = "the newest week of it"
VERDICTS = 20
MOST_BAD = 6  # neighbours that are not well, by name


def page(site: Site) -> None:
    """The selector (kept in the address as ?node=), then the node."""
    with panels.troubles():
        names = [node.node for node in site.client.nodes()]
        if not names:
            panels.empty(
                "No node is known yet: start `foreshock sidecar` on one, or load an archive with `foreshock ingest`."
            )
            return
        chosen = panels.choice(site, "node", names, "the worst first")
        if chosen is None:
            return
        _live(site, chosen)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site, name: str) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        node = site.client.node(name)
        verdicts = site.client.open_verdicts(VERDICTS, node=name)
        panels.answer(cluster, *headline(node, verdicts, cluster.now))
        panels.as_of(cluster)
        if (limit := panels.span().limit(cluster.now - PAST, REACH)) is not None:
            st.caption(limit)
        _verdicts(site, name, verdicts)
        told = node_history.timeline_of(site, name, cluster.now)
        node_history.running(site, told, cluster.now)
        _facts(node, cluster)
        node_history.axis(node, told, cluster)
        _risk(node, cluster)
        node_history.gpus(site, node, cluster.now)
        _devices(node, cluster)
        _neighbours(site, node)
        _history(node, cluster, sayings.by_incident(verdicts))
        _telemetry(node, cluster)
        _own_measures(site, node, cluster)
        node_history.evidence(site, name)


def headline(node: NodeDetailJson, verdicts: Sequence[VerdictJson], now: datetime) -> tuple[str, str, str]:
    """State and risk in a sentence; of a node that has failed or is out of service: why, since when and what to do."""
    level = {"faulty": "error", "ok": "success"}.get(node.state, "warning")
    text = f"{words.plain(node.node)} is {words.plain(words.state(node.state))}"
    chance = _not_scored(node)
    if node.score_24h is not None:
        chance = (
            f"the chance of an unplanned outage is {words.risk(node.score_24h)} within 24 h "
            f"and {words.risk(node.score_7d)} within 7 days"
        )
    ground, do = _ground(node, verdicts, now)
    if not ground:
        return level, f"{text}; {chance}.", ""
    return level, f"{text}{ground}.", f"{do} {chance[:1].upper()}{chance[1:]}.".lstrip()


def _ground(node: NodeDetailJson, verdicts: Sequence[VerdictJson], now: datetime) -> tuple[str, str]:
    """Why a node has failed or is out of service, since when; and what to do: by the verdict that blames it, if any."""
    out = next((one for one in reversed(node.outages) if one.end is None), None)
    if node.state == "out" and out is not None:
        why = f": {words.plain(out.reason or out.state or 'nobody told why')}"
        return f" since {words.utc(out.start)} ({words.ago(out.start, now)}){why}", ""
    newest = sorted(node.incidents, key=lambda one: one.start, reverse=True)
    fatal = words.newest_fatal(newest, node.node, now)
    if node.state != "faulty" or fatal is None:
        return "", ""
    blamed = next((one for one in sayings.by_urgency(verdicts) if one.node == node.node), None)
    to_do = words.action(fatal.action, fatal.device.type) if blamed is None else sayings.to_do(blamed)
    return f": {words.fault(fatal, now)}", f"Do: {to_do}."


def _not_scored(node: NodeJson) -> str:
    """Why there is no score."""
    return NOT_SCORED.get("out" if node.state == "out" else node.withheld, NOT_SCORED[None])


def _facts(node: NodeJson, cluster: ClusterJson) -> None:
    row = st.columns(5)
    row[0].metric("Risk, 24 h", words.risk(node.score_24h), border=True, height="stretch")
    row[1].metric("Risk, 7 days", words.risk(node.score_7d), border=True, height="stretch")
    row[2].metric(
        "Last seen",
        words.ago(node.last_seen, cluster.now),
        help=words.utc(node.last_seen),
        border=True,
        height="stretch",
    )
    row[3].metric(
        "GPUs",
        words.count(node.gpus),
        help=words.plain(node.gpu_model or "model not known"),
        border=True,
        height="stretch",
    )
    row[4].metric(
        "Rack",
        words.plain(node.rack) if node.rack else words.DASH,
        help=f"leaf switch {words.plain(node.leaf or 'unknown')}",
        border=True,
        height="stretch",
    )
    parts = [
        node.gpu_model,
        f"driver {node.driver}" if node.driver else None,
        f"leaf {node.leaf}" if node.leaf else None,
    ]
    st.caption(" · ".join(words.plain(part) for part in parts if part))
    panels.note(node)
    if node.hint is not None:
        st.info(f"{panels.hint_line(node.hint, cluster)}; see the page Hints", icon=":material/campaign:")
    if node.control:
        st.caption(
            "In the control group: hints for its score alone are recorded and not sent, to measure what hints "
            "prevent. A confirmed fault is handled as on every node."
        )


def _risk(node: NodeDetailJson, cluster: ClusterJson) -> None:
    st.subheader("Why", anchor=False, help="what raises (red) and lowers (green) the 24 h risk")
    if node.reasons:
        st.plotly_chart(charts.reasons(node.reasons[:6]), key="reasons", config=charts.CONFIG)
        st.caption(f"Scored {words.at(node.scored_at, cluster.now)}")
    elif node.score_24h is not None:
        panels.empty("Nothing moves its risk away from that of the fleet.")
    else:
        panels.empty("There is no score, so that nothing raises or lowers it.")


def _devices(node: NodeDetailJson, cluster: ClusterJson) -> None:
    """Which device it is, where any may not be healthy."""
    if not node.devices:
        return
    st.subheader("Devices", anchor=False, help="by their signs, quiet time and repairs of 28 days")
    frames.show(device_rows(node.devices, cluster.now), "node_devices", {"why": "Why"}, most=6)


def _neighbours(site: Site, node: NodeJson) -> None:
    """Who hangs under the same leaf: who suffers where it fails, and who shows that it is no fault of this node."""
    if node.leaf is None:
        return
    found = [one for one in site.client.nodes() if one.leaf == node.leaf and one.node != node.node]
    st.subheader(f"Under the same leaf, {words.plain(node.leaf)}", anchor=False)
    if not found:
        st.caption("No other node is known under it.")
        return
    bad = [one for one in found if one.state != "ok"]
    said = f"{words.many(len(found), 'other node')}, {f'{len(bad):,} of them not well' if bad else 'all of them well'}"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"{said}{':' if bad else '.'}", width="content")
        for one in bad[:MOST_BAD]:
            panels.node_link(site, one.node)
            panels.state_badge(one.state)
    frames.show(neighbour_rows(found), "neighbours", {"risk": "Risk, 24 h", "gpus": "GPUs"}, most=8)


def neighbour_rows(found: Sequence[NodeJson]) -> list[frames.Row]:
    """A node a row, with its page."""
    return [
        {
            "open": links.address("node", node=one.node),
            "node": words.shown(one.node),
            "state": words.state(one.state),
            "risk": words.risk(one.score_24h),
            "rack": words.shown(one.rack or words.DASH),
            "gpus": words.count(one.gpus),
        }
        for one in found
    ]


def device_rows(devices: Sequence[DeviceStateJson], now: datetime) -> list[frames.Row]:
    """Devices that may not be healthy, the worst first."""
    return [
        {
            "device": one.device,
            "state": one.state,
            "how likely": words.share(getattr(one.probabilities, one.state, None), 0),
            "since": words.when(one.since, now),
            "why": one.why or words.DASH,
        }
        for one in devices
    ]


def _telemetry(node: NodeDetailJson, cluster: ClusterJson) -> None:
    st.subheader(
        "GPU telemetry by the hour" if panels.span() else "GPU telemetry of the last week, by the hour",
        anchor=False,
        help=f"a break in a line: nobody measured. Violet: out of service. Times are {words.zone_name(cluster.now)}",
    )
    span = panels.span()
    since = span.end(cluster.now) - WEEK if span.since is None else span.since
    week = [rollup for rollup in node.telemetry if rollup.time >= since and span.holds(rollup.time)]
    figures = charts.telemetry(week, node.outages)
    if not figures:
        panels.empty(
            span.nothing("No telemetry of this node", cluster.now - PAST, REACH)
            if span
            else "No telemetry of this node for a week: "
            "point `foreshock sidecar --source scrape:URL` at its dcgm-exporter."
        )
    else:
        _side_by_side(figures, "telemetry")


def _side_by_side(figures: Sequence[Any], key: str) -> None:
    for at, (column, figure) in enumerate(zip(st.columns(2, gap="medium"), figures, strict=False)):
        column.plotly_chart(figure, key=f"{key}_{at}", config=charts.CONFIG)


def _own_measures(site: Site, node: NodeDetailJson, cluster: ClusterJson) -> None:
    """What the node itself measures: asked for when somebody wants it, since it may be much."""
    if not st.toggle("What the node itself measures: load, power, boot, errors", key="own_measures"):
        return
    span = panels.span()
    week = span.end(cluster.now) - WEEK
    hours = site.client.hours(node.node, "node", week if span.since is None else max(span.since, week))
    figures = charts.measures([hour for hour in hours if span.holds(hour.time)], "node", node.outages)
    if not figures:
        nothing = "Nothing that the node itself measures has differed"
        panels.empty(span.nothing(nothing, week, _NEWEST_WEEK) if span else f"{nothing} within a week.")
    else:
        if (limit := span.limit(week, _NEWEST_WEEK)) is not None:
            st.caption(limit)
        _side_by_side(figures, "measures")


def _verdicts(site: Site, name: str, verdicts: Sequence[VerdictJson]) -> None:
    """The causes that stand and touch this node, and whether it is one."""
    for one in sayings.by_urgency(verdicts)[: verdict_panels.MOST_CARDS]:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            verdict_panels.link(site, one)
            st.markdown(f"**{words.risk(one.probability)}**: {sayings.role(one, name)}", width="content")


def _history(node: NodeDetailJson, cluster: ClusterJson, causes: Mapping[str, str]) -> None:
    def own(rows: Sequence[frames.Row]) -> list[frames.Row]:
        return [{name: value for name, value in row.items() if name != "node"} for row in rows]

    span = panels.span()
    incidents = [one for one in node.incidents if span.holds(one.start, one.end)]
    incidents = sorted(incidents, key=lambda i: i.start, reverse=True)[:100]
    outages = [one for one in node.outages if span.holds(one.start, one.end or cluster.now)]
    hints = [one for one in node.hints if one.created is None or span.holds(one.created)]
    sections: tuple[tuple[str, str, Sequence[frames.Row], str], ...] = (
        (
            "Incidents",
            "incidents",
            own(frames.incident_rows(incidents, cluster.now, causes=causes)),
            f"No fault of this node showed within {_PAST_DAYS} days.",
        ),
        (
            "Outages",
            "outages",
            frames.outage_rows(outages, cluster.now),
            f"Not out of service within {_PAST_DAYS} days, as far as we know.",
        ),
        (
            "Hints",
            "hints",
            own(frames.hint_rows(hints[::-1][:100], cluster.now)),
            f"No hint was made for it within {_PAST_DAYS} days.",
        ),
    )
    for title, key, rows, nothing in sections:
        st.subheader(title, anchor=False)
        if rows:
            frames.show(rows, f"node_{key}", {"do": "What to do"}, most=6)
        else:
            st.caption(span.nothing("None", cluster.now - PAST, REACH) if span else nothing)
