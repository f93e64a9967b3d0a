"""Which cluster a page is of, where the dashboard knows several: `?cluster=west` in the address, a choice in the bar.

    name = clusters.chosen(known)      # None: there is nothing to draw of any

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

    None where the address, or the choice in the bar, names another one: the browser is sent there.
    """
    if len(known) < 2:
        return next(iter(known))
    named = st.query_params.get(CLUSTER)
    if named is not None and named not in known:
        if _draw(known, None):
            st.error(f"No cluster is called {words.plain(named)}: choose one of the {len(known):,}.")
        return None
    own: str = st.session_state.setdefault(CLUSTER, named or next(iter(known)))
    if named is None:
        st.query_params[CLUSTER] = own
    elif named != own:
        _go(named)
        return None
    return own if _draw(known, own) else None


def _draw(known: Collection[str], own: str | None) -> bool:
    """The choice, and whether the session stays. It needs no answer: one that is gone keeps nobody from the others."""
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
    if name is None or name == own:
        return True
    _go(name)
    return False


def _go(name: str) -> None:
    st.html(_GO.replace("NAME", json.dumps(name)), unsafe_allow_javascript=True)
