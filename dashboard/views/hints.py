"""The Hints page: what is asked of the schedulers, why, what it costs, what holds it back, and a person's decisions."""

from collections.abc import Sequence

import streamlit as st

from dashboard import frames, hint_card, hint_controls, hint_outcomes, panels, words
from dashboard.answers import Cluster
from dashboard.hint_answers import Hint
from dashboard.panels import Site

SHOWN = 30
OPEN = ("proposed", "approved", "sent", "confirmed", "shadow")
GRAVEST = ("swap", "requeue", "drain", "cordon", "checkpoint", "avoid", "watch", "release")


def page(site: Site) -> None:
    """The whole page; everything on it moves."""
    _live(site)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        hints = site.client.hints()
        active = sorted((h for h in hints if h.state in OPEN), key=urgency)
        panels.banner(*headline(active, cluster.mode))
        panels.as_of(cluster)
        _outcome()
        hint_controls.draw(site, cluster)
        for hint in active[:SHOWN]:
            hint_card.draw(site, hint, cluster)
        if len(active) > SHOWN:
            st.caption(f"and {len(active) - SHOWN} more: `foreshock hints list` shows all")
        if not active:
            panels.empty(
                "Nothing is asked at present. A hint appears when a node's risk or a confirmed fault calls for one."
            )
        hint_outcomes.draw(site)
        _ended([h for h in hints if h.state not in OPEN], cluster)
        _audit(site, hints, cluster)


def urgency(hint: Hint) -> tuple[int, int]:
    """What waits for a person first, then the gravest request; the newest first within."""
    return OPEN.index(hint.state), GRAVEST.index(hint.action) if hint.action in GRAVEST else len(GRAVEST)


def headline(active: Sequence[Hint], mode: str | None) -> tuple[str, str]:
    """How many hints there are, and whether one waits for a person."""
    waiting = sum(1 for hint in active if hint.state == "proposed")
    if waiting:
        return "warning", f"{words.many(waiting, 'hint')} {'waits' if waiting == 1 else 'wait'} for your approval."
    if not active:
        return "success", "Nothing is asked of the scheduler."
    sent = sum(1 for hint in active if hint.state in ("approved", "sent", "confirmed"))
    text = (
        f"{words.many(len(active), 'open hint')}, {sent} with the scheduler"
        if sent
        else words.many(len(active), "open hint")
    )
    if mode == "shadow":
        return "info", f"{text}; in shadow mode none is sent."
    return "info", f"{text}; none waits for you."


def _outcome() -> None:
    outcome = st.session_state.get("outcome")
    if outcome:
        panels.banner("success" if outcome[0] else "error", words.plain(outcome[1]))


def _ended(hints: Sequence[Hint], cluster: Cluster) -> None:
    if hints:
        with st.expander(f"Hints that are over ({len(hints):,})"):
            frames.show(frames.hint_rows(hints[:100], cluster.now), "ended")


def _audit(site: Site, hints: Sequence[Hint], cluster: Cluster) -> None:
    st.subheader("Who did what", anchor=False, help="every decision and every message to a scheduler; never changed")
    entries = site.client.audit(100)
    if entries:
        frames.show(frames.audit_rows(entries, hints, cluster.now), "audit", most=8)
    else:
        st.caption("No decision and no message to a scheduler yet.")
