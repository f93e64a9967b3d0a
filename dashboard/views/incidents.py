"""The Incidents page: one fault, its causes with evidence, its lines, what was asked of schedulers, and its life."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import streamlit as st

from dashboard.panels import frames
from dashboard.panels import page as panels
from dashboard.panels import thread as people
from dashboard.panels import verdicts as verdict_panels
from dashboard.panels.page import Site
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.events import IncidentJson

RECENT = 300
LINES = 200
MOST_CAUSES = 4
_SKEW = timedelta(minutes=1)  # what is dated later than this is ahead of the page's clock
_AROUND = timedelta(seconds=1)
_BAD = ("fatal", "error", "warning", "info")


def page(site: Site) -> None:
    """The selector (kept in the address as ?incident=), then the incident."""
    with panels.troubles():
        cluster = site.client.cluster()
        span = panels.span()
        found = site.client.incidents(RECENT, until=span.end(cluster.now + _SKEW))
        reach = f"the newest {RECENT}" if len(found) >= RECENT else ""
        found = [one for one in found if span.holds(one.start, one.end)]
        requested = st.query_params.get("incident")
        listed = {one.id: _label(one) for one in _ordered(found)}
        if requested and requested not in listed:
            listed = {requested: requested, **listed}  # an older one, or one that has another id by now
        if not listed:
            panels.blind(cluster)
            panels.as_of(cluster)
            panels.empty(
                span.nothing("No incident showed", reach=reach)
                if span
                else "No fault is known. Kernel and fabric logs arrive through `foreshock sidecar` or "
                "`foreshock ingest`."
            )
            return
        if reach and (limit := span.limit(None, reach)) is not None:
            st.caption(limit)
        ident = panels.choose("Incident, those that are open first", "incident", listed)
        site = replace(site, caller=site.client.whoami())
        safe = quote(ident, safe="")
        panels.printout(site, f"print/incidents/{safe}", f"incident-{safe}", "Save for a ticket")
        _live(site, ident)
        people.note(site, "incidents", ident)


def _ordered(found: Sequence[IncidentJson]) -> list[IncidentJson]:
    """Those that nobody has taken, then those in somebody's hands, then closed ones; the worst and newest first."""
    places = ("open", "acknowledged", "in_repair", "validated", "closed")

    def place(one: IncidentJson) -> tuple[int, int, float]:
        state = one.life.state if one.life else "open"
        bad = _BAD.index(one.severity) if one.severity in _BAD else len(_BAD)
        return places.index(state) if state in places else 0, bad, -one.start.timestamp()

    return sorted(found, key=place)


def _label(one: IncidentJson) -> str:
    state = people.LIVES.get(one.life.state, one.life.state) if one.life else "open"
    where = one.node or words.device(one.device, name=one.name)
    return f"{words.what(one)} · {where} · {one.severity} · {state} · {words.utc(one.start)}"


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site, ident: str) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        incident = site.client.incident(ident)
        panels.answer(cluster, *headline(incident))
        panels.as_of(cluster)
        people.draw(site, "incidents", incident.id, incident.life, cluster.now)
        _facts(site, incident, cluster)
        _causes(site, incident, cluster)
        _lines(site, incident, cluster)
        _asked(site, incident, cluster)
        people.thread(incident.thread, cluster.now)


def headline(incident: IncidentJson) -> tuple[str, str]:
    """What happened where, and whether anybody is at it."""
    where = words.plain(words.place(incident) or "no node")
    named = [words.device(one, name=incident.name if at == 0 else None) for at, one in enumerate(incident.devices)]
    device = ", ".join(named) or words.device(incident.device, name=incident.name)
    place = f"{where}, {words.plain(device)}" if device and incident.device.type != "node" else where
    parts = words.plain(words.what(incident)).rstrip(".").split("; ")
    text = f"{place}: {'. '.join([parts[0], *(part[:1].upper() + part[1:] for part in parts[1:])])}."
    life = incident.life
    if life is not None and life.state != "open":
        whom = f", with {words.plain(life.owner.removeprefix('person:'))}" if life.owner else ""
        state = people.LIVES.get(life.state, words.plain(life.state)).capitalize()
        return "success" if life.state in ("closed", "validated") else "info", f"{text} {state}{whom}."
    level = {"fatal": "error", "error": "error", "warning": "warning"}.get(incident.severity, "info")
    return level, f"{text} Nobody has taken it yet."


def _facts(site: Site, incident: IncidentJson, cluster: ClusterJson) -> None:
    row = st.columns(5)
    row[0].metric("Severity", words.plain(incident.severity), border=True, height="stretch")
    since = panels.age(incident.start, cluster)
    row[1].metric("Began", since, help=words.utc(incident.start), border=True, height="stretch")
    lasted = (incident.end - incident.start).total_seconds()
    last = f"last shown {words.utc(incident.shown or incident.end)}"
    row[2].metric("Lasted", words.duration(lasted), help=last, border=True, height="stretch")
    row[3].metric("Events", words.count(incident.count), border=True, height="stretch")
    hit = "nodes of the largest job that ran there when it began"
    row[4].metric("Nodes of its job", words.count(incident.blast_radius), help=hit, border=True, height="stretch")
    if incident.meaning:
        st.markdown(words.plain(incident.meaning))
    st.markdown(f"**What to do:** {words.plain(words.to_do(incident))}")
    if incident.node is not None:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown("**Its node:**", width="content")
            panels.node_link(site, incident.node)
    if len(incident.kinds) > 1:
        told = ", ".join(f"{words.plain(kind)} ({count:,})" for kind, count in sorted(incident.kinds.items())[:12])
        st.caption(f"It is made of {told}")
    if len(incident.nodes) > 1:
        domain = words.plain(incident.domain or "")
        st.caption(f"Felt by {words.many(len(incident.nodes), 'node')} of NVLink domain {domain}")


def _causes(site: Site, incident: IncidentJson, cluster: ClusterJson) -> None:
    """What is held to be behind it, the likeliest first, with what speaks for and against each."""
    st.subheader("What is behind it", anchor=False)
    if not incident.verdicts:
        st.caption("No verdict holds it to be the sign of a cause.")
    for ident in incident.verdicts[:MOST_CAUSES]:
        verdict = site.client.verdict(ident)
        verdict_panels.card(site, verdict, cluster.now)
        found = [(one, "for") for one in verdict.evidence_for] + [(one, "against") for one in verdict.evidence_against]
        if found:
            verdict_panels.evidence_bars(found, f"evidence_{ident}")


def _lines(site: Site, incident: IncidentJson, cluster: ClusterJson) -> None:
    """Its events as they were said, by the second."""
    st.subheader("What was said", anchor=False)
    if incident.node is None:
        st.caption(f"`{words.plain(incident.message)}`" if incident.message else "It has no line of a node.")
        return
    window = (incident.start - _AROUND, incident.end + _AROUND)
    found = [one for one in site.client.events_between(incident.node, *window, LINES) if one.kind not in frames.ROUTINE]
    if found:
        frames.show(frames.event_rows(found, cluster.now), "lines", most=10)
    else:
        st.caption("Its events are older than the store keeps them.")


def _asked(site: Site, incident: IncidentJson, cluster: ClusterJson) -> None:
    """What was asked of which scheduler since it began, or stood then, and for which fault."""
    if incident.node is None:
        return
    st.subheader("What was asked of the scheduler", anchor=False)
    found = [
        one
        for one in site.client.hints_of(incident.node)
        if one.valid_until is None or one.valid_until >= incident.start
    ]
    if found:
        rows = frames.hint_rows(found, cluster.now)
        told = [row | {"ground": words.hint_ground(hint, incident)} for row, hint in zip(rows, found, strict=True)]
        frames.show(told, "asked", {"ground": "Asked for"}, most=6)
    else:
        st.caption("Nothing for this node since then.")
