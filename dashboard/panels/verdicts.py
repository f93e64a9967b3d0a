"""Verdicts as the pages show them: the cards of those that stand, the link to one, its evidence and its changes."""

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from dashboard.panels import frames, links, thread
from dashboard.panels.page import Site
from dashboard.text import verdicts as sayings
from dashboard.text import words
from wire.verdicts import VerdictEvidenceJson, VerdictJson

MOST_CARDS = 5
MOST_ROWS = 200
MOST_BARS = 12


def cards(site: Site, found: Sequence[VerdictJson], now: datetime) -> None:
    """Those that stand, the most urgent first; no heading where there is none."""
    standing = sayings.by_urgency(found)
    if not standing:
        return
    st.subheader("What is behind it", anchor=False, help="each cause once, however many nodes and incidents it makes")
    for one in standing[:MOST_CARDS]:
        card(site, one, now)
    if len(standing) > MOST_CARDS:
        st.caption(f"and {len(standing) - MOST_CARDS:,} more: see the page Verdicts")


def card(site: Site, verdict: VerdictJson, now: datetime) -> None:
    """One verdict in short."""
    with st.container(border=True, gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            link(site, verdict)
            badge(verdict)
            st.markdown(f"**{words.risk(verdict.probability)}**", width="content")
            if sayings.is_taken(verdict):
                thread.badges(verdict.life, now)
        if verdict.reason:
            st.caption(words.plain(verdict.reason[:300]))
        felt = sayings.suffering(verdict)
        said = [felt] if felt else []
        said += [_since(verdict, now), f"what to do: {words.plain(sayings.to_do(verdict))}"]
        st.caption(" · ".join(said))


def _since(verdict: VerdictJson, now: datetime) -> str:
    if sayings.is_ahead(verdict, now):
        return f"began {sayings.since(verdict, now)}, later than this page's clock"
    return f"since {sayings.since(verdict, now)}"


def link(site: Site, verdict: VerdictJson) -> None:
    """Its name, leading to its page."""
    name = words.plain(words.shown(sayings.title(verdict))[:120])
    if site.verdict_page is not None and verdict.id:
        st.page_link(site.verdict_page, label=name, query_params=links.query(verdict=verdict.id))
    else:
        st.markdown(f"**{name}**", width="content")


def badge(verdict: VerdictJson) -> None:
    """Its state, coloured."""
    state = sayings.STATES.get(verdict.state, words.plain(verdict.state))
    st.badge(state, color=sayings.TINTS.get(verdict.state, "gray"))


def evidence_bars(found: Sequence[tuple[VerdictEvidenceJson, str]], key: str) -> None:
    """The reasons for and against as bars, the weightiest first: to the right what speaks for it."""
    ordered = sorted(found, key=lambda one: -abs(one[0].weight))[:MOST_BARS]
    rows: list[frames.Row] = [
        {"what": words.shown(one.text), "weight": round(one.weight if side == "for" else -one.weight, 1)}
        for one, side in ordered
    ]
    most = max(abs(one.weight) for one, _side in ordered) or 1.0
    bar = st.column_config.ProgressColumn("Weight", min_value=-most, max_value=most, format="%+.1f")
    configured = {"what": st.column_config.TextColumn("What speaks for and against it", width="large"), "weight": bar}
    frames.draw(rows, key, configured, MOST_BARS)


def evidence_rows(found: Sequence[VerdictEvidenceJson]) -> list[frames.Row]:
    """The reasons, the weightiest first."""
    ordered = sorted(found, key=lambda one: -abs(one.weight))
    return [
        {"what": words.shown(one.text), "weight": round(one.weight, 1), "events": len(one.events)}
        for one in ordered[:MOST_ROWS]
    ]


def revision_rows(verdict: VerdictJson, now: datetime) -> list[frames.Row]:
    """Every change, the newest first."""
    return [
        {
            "when": words.when(one.time, now),
            "what": words.shown(one.what),
            "cause": words.shown(f"{sayings.CLASSES.get(one.cause_class, one.cause_class)} {one.name}"),
            "probability": words.risk(one.probability),
            "nodes": one.nodes,
        }
        for one in verdict.revisions[::-1][:MOST_ROWS]
    ]
