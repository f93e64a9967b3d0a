"""The Hints page: open hints as cards, all of them in a table, what stops them, their outcomes, and the audit."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from dashboard.bar import sign_in
from dashboard.panels import frames, hint_card, hint_controls, hint_table
from dashboard.panels import page as panels
from dashboard.panels.frames import Row
from dashboard.panels.page import Site
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.hints import HindsightJson, HintJson, TallyJson

# Outcomes of hints, once their time is over: they show when hints deserve more trust.

BASES = {
    "shadow": "recorded only",
    "control": "control group",
    "asked": "requested, not carried out",
    "acted": "carried out",
}
HEADS = {"sure": "Surely (95 %)", "held": "Held, GPU-h", "saved": "Saved, GPU-h"}


def draw(site: Site) -> None:
    """The table of the last thirty days."""
    st.subheader("Was it right?", anchor=False, help="each hint is judged a day after it was made, a hold when it ends")
    found = site.client.outcomes()
    if not found.tallies:
        st.caption("No hint is old enough to be judged yet: that takes a day.")
        return
    frames.show(rows(found.tallies), "outcomes", HEADS, 8)
    st.caption(note(found))


def rows(tallies: Sequence[TallyJson]) -> list[Row]:
    """An action and basis a row; what was carried out shows no failure, so nothing is right or wrong of it."""
    return [
        {
            "asked": one.action,
            "became": BASES.get(one.basis, one.basis),
            "judged": f"{one.judged:,}",
            "right": words.DASH if one.precision is None else f"{one.right:,} ({words.share(one.precision, 0)})",
            "sure": words.DASH if one.low is None else f"{words.share(one.low, 0)} to {words.share(one.high, 0)}",
            "lead": words.duration(one.lead_s),
            "held": words.count(one.held_gpu_h),
            "saved": words.count(one.saved_gpu_h),
        }
        for one in tallies
    ]


def note(found: HindsightJson) -> str:
    """What the rows say together."""
    rate = found.false_holds_per_1000_node_days
    said = "" if rate is None else f"**{rate:.2g}** false holds per 1,000 node-days. "
    return f"{said}A held node cannot show whether it would have failed: held nodes have no share."


SHOWN = 5  # cards; the table has them all
OPEN = ("proposed", "approved", "sent", "confirmed", "shadow")
GRAVEST = ("swap", "requeue", "drain", "cordon", "checkpoint", "avoid", "watch", "release")


def page(site: Site) -> None:
    """The whole page; everything on it moves."""
    _live(site)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site) -> None:
    with panels.troubles():
        site = replace(site, caller=site.client.whoami())
        cluster = site.client.cluster()
        hints = site.client.hints()
        active = sorted((h for h in hints if h.state in OPEN), key=urgency)
        panels.answer(cluster, *headline(active, cluster, site))
        panels.as_of(cluster)
        _outcome()
        missing = sign_in.lacking(site.caller)
        if missing is not None:
            st.caption(f":material/lock: {missing}")
        hint_controls.draw(site, cluster)
        hint_table.draw(site, [*active, *(h for h in hints if h.state not in OPEN)], cluster)
        if active:
            st.subheader("The most urgent", anchor=False, help="each with its evidence, cost and approval")
        for hint in active[:SHOWN]:
            hint_card.draw(site, hint, cluster)
        if len(active) > SHOWN:
            st.caption(f"and {len(active) - SHOWN} more: the table above has all")
        if not active:
            panels.empty("A hint appears when a node's risk or a confirmed fault requires one.")
        draw(site)
        _audit(site, hints, cluster)


def urgency(hint: HintJson) -> tuple[int, int]:
    """What waits for a person first, then the gravest request; the newest first within."""
    return OPEN.index(hint.state), GRAVEST.index(hint.action) if hint.action in GRAVEST else len(GRAVEST)


def headline(active: Sequence[HintJson], cluster: ClusterJson, site: Site | None = None) -> tuple[str, str]:
    """How many hints there are, and whether one waits for a person."""
    proposed = [hint for hint in active if hint.state == "proposed"]
    caller = None if site is None else site.caller
    waiting = sum(1 for hint in proposed if caller is None or not hint_card.has_approved(caller, hint))
    if waiting:
        whose = "your" if site is None or site.may("act:approve") else "an"
        return "warning", f"{words.many(waiting, 'hint')} {'waits' if waiting == 1 else 'wait'} for {whose} approval."
    if not active:
        return "success", "No hint is open."
    held = sum(1 for hint in active if words.is_held_back(hint.state, hint.action, cluster.stop))
    counts = {
        "with the scheduler": sum(1 for hint in active if hint.state in ("sent", "confirmed")),
        "about to be sent": sum(1 for hint in active if hint.state == "approved") - held,
        "held back by the stop": held,
    }
    text = ", ".join([words.many(len(active), "open hint"), *(f"{n:,} {how}" for how, n in counts.items() if n)])
    return "info", f"{text}; {'in shadow mode none is sent' if cluster.mode == 'shadow' else 'none waits for you'}."


def _outcome() -> None:
    outcome = st.session_state.get("outcome")
    if outcome:
        panels.banner("success" if outcome[0] else "error", words.plain(outcome[1]))


def _audit(site: Site, hints: Sequence[HintJson], cluster: ClusterJson) -> None:
    st.subheader("Who did what", anchor=False, help="every decision and every message to a scheduler; never changed")
    entries = site.client.audit(100)
    if entries:
        frames.show(frames.audit_rows(entries, hints, cluster.now), "audit", most=8)
    else:
        st.caption("No decision and no message to a scheduler yet.")
