"""The Verdicts page: what is the cause, how sure that is and why, who suffers, what to do, and how it has changed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import streamlit as st

from dashboard.panels import frames, links
from dashboard.panels import page as panels
from dashboard.panels import thread as people
from dashboard.panels import verdicts as parts
from dashboard.panels.page import Site
from dashboard.text import verdicts as sayings
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.money.price import shown
from wire.verdicts import VerdictJson

RECENT = 200
MOST_LINKS, FEW = 12, 3
_SKEW = timedelta(minutes=1)  # what is dated later than this is ahead of the page's clock


def page(site: Site) -> None:
    """The selector (kept in the address as ?verdict=), then the verdict."""
    with panels.troubles():
        cluster = site.client.cluster()
        span = panels.span()
        found = _until(site, span.end(cluster.now + _SKEW))
        reach = f"the newest {RECENT}" if len(found) >= RECENT else ""
        found = [one for one in found if span.holds(one.since, one.ended or max(cluster.now, one.since))]
        requested = st.query_params.get("verdict")
        listed = _ordered(found)
        names = {one.id: _label(one) for one in listed}
        if requested and requested not in names:
            names = {requested: requested, **names}  # one that is older than those that are listed
        if not names:
            panels.blind(cluster)
            panels.as_of(cluster)
            panels.empty(
                span.nothing("No verdict stood", reach=reach)
                if span
                else "No verdict was ever made. What sidecars report is weighed within seconds: "
                "start `foreshock sidecar` on the nodes, or ask an archive with `foreshock diagnose --db URL`."
            )
            return
        if reach and (limit := span.limit(None, reach)) is not None:
            st.caption(limit)
        ident = panels.choose("Verdict, those that stand first", "verdict", names)
        site = replace(site, caller=site.client.whoami())
        _live(site, ident)
        people.note(site, "verdicts", ident)


def _until(site: Site, moment: datetime) -> list[VerdictJson]:
    """The newest verdicts as of a moment, and those that stand though dated later: a host's clock may be off."""
    found = site.client.verdicts(RECENT, until=moment)
    known = {one.id for one in found}
    return [*found, *(one for one in site.client.open_verdicts(RECENT) if one.id not in known)]


def _ordered(found: Sequence[VerdictJson]) -> list[VerdictJson]:
    """Those that stand, the most urgent first; then the rest, the newest first."""
    over = [one for one in found if one.state not in ("open", "revised")]
    return [*sayings.by_urgency(found), *sorted(over, key=lambda one: one.since, reverse=True)]


def _label(verdict: VerdictJson) -> str:
    state = sayings.STATES.get(verdict.state, verdict.state)
    # Its probability is that of the moment, and stands below: this list is not drawn anew with it.
    return f"{sayings.title(verdict)} · {state} · {words.utc(verdict.since)}"


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site, ident: str) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        verdict = site.client.verdict(ident)
        panels.answer(cluster, *sayings.headline(verdict, cluster.now))
        panels.as_of(cluster)
        people.draw(site, "verdicts", verdict.id, verdict.life, cluster.now)
        _facts(site, verdict, cluster)
        _evidence(verdict)
        _who(site, verdict)
        _changes(verdict, cluster)
        people.thread(verdict.thread, cluster.now)
        _incidents(site, verdict)


def _facts(site: Site, verdict: VerdictJson, cluster: ClusterJson) -> None:
    row = st.columns(5)
    sure = "how often such a verdict is right (docs/diagnosis.md)"
    row[0].metric("Probability", words.risk(verdict.probability), help=sure, border=True, height="stretch")
    row[1].metric("Nodes", words.count(len(verdict.nodes)), help="below it, or that felt it", border=True)
    row[2].metric("Jobs", words.count(len(verdict.jobs)), border=True, height="stretch")
    at_stake = "GPU-hours that its running jobs would lose if they stopped now"
    hours, cost = sayings.stake(verdict), shown(verdict.money_at_stake) if verdict.jobs else ""
    row[3].metric(
        "GPU-hours at stake",
        hours.partition(" ")[0],
        delta=cost or None,
        delta_color="off",
        delta_arrow="off",
        help=at_stake,
        border=True,
        height="stretch",
    )
    since = panels.age(verdict.since, cluster)
    row[4].metric("Since", since, help=words.utc(verdict.since), border=True, height="stretch")
    if verdict.reason:
        st.markdown(words.plain(verdict.reason))
    st.markdown(f"**What to do:** {words.plain(sayings.to_do(verdict))}")
    if verdict.node is not None:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown("**Its node:**", width="content")
            panels.node_link(site, verdict.node)
            st.markdown(words.plain(words.device(verdict.device)), width="content")
    others = [name for name in verdict.names if name != verdict.name]
    said = [f"also called {', '.join(words.plain(name) for name in others[:6])}"] if others else []
    said.append(sayings.STATES.get(verdict.state, words.plain(verdict.state)))
    if verdict.why and verdict.ended:
        said.append(f"ended {words.at(verdict.ended, cluster.now)}: {words.plain(verdict.why)}")
    st.caption(" · ".join(said))
    if verdict.explained_by:
        st.caption(f"Another verdict explains it: {words.plain(verdict.explained_by)}; choose that one above.")


def _evidence(verdict: VerdictJson) -> None:
    left, right = st.columns(2, gap="medium")
    sides = (
        (left, "For it", "for", verdict.evidence_for, "Nothing is recorded for it."),
        (right, "Against it", "against", verdict.evidence_against, "Nothing speaks against it."),
    )
    for column, title, key, found, nothing in sides:
        with column:
            st.subheader(title, anchor=False, help="weight: the natural logarithm of its odds")
            if found:
                frames.show(parts.evidence_rows(found), f"evidence_{key}", most=8)
            else:
                st.caption(nothing)


def _who(site: Site, verdict: VerdictJson) -> None:
    st.subheader("Who suffers", anchor=False)
    if not verdict.nodes and not verdict.jobs:
        st.caption("No node and no job that is known.")
        return
    if verdict.jobs:
        st.markdown("**Jobs:** " + ", ".join(words.plain(job) for job in verdict.jobs[:MOST_LINKS]))
    victims = set(verdict.victims)
    if victims:
        st.caption("They only suffer from it: nothing is asked of them for it (docs/policy.md).")
    with st.container(horizontal=True, gap="small"):
        for node in verdict.nodes[:MOST_LINKS]:
            panels.node_link(site, node)
    if len(verdict.nodes) > MOST_LINKS:
        with st.expander(f"All {len(verdict.nodes):,} nodes", key="all_nodes"):
            rows = [{"node": name, "what": "suffers" if name in victims else "touched"} for name in verdict.nodes]
            frames.show(rows, "verdict_nodes", most=12)


def _incidents(site: Site, verdict: VerdictJson) -> None:
    """The incidents that it explains, each with its page."""
    if not verdict.incidents or site.incident_page is None:
        return
    few = len(verdict.incidents) <= FEW
    with st.expander(f"Its incidents ({len(verdict.incidents):,})", key="incidents", expanded=few):
        for ident in verdict.incidents[:MOST_LINKS]:
            label = words.plain(words.shown(f"incident {ident}")[:120])
            st.page_link(site.incident_page, label=label, query_params=links.query(incident=ident))


def _changes(verdict: VerdictJson, cluster: ClusterJson) -> None:
    st.subheader("How it has changed", anchor=False)
    if verdict.revisions:
        frames.show(parts.revision_rows(verdict, cluster.now), "revisions", {"what": "What has changed"}, most=8)
    else:
        st.caption("It is as it was first told.")
