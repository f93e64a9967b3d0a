"""Whether hints were right, once their time is over: what tells when to trust them with more."""

from collections.abc import Sequence

import streamlit as st

from dashboard import frames, words
from dashboard.frames import Row
from dashboard.hint_answers import Hindsight, Tally
from dashboard.panels import Site

BASES = {
    "shadow": "written down alone",
    "control": "left alone by chance",
    "asked": "asked, not carried out",
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


def rows(tallies: Sequence[Tally]) -> list[Row]:
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


def note(found: Hindsight) -> str:
    """What the rows say together."""
    rate = found.false_holds_per_1000_node_days
    said = "" if rate is None else f"**{rate:.2g}** false holds per 1,000 node-days. "
    return f"{said}A node that was held cannot show whether it would have failed: of those no share is told."
