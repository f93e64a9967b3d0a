"""The control of the time range and the zone, one for all pages: what it says stands in the address.

A link that is copied shows the same to everybody. A page that is turned to without a range keeps that of the page
before.
"""

from datetime import UTC, datetime, timedelta

import streamlit as st

from dashboard.client import ApiClient, ApiProblem
from dashboard.text import time_range, words
from dashboard.text.time_range import NAMES, SINCE, UNTIL, ZONE, TimeRange

# In the session: the range of the page before, and the control's own values.
_KEPT, _PLACE, _FROM, _TO, _LOCAL = "range_kept", "range_place", "range_from", "range_to", "range_local"
# What is looked for most often, in one press.
LAST = {"Last hour": timedelta(hours=1), "Last 24 h": timedelta(days=1), "Last 7 days": timedelta(days=7)}
_HELP = "Lists, tables and charts show what was within it; the first sentence of a page speaks of the present."


def keep(place: str) -> None:
    """Hand the range on to a page that is turned to without one.

    Args:
        place: the page's name in the address.
    """
    given = {name: st.query_params[name] for name in NAMES if name in st.query_params}
    if not given and st.session_state.get(_PLACE, place) != place:
        for name, value in st.session_state.get(_KEPT, {}).items():
            st.query_params[name] = given[name] = value
    st.session_state[_KEPT], st.session_state[_PLACE] = given, place


def draw(api: ApiClient) -> None:
    """The range as it is, and what changes it."""
    zone = time_range.zone(st.query_params)
    shown = TimeRange.read(st.query_params)
    token = words.ZONE.set(zone)
    try:
        label = f"{shown.words()} · {words.zone_name()}"
    finally:
        words.ZONE.reset(token)
    for key, moment in ((_FROM, shown.since), (_TO, shown.until)):
        st.session_state[key] = None if moment is None else moment.astimezone(zone).replace(tzinfo=None)
    st.session_state[_LOCAL] = zone is not UTC
    with st.popover(label[:1].upper() + label[1:], icon=":material/schedule:", help=_HELP):
        with st.container(horizontal=True, gap="small"):
            for text, length in LAST.items():
                st.button(text, key=f"range_{length}", on_click=_last, args=(api, length))
        name = st.context.timezone
        st.datetime_input("From", value=None, key=_FROM, on_change=_write, step=60, format="YYYY-MM-DD")
        st.datetime_input("To", value=None, key=_TO, on_change=_write, step=60, format="YYYY-MM-DD")
        st.toggle(f"My own zone ({words.plain(name)})" if name else "My own zone", key=_LOCAL, on_change=_write_zone)
        st.button("All times", key="range_all", on_click=_clear, disabled=not shown)


def _write() -> None:
    """Put what was chosen into the address, in UTC."""
    zone = time_range.zone(st.query_params)
    for key, name in ((_FROM, SINCE), (_TO, UNTIL)):
        chosen: datetime | None = st.session_state[key]
        _set(name, time_range.written(None if chosen is None else chosen.replace(tzinfo=zone)))


def _last(api: ApiClient, length: timedelta) -> None:
    """The newest of it, by the clock of the cluster: that of a replay is another than the wall's."""
    try:
        now = api.cluster().now
    except ApiProblem:  # which the page below says
        now = datetime.now(UTC)
    _set(SINCE, time_range.written(now - length))
    _set(UNTIL, None)


def _write_zone() -> None:
    """The zone by its name, so that a link shows the same elsewhere."""
    _set(ZONE, (st.context.timezone or None) if st.session_state[_LOCAL] else None)


def _clear() -> None:
    for name in (SINCE, UNTIL):
        _set(name, None)


def _set(name: str, value: str | None) -> None:
    if value is not None:
        st.query_params[name] = value
    elif name in st.query_params:
        del st.query_params[name]
