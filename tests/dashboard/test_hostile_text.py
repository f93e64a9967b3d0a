"""What a log line, a host or an operator wrote is text wherever it stands: no image, link or tag of it lives."""

from typing import Any

import pytest
from drawn_page import Opened, failing, raw

from dashboard.app import PAGES
from dashboard.charts import charts, ledger_charts
from wire.nodes import ReasonJson

EVIL = "![p](http://evil/p.png) <b>x</b> **y** $z$ :red[w]\n# Big"
LIVE = ("![p]", "](http", "<b>", "**y**", "$z$", ":red[", "\n# Big")


def live(text: str) -> list[str]:
    """The markup that a browser would obey."""
    return [mark for mark in LIVE if mark in text]


def evil(body: Any, names: set[str], text: str = EVIL) -> Any:
    """The answer with hostile text in every field of these names."""
    if isinstance(body, dict):
        return {
            name: text if name in names and (value is None or isinstance(value, str)) else evil(value, names, text)
            for name, value in body.items()
        }
    if isinstance(body, list):
        return [evil(item, names, text) for item in body]
    return body


FREE = {"message", "text", "reason", "owner", "rack", "leaf", "gpu_model", "driver", "actor", "pci", "uuid", "user"} | {
    "words",
    "serial",
    "why",
    "far_end",
    "next_step",
}


@pytest.mark.parametrize("page", PAGES)
def test_no_cell_of_any_table_is_a_formula_where_it_is_saved(drawn: Opened, api: Any, page: str) -> None:
    """Every table is one that the browser saves as CSV, as it is seen: with its heads, and texts that stay texts."""
    api.answers = {path: evil(body, FREE, "=HYPERLINK(A1)") for path, body in api.answers.items()}
    shown = drawn(page)
    assert failing(shown) == []
    assert not shown.table, "has no way to be saved"
    assert not [one.value for one in shown.markdown if "\n|" in one.value], "nor has one of Markdown"
    assert shown.dataframe
    saved = []
    for table in shown.dataframe:
        assert not [head for head in table.value.columns if head[:1] != head[:1].upper() or "_" in head]
        cells = [cell for name in table.value.columns for cell in table.value[name] if isinstance(cell, str)]
        assert not [cell for cell in cells if cell.startswith(("=", "@", "\t", "\r", "|", "%"))]
        saved += cells
    if page in ("node", "hints"):  # where such texts fill whole cells
        assert "'=HYPERLINK(A1)" in saved


@pytest.mark.parametrize("page", PAGES)
def test_free_text_is_never_markup(drawn: Opened, api: Any, page: str) -> None:
    """In every field that holds words of others, on every page, helps included."""
    api.answers = {path: evil(body, FREE) for path, body in api.answers.items()}
    shown = drawn(page)
    assert failing(shown) == []
    assert live(raw(shown).replace("**Save every", "").replace("\n\n", " ")) == []


@pytest.mark.parametrize("page", ["cluster", "node", "hints"])
def test_words_of_a_newer_server_are_never_markup(drawn: Opened, api: Any, page: str) -> None:
    """States, actions and modes are the server's, and yet only text."""
    hint = api.answers["hints"]["items"][0]
    changed = {"action": EVIL, "kind": EVIL}
    node = {"state": EVIL, "hint": {"id": "h", "action": EVIL, "state": EVIL}}
    api.answers["hints"] = {"items": [hint | {"action": EVIL, "evidence": {EVIL: EVIL, "horizon_h": EVIL, "score": 1}}]}
    api.answers["incidents"] = {"items": [item | changed for item in api.answers["incidents"]["items"]]}
    api.answers["nodes"] = {"items": [item | node for item in api.answers["nodes"]["items"]]}
    api.answers["nodes/gpu-017"] = api.answers["nodes/gpu-017"] | node
    api.answers["cluster"] = api.answers["cluster"] | {"mode": EVIL, "states": {EVIL: 3}, "run": EVIL}
    shown = drawn(page)
    assert failing(shown) == []
    assert live(raw(shown).replace("\n\n", " ")) == []


def test_a_node_called_like_markup_is_only_a_name(drawn: Opened, api: Any) -> None:
    """On the list, in the map and in its own headline."""
    name = "<img src=x onerror=alert(1)>[a](javascript:b)"
    api.answers["nodes"] = {"items": [{"node": name, "state": "faulty"}]}
    shown = drawn("cluster")
    assert failing(shown) == []
    text = raw(shown)
    assert "[a](" not in text
    assert "<img" not in text.replace("\\<", "")


def test_a_refusal_is_text_too(drawn: Opened, api: Any) -> None:
    """The server's detail may quote what somebody sent."""
    api.answers["cluster"] = (500, {"detail": EVIL})
    shown = drawn("cluster")
    assert live(shown.error[0].value) == []
    assert "Big" in shown.error[0].value


def test_no_tag_lives_in_a_figure() -> None:
    """Plotly reads some tags in hover text, tick names and labels."""
    tag = "<a href='http://evil'>x</a>"
    assert "<a" not in "".join(charts.reasons([ReasonJson(text=tag, contribution=0.1)]).data[0].y)


@pytest.mark.parametrize(("page", "what"), [("node", "node"), ("run", "run"), ("goodput", "run")])
def test_an_address_that_is_markup_is_named_and_not_obeyed(drawn: Opened, page: str, what: str) -> None:
    """?node= and ?run= come from whoever made the link; no other one's figures are shown for it."""
    shown = drawn(page, **{what: EVIL})
    assert failing(shown) == []
    assert f"No {what} is called" in shown.warning[0].value
    assert live(shown.warning[0].value) == []
    assert not shown.metric


def test_a_cause_of_a_newer_server_stands_for_itself() -> None:
    """And a bucket likewise."""
    assert ledger_charts.bucket("long_siesta").name == "long siesta"
    assert ledger_charts.bucket("long_siesta").meaning == ""


def test_the_state_of_a_model_is_no_markup(drawn: Opened, api: Any) -> None:
    """The figure of a metric is Markdown as well."""
    models = api.answers["models"]
    spoilt = [one | {"checks": {"drift": {"state": EVIL}}} for one in models["items"]]
    api.answers["models"] = models | {"items": spoilt}
    shown = drawn("models")
    assert failing(shown) == []
    assert live(raw(shown).replace("\n\n", " ")) == []
