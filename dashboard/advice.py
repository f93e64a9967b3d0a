"""The advice on the goodput page: how often to save, how many nodes to keep spare, with the inputs behind it."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard import words
from dashboard.client import Trouble
from dashboard.panels import Site

_UNITS = (
    ("_s", words.duration),
    ("_h", lambda value: words.duration(value * 3600)),
    ("_ms", lambda value: words.duration(value / 1000)),
    ("_ratio", words.share),
)


def show(site: Site, run: str) -> None:
    """Both pieces of advice, side by side; one that cannot be given says why."""
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("How often to save a checkpoint", anchor=False)
        _advice(lambda: site.client.checkpoint_advice(run))
    with right:
        st.subheader("How many nodes to keep spare", anchor=False)
        _advice(site.client.spares_advice)


def _advice(ask: Any) -> None:
    try:
        answer: Mapping[str, Any] = ask()
    except Trouble as trouble:
        st.caption(f"No advice: {words.plain(str(trouble))}")
        return
    for line in lines(answer):
        st.markdown(line)


def lines(answer: Mapping[str, Any]) -> list[str]:
    """The answer as lines of Markdown: a sentence where the server gives one, then the inputs."""
    found = []
    for name, value in answer.items():
        if isinstance(value, Mapping):
            found += [f"- {line}" for line in lines(value)]
        elif isinstance(value, str) and name in ("text", "advice", "sentence", "summary"):
            found.insert(0, f"**{words.plain(value)}**")
        elif value is not None and not isinstance(value, list):
            found.append(f"{_label(name)}: **{_value(name, value)}**")
    return found


def _label(name: str) -> str:
    for ending, _ in _UNITS:
        name = name.removesuffix(ending)
    return words.plain(name.replace("_", " "))


def _value(name: str, value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for ending, said in _UNITS:
            if name.endswith(ending):
                return said(float(value))
        return f"{value:,.4g}"
    return words.plain(str(value))
