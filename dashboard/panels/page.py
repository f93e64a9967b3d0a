"""The parts that every page is made of: the site, the trouble, the banner, the link to a node, the empty state."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import streamlit as st

from dashboard.client import ApiClient, ApiProblem, SignInOver
from dashboard.text import words
from dashboard.text import words as vocabulary
from wire.cluster import ClusterJson
from wire.hints import CallerJson, HintMarkJson
from wire.nodes import NodeJson

REFRESH_S = 3.0
_CLOCK_SKEW = timedelta(minutes=2)

_BANNERS = {
    "error": (st.error, ":material/error:"),
    "warning": (st.warning, ":material/warning:"),
    "success": (st.success, ":material/check_circle:"),
    "info": (st.info, ":material/info:"),
}


@dataclass(frozen=True, slots=True)
class Site:
    """What every page is handed: the API's client, and for links the pages of a node, a verdict and an incident."""

    client: ApiClient
    node_page: Any = None
    caller: CallerJson = field(default_factory=CallerJson)  # who looks: may do nothing until the API has said more
    verdict_page: Any = None
    incident_page: Any = None

    def may(self, scope: str) -> bool:
        """Whether the person, or the dashboard's token, may do something."""
        return scope in self.caller.scopes


@contextmanager
def troubles() -> Iterator[None]:
    """Whatever the API refuses inside is shown as its one sentence; the page asks again by itself."""
    try:
        yield
    except SignInOver as over:
        st.error(words.plain(str(over)), icon=":material/logout:")
        if st.user.get("is_logged_in"):
            st.button("Sign in again", type="primary", on_click=st.login, key="sign_in_again")
    except ApiProblem as trouble:
        st.error(words.plain(str(trouble)), icon=":material/cloud_off:")
        st.caption(
            f"The page asks again every {REFRESH_S:.0f} s. Nothing is known meanwhile: that is not the same as well."
        )


def banner(level: str, text: str, more: str = "") -> None:
    """The answer to the page's question, first of all; `more` in plain letters behind it."""
    show, icon = _BANNERS[level]
    show(f"**{text}** {more}".rstrip(), icon=icon)


def replayed(cluster: ClusterJson) -> bool:
    """Whether the server shows another time than the present."""
    return abs(datetime.now(UTC) - cluster.now) > _CLOCK_SKEW


def as_of(cluster: ClusterJson) -> None:
    """Which moment the page speaks of, and what hints do; above it that its data is old, where it is."""
    if cluster.stale and cluster.nodes:
        banner("error", words.blind(cluster))
    clock = " (the clock of the replayed cluster)" if replayed(cluster) else ""
    st.caption(f"As of **{words.utc(cluster.now)}**{clock} · {mode(cluster.mode)}")


def mode(name: str | None) -> str:
    """The mode of hints, explained."""
    return f"Mode {vocabulary.MODES.get(name) or words.plain(name)}" if name else "Mode unknown"


def empty(text: str) -> None:
    """In place of an empty chart: what is missing and what to do about it."""
    st.info(text, icon=":material/inbox:")


def node_link(site: Site, name: str | None) -> None:
    """The node's name, leading to its page."""
    if name and site.node_page is not None:
        st.page_link(site.node_page, label=words.plain(name), query_params={"node": name})
    else:
        st.markdown(f"**{words.plain(name or 'no node')}**")


def hint_line(hint: HintMarkJson) -> str:
    """The open hint of a node, as Markdown."""
    return f"hint: **{words.plain(hint.action)}** ({vocabulary.HINT_STATES.get(hint.state) or words.plain(hint.state)})"


def state_badge(state: str) -> None:
    """A node's state, coloured."""
    tint = vocabulary.STATE_TINTS.get(state, "gray")
    st.badge(words.plain(words.state(state)), color=tint, help=vocabulary.STATE_MEANINGS.get(state))


def note(node: NodeJson) -> None:
    """What the inventory notes of a node, if anything."""
    if node.note:
        st.caption(f":material/sticky_note_2: {words.plain(node.note)}")
