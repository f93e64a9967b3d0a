"""The map of the fabric: a component of our own, plain JavaScript in `dashboard/components/fabric_map/`.

    fabric_map.begin()         # once a run of the page
    fabric_map.show(site)      # asks for what has changed; a fragment, for what the browser tells

The browser is sent the whole once, then the rows that differ from it. It asks for the whole itself where it has not
got it: its frame may have been made anew. What is unchanged is the same message again, which Streamlit sends as a hash.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import streamlit as st
from streamlit.components.v1 import declare_component

from dashboard.panels import links
from dashboard.panels import page as panels
from dashboard.panels.page import Site
from dashboard.text import words
from wire.nodes import MapJson

KEY = "fabric_map"
FILES = Path(__file__).parents[1] / "components" / "fabric_map"
_component = declare_component(KEY, path=FILES)
_HELD, _HEARD = "fabric_map_held", "fabric_map_heard"
LOOKS = {
    name: {"word": word, "colour": words.STATE_COLOURS[name], "mark": words.STATE_MARKS[name]}
    for name, word in words.STATES.items()
}


@dataclass(frozen=True, slots=True)
class HeldMap:
    """What the browser was sent last: its tag, its JSON, and the tag of the whole that it is laid over."""

    tag: str
    sent: str
    whole: str


def begin() -> None:
    """A run of the whole page begins with the whole map: the browser's frame may be new."""
    st.session_state.pop(_HELD, None)


@st.fragment
def show(site: Site) -> None:
    """The map, or why there is none; whoever opens a node on it comes to the node's page."""
    told = news(st.session_state, st.session_state.get(KEY))
    if "open" in told and site.node_page is not None:
        st.switch_page(site.node_page, query_params=links.query(node=told["open"]))
    held: HeldMap | None = None if "whole" in told else st.session_state.get(_HELD)
    with panels.troubles():
        st.session_state[_HELD] = held = renewed(site, held)
        if held is None:
            panels.empty("The map is not known at present: it comes with the next answer.")
            return
        _component(map=held.sent, revision=held.tag, looks=LOOKS, key=KEY, default=None)


def news(state: Any, told: Any) -> Mapping[str, Any]:
    """What the browser tells for the first time: `open` (a node's name) or `whole`; no more trusted than a URL."""
    if not isinstance(told, dict) or not isinstance(told.get("number"), int) or told["number"] == state.get(_HEARD):
        return {}
    state[_HEARD] = told["number"]
    if isinstance(told.get("open"), str):
        return {"open": told["open"][:255]}
    return {"whole": True} if told.get("whole") is True else {}


def renewed(site: Site, held: HeldMap | None) -> HeldMap | None:
    """What the browser is to have now: what it has where nothing changed, else a difference to its whole, or a whole.

    None: the answer is none that can be drawn.

    Raises:
        ApiProblem: the API refuses or fails.
    """
    sent, tag = site.client.fabric_map(None if held is None else held.whole)
    if held is not None and tag and tag == held.tag:
        return held
    if not is_drawable(sent):
        return None
    return HeldMap(tag, msgspec.json.encode(sent).decode(), tag if held is None or sent.since is None else held.whole)


def is_drawable(sent: MapJson) -> bool:
    """Whether the columns are of one length and every place in them is one: the browser relies on it."""
    rows = len(sent.node if sent.since is None else sent.rows or ())
    values = (sent.state, sent.risk, sent.temperature_c, sent.link_errors, sent.run)
    if any(len(column) != rows for column in values) or len(sent.block) != len(sent.node):
        return False
    places = ((sent.block, sent.blocks), (sent.state, sent.states), (sent.run, sent.runs))
    return all(0 <= place < len(names) for column, names in places for place in column if place is not None)
