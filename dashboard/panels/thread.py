"""What people did about an incident or a verdict: whose it is, until when it is silent, the buttons, and the thread."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import streamlit as st

from dashboard.client import ApiProblem
from dashboard.panels import frames, links, page
from dashboard.panels.page import Site
from dashboard.text import words
from wire.events import LifeJson, ThreadEntryJson
from wire.words.values import LIVES, STEPS

__all__ = ("LIVES", "STEPS")

TINTS: Mapping[str, words.Tint] = {"open": "red", "acknowledged": "orange", "in_repair": "blue", "validated": "green"}
# What may follow each state, the likeliest first: the button, and what it does.
NEXT: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "open": (
        ("ack", "Acknowledge", "it is yours, and others see that"),
        ("close", "Close", "it is over"),
    ),
    "acknowledged": (("repair", "In repair", "a part is on its way, or a person"), ("close", "Close", "it is over")),
    "in_repair": (("validate", "Repaired and tested", "a test has passed since"), ("close", "Close", "it is over")),
    "validated": (("close", "Close", "it is over"), ("reopen", "Open again", "it is not over")),
    "closed": (("reopen", "Open again", "it is not over"),),
}
SILENCE = "for 4 hours nobody is told of its verdicts, unless it becomes worse; hints go on"


def badges(life: LifeJson | None, now: datetime) -> None:
    """Its state in a word, whose it is, and until when it is silent."""
    life = life or LifeJson()
    st.badge(LIVES.get(life.state, words.plain(life.state)), color=TINTS.get(life.state, "gray"))
    if life.owner:
        st.markdown(f"with **{words.someone(life.owner)}**", width="content")
    if life.silenced_until:
        st.badge(f"silent until {words.due_at(life.silenced_until, now)}", icon=":material/notifications_off:")


def draw(site: Site, kind: str, ident: str, life: LifeJson | None, now: datetime, incident: str | None = None) -> None:
    """The state and the buttons. `kind`: incidents or verdicts; `incident`: one whose page has the lines of it."""
    life = life or LifeJson()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        badges(life, now)
        if site.may("act:approve"):
            for step, label, meaning in NEXT.get(life.state, NEXT["open"]):
                args = (site, kind, ident, step, f"You {STEPS[step]}.")
                first = step == "ack"
                style: Literal["primary", "secondary"] = "primary" if first else "secondary"
                st.button(label, key=f"{step}_{ident}", help=meaning, type=style, on_click=take, args=args)
            quiet = life.silenced_until is not None
            step, label = ("unsilence", "Lift the silence") if quiet else ("silence", "Silence for 4 h")
            args = (site, kind, ident, step, f"You {STEPS[step]}.")
            st.button(label, key=f"{step}_{ident}", help=None if quiet else SILENCE, on_click=take, args=args)
        if incident is not None and site.incident_page is not None:
            st.page_link(
                site.incident_page,
                label="Open its incident",
                query_params=links.query(incident=incident),
                width="content",
            )
    if life.again:
        st.caption(f":material/replay: {words.plain(life.again[:1].upper() + life.again[1:])}.")
    outcome()


def forget(place: str) -> None:
    """What came of a press is told on its own page alone.

    Args:
        place: the page's name in the address.
    """
    if st.session_state.get("outcome_place", place) != place:
        st.session_state["outcome"] = None
    st.session_state["outcome_place"] = place


def outcome() -> None:
    """What came of the last press."""
    found = st.session_state.get("outcome")
    if found:
        page.banner("success" if found[0] else "error", words.plain(found[1]))


def take(site: Site, kind: str, ident: str, step: str, said: str, text: str = "") -> None:
    """Send a step and store its outcome for the page."""
    try:
        site.client.step(kind, ident, step, text)
    except ApiProblem as trouble:
        st.session_state["outcome"] = (False, str(trouble))
    else:
        st.session_state["outcome"] = (True, said)


def thread(found: Sequence[ThreadEntryJson], now: datetime) -> None:
    """Who did what, the newest first."""
    st.subheader("What people did", anchor=False)
    if found:
        frames.show(rows(found, now), "thread", {"text": "Note"}, most=8)
    else:
        st.caption("Nobody has said anything about it yet.")


def rows(found: Sequence[ThreadEntryJson], now: datetime) -> list[frames.Row]:
    """A step a row."""
    return [
        {
            "when": words.when(one.time, now),
            "who": words.shown(one.actor.removeprefix("person:")),
            "did": STEPS.get(one.step, words.shown(one.step)),
            "detail": words.shown(" · ".join(part for part in (_extra(one, now), one.text) if part)),
        }
        for one in found[::-1]
    ]


def _extra(one: ThreadEntryJson, now: datetime) -> str:
    if one.until is not None:
        return f"until {words.due_at(one.until, now)}"
    return f"for {one.owner}" if one.owner else ""


@st.fragment
def note(site: Site, kind: str, ident: str) -> None:
    """Where a person writes a note; not redrawn with the rest, so that no letter is lost."""
    if not site.may("act:approve"):
        return
    with st.form(f"note_{ident}", clear_on_submit=True, border=False):
        text = st.text_input("Note", key=f"note_text_{ident}", max_chars=2000, placeholder="what you saw or did")
        if st.form_submit_button("Add the note") and text.strip():
            take(site, kind, ident, "note", "Noted.", text)
