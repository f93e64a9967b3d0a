"""Which cluster a page is of, where the dashboard knows several: `?cluster=west` in the address, a choice in the bar.

    name = clusters.chosen(known)      # None: the address names none that is known, and the page says so

A session is one cluster's from its first moment to its last. Another one is another session, in the same tab: so no
answer, no selection and no press on a button of one cluster can reach another.
"""

import json
from collections.abc import Collection

import streamlit as st

from dashboard.panels.links import CLUSTER
from dashboard.text import words

_CHOICE = "cluster_choice"
# Only names out of the configuration are put in here.
_GO = "<script>location.assign(location.pathname + '?' + new URLSearchParams({cluster: NAME}))</script>"


def chosen(known: Collection[str]) -> str | None:
    """The cluster of this session: the one that its first address named, or the first that is known.

    Where the address, or the choice in the bar, names another one, the browser is sent there and nothing is drawn.
    """
    if len(known) < 2:
        return next(iter(known))
    named = st.query_params.get(CLUSTER)
    if named is not None and named not in known:
        _draw(known, None)
        st.error(f"No cluster is called {words.plain(named)}: choose one of the {len(known):,}.")
        return None
    own: str = st.session_state.setdefault(CLUSTER, named or next(iter(known)))
    if named is None:
        st.query_params[CLUSTER] = own
    elif named != own:
        _go(named)
    _draw(known, own)
    return own


def _draw(known: Collection[str], own: str | None) -> None:
    """The choice. It needs no answer of any cluster: one that is gone keeps nobody from the others."""
    names = list(known)
    name = st.selectbox(
        "Cluster",
        names,
        index=None if own is None else names.index(own),
        key=_CHOICE,
        placeholder="choose a cluster",
        label_visibility="collapsed",
        width=220,
    )
    if name is not None and name != own:
        _go(name)


def _go(name: str) -> None:
    st.html(_GO.replace("NAME", json.dumps(name)), unsafe_allow_javascript=True)
    st.stop()
