"""The Hints page: what is asked of the scheduler, why, and the two decisions that a person takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import frames, panels, vocabulary, words
from dashboard.answers import Cluster, Hint
from dashboard.client import Trouble
from dashboard.panels import Site

SHOWN = 30
OPEN = ("proposed", "approved", "sent", "shadow")
GRAVEST = ("drain", "cordon", "avoid", "watch", "release")
ASKS = {
    "watch": "keep an eye on it",
    "avoid": "place new work elsewhere if possible",
    "cordon": "place no new work on it",
    "drain": "place no new work on it and let running work end",
    "release": "let it take work again",
}
# What a decision does, said before it is taken.
CONFIRM = {
    "approve": "It will be sent to the scheduler: {ask} ({node}).",
    "withdraw": "It will be taken back; where the scheduler has it already, it is asked to undo it ({node}).",
}
# Evidence that has words of its own, or that the card says already.
SAID = {"score", "horizon_h", "held", "incident", "reasons", "acted", "closed"}
DONE = {"approve": "Approved", "withdraw": "Withdrawn"}


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
        for hint in active[:SHOWN]:
            _card(site, hint, cluster)
        if len(active) > SHOWN:
            st.caption(f"and {len(active) - SHOWN} more: `foreshock hints list` shows all")
        if not active:
            panels.empty(
                "Nothing is asked at present. A hint appears when a node's risk or a confirmed fault calls for one."
            )
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
    sent = sum(1 for hint in active if hint.state in ("approved", "sent"))
    text = (
        f"{words.many(len(active), 'open hint')}, {sent} with the scheduler"
        if sent
        else words.many(len(active), "open hint")
    )
    if mode == "shadow":
        return "info", f"{text}; in shadow mode none is sent."
    return "info", f"{text}; none waits for you."


def _card(site: Site, hint: Hint, cluster: Cluster) -> None:
    with st.container(border=True, gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            panels.node_link(site, hint.node)
            st.markdown(f"**{words.plain(hint.action)}**: {ASKS.get(hint.action, 'as named')}", width="content")
            st.badge(
                f"{words.plain(hint.state)}: {vocabulary.HINT_STATES.get(hint.state, '')}",
                color=vocabulary.HINT_TINTS.get(hint.state, "gray"),
            )
        st.markdown(words.plain(frames.unmarked(hint.reason)) or "no reason recorded")
        st.caption(
            f"asked {words.when(hint.created, cluster.now)} UTC by {words.plain(hint.owner or 'unknown')} · "
            f"ends by itself {words.when(hint.valid_until, cluster.now)} UTC"
        )
        if hint.evidence:
            with st.expander("Evidence", key=f"evidence_{hint.id}", expanded=hint.state == "proposed"):
                st.markdown("\n\n".join(evidence(hint.evidence)))
        _decisions(site, hint)


def evidence(found: Mapping[str, Any]) -> list[str]:
    """The evidence as lines of Markdown: the server's known keys in words, any other under its own name."""
    lines = []
    if isinstance(found.get("score"), int | float):
        lines.append(
            f"**Risk within {words.plain(str(found.get('horizon_h', 24)))} h:** {words.risk(float(found['score']))}"
        )
    if found.get("held"):
        lines.append(f"**Turned down from a cordon:** {words.plain(str(found['held']))}")
    if found.get("incident"):
        lines.append(f"**Confirmed fault:** incident {words.plain(str(found['incident']))}")
    reasons = found.get("reasons") or ()
    lines += [f"- {words.plain(str(why))}" for why in (reasons if isinstance(reasons, list | tuple) else [reasons])]
    for name, value in found.items():
        if name not in SAID and value is not None:
            lines.append(f"**{words.plain(name.replace('_', ' ').capitalize())}:** {words.plain(str(value))}")
    return lines


def _decisions(site: Site, hint: Hint) -> None:
    """The two buttons; a second press confirms, so that no slip of the hand acts on a cluster."""
    asked = st.session_state.get("asked")
    if asked and asked[0] == hint.id:
        verb = asked[1]
        st.warning(
            CONFIRM[verb].format(ask=ASKS.get(hint.action) or words.plain(hint.action), node=words.plain(hint.node))
        )
        with st.container(horizontal=True):
            st.button(f"Yes, {verb}", key=f"yes_{hint.id}", type="primary", on_click=_decide, args=(site, hint, verb))
            st.button("No, leave it", key=f"no_{hint.id}", on_click=_ask, args=(None, None))
        return
    with st.container(horizontal=True):
        if hint.state == "proposed":
            st.button("Approve", key=f"approve_{hint.id}", on_click=_ask, args=(hint.id, "approve"))
        st.button("Withdraw", key=f"withdraw_{hint.id}", on_click=_ask, args=(hint.id, "withdraw"))


def _ask(hint: str | None, verb: str | None) -> None:
    st.session_state["asked"] = (hint, verb) if hint else None
    st.session_state["outcome"] = None


def _decide(site: Site, hint: Hint, verb: str) -> None:
    """Do it, and keep what came of it for the page to say."""
    st.session_state["asked"] = None
    try:
        site.client.decide(hint.id, verb)
    except Trouble as trouble:
        st.session_state["outcome"] = (False, str(trouble))
    else:
        st.session_state["outcome"] = (True, f"{DONE[verb]}: {hint.action} {hint.node}.")


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
