"""Addresses within the dashboard: each names the cluster that it is of, where the dashboard knows several.

    st.page_link(site.node_page, label=name, query_params=links.query(node=name))
    links.address("node", node="gpu-017")       # node?node=gpu-017&cluster=west

A link that is copied, or opened beside the page, is a session of its own: without the name it would show another
cluster's node of that name.
"""

from urllib.parse import quote, urlencode

import streamlit as st

# In the address, and in the session, which is one cluster's as long as it lasts.
CLUSTER = "cluster"


def query(**names: str) -> dict[str, str]:
    """The part of an address behind its `?`."""
    cluster = st.session_state.get(CLUSTER)
    return names if cluster is None else {**names, CLUSTER: cluster}


def address(page: str, **names: str) -> str:
    """The address of a page, relative to another one's."""
    return f"{page}?{urlencode(query(**names), quote_via=quote, safe='')}"
