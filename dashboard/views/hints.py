"""The Hints page: what is asked of the scheduler, why, and the two decisions that a person takes."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard import frames, panels, words
from dashboard.answers import Cluster, Hint
from dashboard.client import Trouble
from dashboard.panels import Site

SHOWN = 30
STATES = {
    "shadow": "written down, never sent",
    "proposed": "waits for your approval",
    "approved": "approved, about to be sent",
    "sent": "the scheduler has it",
    "withdrawn": "taken back by a person",
    "expired": "ran out before it was acted on",
    "released": "the node is well again",
}
OPEN = ("proposed", "approved", "sent", "shadow")
TINTS = {"proposed": "orange", "approved": "blue", "sent": "blue", "shadow": "gray"}
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
DONE = {"approve": "Approved", "withdraw": "Withdrawn"}


def page(site: Site) -> None:
    """The whole page; everything on it moves."""
    _live(site)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        hints = site.client.hints()
        active = sorted((h for h in hints if h.state in OPEN), key=lambda h: OPEN.index(h.state))
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
            st.markdown(f"**{hint.action}**: {ASKS.get(hint.action, 'as named')}", width="content")
            st.badge(
                f"{hint.state}: {STATES.get(hint.state, '')}",
                color=TINTS.get(hint.state, "gray"),  # type: ignore[arg-type]  # the tints are its colours
            )
        st.markdown(words.plain(hint.reason) or "no reason recorded")
        st.caption(
            f"asked {words.when(hint.created, cluster.now)} by {words.plain(hint.owner or 'unknown')} · "
            f"ends by itself {words.when(hint.valid_until, cluster.now)}"
        )
        if hint.evidence:
            with st.expander("Evidence", key=f"evidence_{hint.id}"):
                for line in evidence(hint.evidence):
                    st.markdown(line)
        _decisions(site, hint)


def evidence(found: dict[str, Any]) -> list[str]:
    """The evidence as lines of Markdown, whatever it holds."""
    lines = []
    for name, value in found.items():
        label = words.plain(name.replace("_", " "))
        if isinstance(value, float) and 0 <= value <= 1:
            lines.append(f"**{label}** {words.risk(value)}")
        elif isinstance(value, list):
            lines.append(f"**{label}**")
            lines += [f"- {_entry(entry)}" for entry in value[:10]]
        elif value is not None:
            lines.append(f"**{label}** {_entry(value)}")
    return lines


def _entry(value: Any) -> str:
    if isinstance(value, dict):
        if "text" in value and "contribution" in value:
            return f"{words.plain(str(value['text']))} ({float(value['contribution']) * 100:+.1f} points)"
        return words.plain(", ".join(f"{k}: {v}" for k, v in value.items() if v is not None))
    return words.plain(str(value))


def _decisions(site: Site, hint: Hint) -> None:
    """The two buttons; a second press confirms, so that no slip of the hand acts on a cluster."""
    asked = st.session_state.get("asked")
    if asked and asked[0] == hint.id:
        verb = asked[1]
        st.warning(CONFIRM[verb].format(ask=ASKS.get(hint.action, hint.action), node=words.plain(hint.node)))
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
            newest = sorted(hints, key=lambda h: h.created.timestamp() if h.created else 0.0, reverse=True)
            frames.show(frames.hint_rows(newest[:100], cluster.now), "ended")


def _audit(site: Site, hints: Sequence[Hint], cluster: Cluster) -> None:
    st.subheader("Who did what", anchor=False, help="every decision and every message to a scheduler; never changed")
    entries = site.client.audit()
    if entries:
        frames.show(frames.audit_rows(entries[:100], hints, cluster.now), "audit", most=8)
    else:
        st.caption("No decision and no message to a scheduler yet.")
