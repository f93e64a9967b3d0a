"""The box that finds anything by its name, above every page: what it finds leads to its page."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.panels import links, page
from dashboard.panels.page import Site
from dashboard.text import words
from wire.nodes import SearchResultJson

_ICONS = {
    "node": ":material/dns:",
    "device": ":material/memory:",
    "run": ":material/timelapse:",
    "incident": ":material/emergency_home:",
    "verdict": ":material/troubleshoot:",
    "hint": ":material/campaign:",
}
# In the session: what is looked for, and where the reader was then.
_TEXT, _PLACE = "find", "find_place"
_HELP = (
    "A node, a serial number, a GUID, an address, a run, a job, or the id of an incident, a verdict or a hint. "
    "The key / leads here from anywhere on the page."
)
# Streamlit has shortcuts for buttons alone. A person who types into a field means the letter.
_KEY = """<script>
if (!window.foreshockFindKey) {
  window.foreshockFindKey = true;
  document.addEventListener("keydown", (event) => {
    const at = event.target;
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || at.isContentEditable) return;
    if (["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName)) return;
    const box = document.querySelector('input[aria-label="Find"]');
    if (!box) return;
    event.preventDefault();
    box.focus();
    box.select();
  });
}
</script>"""


def draw(site: Site, pages: Mapping[str, Any], place: str) -> None:
    """The box, empty again on each new page.

    Args:
        place: the page's name in the address.
    """
    place = f"{place}?{sorted(st.query_params.items())}"
    if st.session_state.get(_PLACE, place) != place:
        st.session_state[_TEXT] = ""
    st.session_state[_PLACE] = place
    _box(site, pages)


def key() -> None:
    """Let the key / lead to the box; at the end of the page, where it takes no room."""
    st.html(_KEY, unsafe_allow_javascript=True)


@st.fragment
def _box(site: Site, pages: Mapping[str, Any]) -> None:
    """The box, and what bears the name that stands in it; the page below is not drawn again for it."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        text = st.text_input(
            "Find",
            key=_TEXT,
            placeholder="Find a node, serial number, run, id ...",
            help=_HELP,
            max_chars=255,
            width=380,
            label_visibility="collapsed",
        ).strip()
    if not text:
        return
    with page.troubles():
        found = site.client.search(text)
        if not found:
            st.caption(f"Nothing bears the name {words.plain(text)}.")
        with st.container(horizontal=True, horizontal_alignment="right", gap="small"):
            for one in found:
                _link(one, pages)


def _link(one: SearchResultJson, pages: Mapping[str, Any]) -> None:
    label = words.plain(one.name) + (f" · {words.plain(one.detail)}" if one.detail else "")
    where = place_of(one)
    if where is None:
        st.caption(label, width="content")
        return
    name, query = where
    st.page_link(
        pages[name], label=label, icon=_ICONS.get(one.kind), query_params=links.query(**query), width="content"
    )


def place_of(one: SearchResultJson) -> tuple[str, dict[str, str]] | None:
    """The page that shows a thing, and what its address says; None where no page does."""
    if one.kind in ("incident", "verdict"):
        return f"{one.kind}s", {one.kind: one.id}
    if one.kind == "run":
        return "run", {"run": one.id}
    if one.kind == "hint":
        return "hints", {"hint_text": one.id}
    return None if one.node is None else ("node", {"node": one.node})
