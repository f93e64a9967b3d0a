"""The parts that every page is made of: the site, the trouble, the banner, the link to a node, the empty state."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import streamlit as st

from dashboard.client import ApiClient, ApiProblem, SignInOver
from dashboard.panels import links
from dashboard.text import time_range, words
from dashboard.text import words as vocabulary
from dashboard.text.time_range import TimeRange
from store.visible_text import html_text
from wire.cluster import ClusterJson
from wire.hints import CallerJson, HintMarkJson
from wire.nodes import NodeJson

T = TypeVar("T")

REFRESH_S = 3.0
# Whom a server without tokens takes everybody for.
ANYBODY = "loopback"
_CLOCK_SKEW = timedelta(minutes=2)

_BANNERS = {
    "error": (st.error, ":material/error:"),
    "warning": (st.warning, ":material/warning:"),
    "success": (st.success, ":material/check_circle:"),
    "info": (st.info, ":material/info:"),
}


@dataclass(frozen=True, slots=True)
class Site:
    """What every page is handed: the API's client, and for links the pages of a node, a verdict, an incident ..."""

    client: ApiClient
    node_page: Any = None
    caller: CallerJson = field(default_factory=CallerJson)  # who looks: may do nothing until the API has said more
    verdict_page: Any = None
    incident_page: Any = None
    goodput_page: Any = None
    run_page: Any = None

    def may(self, scope: str) -> bool:
        """Whether the person, or the dashboard's token, may do something."""
        return scope in self.caller.scopes


def kept(name: str, of: object, for_s: float, read: Callable[[], T]) -> T:
    """An answer that is read again when it is of something else, or was read more than some seconds ago.

    Args:
        name: in the session; one answer is kept under it.
    """
    held: tuple[float, object, T] | None = st.session_state.get(name)
    if held is None or held[1] != of or time.monotonic() - held[0] >= for_s:
        held = (time.monotonic(), of, read())
        st.session_state[name] = held
    return held[2]


def span() -> TimeRange:
    """The time range that the address names: of lists, tables and charts."""
    return TimeRange.read(st.query_params)


@contextmanager
def troubles() -> Iterator[None]:
    """Whatever the API refuses inside is shown as its one sentence; the page asks again by itself.

    Times inside are said in the zone that the address names.
    """
    zone = words.ZONE.set(time_range.zone(st.query_params))
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
    finally:
        words.ZONE.reset(zone)


def banner(level: str, text: str, more: str = "") -> None:
    """The answer to the page's question, first of all; `more` in plain letters behind it."""
    show, icon = _BANNERS[level]
    show(f"**{text}** {more}".rstrip(), icon=icon)


def replayed(cluster: ClusterJson) -> bool:
    """Whether the server shows another time than the present."""
    return abs(datetime.now(UTC) - cluster.now) > _CLOCK_SKEW


def age(moment: datetime | None, cluster: ClusterJson) -> str:
    """How long ago something happened, short enough for a figure.

    Beside a replay goes what this machine itself says by its own clock: it is told by that one.
    """
    if moment is None or not words.is_ahead(moment, cluster.now):
        return words.ago(moment, cluster.now)
    real = datetime.now(UTC)
    return words.CLOCK_AHEAD if words.is_ahead(moment, real) or cluster.replay is None else words.ago(moment, real)


def blind(cluster: ClusterJson) -> None:
    """That nothing is heard of any node, first of all: what the page says below is of the past then."""
    if cluster.stale and cluster.nodes:
        banner("error", words.blind(cluster))


def answer(cluster: ClusterJson, level: str, text: str, more: str = "") -> None:
    """The banner of a page, below that its data is old; of old data nothing is green."""
    blind(cluster)
    banner("info" if cluster.stale and level == "success" else level, text, more)


def as_of(cluster: ClusterJson) -> None:
    """Which moment the page speaks of, and what hints do; above it that its replay has ended."""
    if (over := words.replay_over(cluster)) is not None:
        banner("info", *over)
    clock = " (the clock of the replayed cluster)" if replayed(cluster) else ""
    if over is None and cluster.replay is not None:
        clock = f" (the clock of the replayed cluster, which ends {words.due(cluster.replay.ends, datetime.now(UTC))})"
    st.caption(f"As of **{words.utc(cluster.now)}**{clock} · {mode(cluster)}")


def mode(cluster: ClusterJson) -> str:
    """The mode of hints, explained; that they are stopped goes before it."""
    name = cluster.mode
    told = f"Mode {vocabulary.MODES.get(name) or words.plain(name)}" if name else "Mode unknown"
    if cluster.stop == "none":
        return told
    return f"**{words.STOPS.get(cluster.stop, words.plain(cluster.stop))}** {told}"


def empty(text: str) -> None:
    """In place of an empty chart: what is missing and what to do about it."""
    st.info(text, icon=":material/inbox:")


def choice(site: Site, what: str, names: Sequence[str], order: str) -> str | None:
    """One of these: that which the address names as `?node=` or `?run=`, the first where it names none.

    None, and a sentence, where it names a stranger: of nobody asked for nothing is shown.
    """
    requested = st.query_params.get(what)
    unknown = requested if requested and requested not in names else None
    if unknown is not None:
        st.warning(f"No {what} is called {words.plain(unknown)}: choose one of the {len(names):,} below.")
    chosen = st.selectbox(
        f"{what.capitalize()}, {order}",
        names,
        index=0 if unknown is None else None,
        key=what,
        bind="query-params",
        format_func=words.shown,
        placeholder=f"choose a {what}",
    )
    if chosen is None:
        cluster = site.client.cluster()
        blind(cluster)
        as_of(cluster)
    return chosen


def chosen_run(site: Site) -> str | None:
    """The run that the address names, else the newest; None, and a sentence, where none is known, or none so called."""
    runs = sorted(site.client.runs(), key=lambda r: r.start.timestamp() if r.start else 0.0, reverse=True)
    if not runs:
        empty(
            "No training run is known yet: let `foreshock sidecar --source file:RUN.log:training` follow its log, "
            "or load an archive with `foreshock ingest`."
        )
        return None
    return choice(site, "run", [run.run for run in runs], "the newest first")


def node_link(site: Site, name: str | None) -> None:
    """The node's name, leading to its page."""
    if name and site.node_page is not None:
        st.page_link(site.node_page, label=words.plain(name), query_params=links.query(node=name))
    else:
        st.markdown(f"**{words.plain(name or 'no node')}**")


def choose(label: str, name: str, listed: Mapping[str, str]) -> str:
    """The id that a person chose of a list; it stands in the address as `?name=ID`, and an address chooses it.

    Streamlit's own binding writes what a choice reads, not its id, and drops an id from the address.

    Args:
        listed: what each id reads, in order; the id that the address names is one of them.
    """
    requested, seen = st.query_params.get(name), f"{name}_in_address"
    if requested in listed and (name not in st.session_state or st.session_state.get(seen) != requested):
        st.session_state[name] = requested
    st.session_state[seen] = requested

    def keep() -> None:
        st.query_params[name] = st.session_state[seen] = st.session_state[name]

    chosen = st.selectbox(
        label, list(listed), key=name, on_change=keep, format_func=lambda ident: words.shown(listed.get(ident, ident))
    )
    return chosen if chosen is not None else next(iter(listed))


def printout(site: Site, path: str, name: str, label: str = "Save to print") -> None:
    """A button that fetches a page to print as a file; where nobody has to sign in at the API, a link to it, too.

    Args:
        path: below `/api/v1/`.
        name: of the file, without its ending.
    """
    help_ = "an HTML file: open it and print it, or put it into a ticket"
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            label,
            data=lambda: _printed(site, path),
            file_name=f"{name}.html",
            mime="text/html",
            key=f"print_{name}",
            help=help_,
            on_click="ignore",
            icon=":material/print:",
        )
        if site.caller.name == ANYBODY:
            st.link_button("Open to print", f"{site.client.server}/api/v1/{path}", icon=":material/open_in_new:")


def _printed(site: Site, path: str) -> bytes:
    """The page; where the API refuses, its sentence: the file then says why it holds nothing else."""
    try:
        return site.client.printout(path)
    except ApiProblem as trouble:
        return html_text(str(trouble)).encode()


def run_link(site: Site, name: str, label: str = "") -> None:
    """The run's name, leading to its page."""
    if site.run_page is not None:
        shown = label or words.plain(name)
        st.page_link(site.run_page, label=shown, query_params=links.query(run=name), width="content")
    else:
        st.markdown(f"**{words.plain(name)}**", width="content")


def hint_line(hint: HintMarkJson, cluster: ClusterJson) -> str:
    """The open hint of a node, as Markdown."""
    state = words.hint_state(hint.state, hint.action, cluster.stop)
    return f"hint: **{words.plain(hint.action)}** ({words.plain(state)})"


def state_badge(state: str) -> None:
    """A node's state, coloured."""
    tint = vocabulary.STATE_TINTS.get(state, "gray")
    st.badge(words.plain(words.state(state)), color=tint, help=vocabulary.STATE_MEANINGS.get(state))


def note(node: NodeJson) -> None:
    """What the inventory notes of a node, if anything."""
    if node.note:
        st.caption(f":material/sticky_note_2: {words.plain(node.note)}")
