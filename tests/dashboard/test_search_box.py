"""The box above every page: what it finds leads to its page, and a name from outside is text."""

from pathlib import Path
from typing import Any

import pytest
from drawn_page import failing, seen
from real.patience import patience
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.bar.search import place_of
from wire.nodes import SearchResultJson

APP = Path(dashboard.__file__).parent / "app.py"


def result(kind: str = "node", node: str | None = None, **more: Any) -> dict[str, Any]:
    """One of an answer."""
    return {"kind": kind, "id": "i1", "name": "gpu-017", "detail": "rack r3", "node": node} | more


@pytest.fixture
def app(api: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The whole dashboard of the canned API, at its first page."""
    monkeypatch.setattr("sys.argv", ["app.py", "--server", api.url])
    return AppTest.from_file(str(APP), default_timeout=patience(30)).run()


def find(app: AppTest, text: str) -> AppTest:
    """Type into the box."""
    return app.text_input(key="find").set_value(text).run()


def links(app: AppTest) -> list[tuple[str, str]]:
    """The links on the page: their words, and where they lead."""
    found = [one.proto for one in app.get("page_link")]
    return [(one.label.replace("\\-", "-"), f"{one.page}?{one.query_string}") for one in found]


def test_what_is_found_leads_to_its_page(api: Any, app: AppTest) -> None:
    """One link each, asked of the API as it was typed."""
    api.answers["search"] = {"items": [result(node="gpu-017"), result("run", id="llm-70b", name="llm-70b", detail="")]}
    shown = find(app, " gpu ")
    assert failing(shown) == []
    assert ("gpu-017 · rack r3", "node?node=gpu-017") in links(shown)
    assert ("llm-70b", "run?run=llm-70b") in links(shown)
    assert any(entry[2].get("q") == "gpu" for entry in api.asked if entry[1] == "search")


def test_nothing_and_trouble_are_told(api: Any, app: AppTest) -> None:
    """The page below stays."""
    api.answers["search"] = {"items": []}
    assert "Nothing bears the name of a node" in seen(find(app, "of a node"))
    del api.answers["search"]
    shown = find(app, "other")
    assert failing(shown) == []
    assert shown.error


def test_a_name_is_text(api: Any, app: AppTest) -> None:
    """No link, picture or tag of its own."""
    evil = "[x](javascript:alert(1)) <img src=x> :red[y]"
    api.answers["search"] = {"items": [result(name=evil, detail=evil, node="n")]}
    shown = find(app, evil)
    assert failing(shown) == []
    (label,) = [label for label, _ in links(shown) if "javascript" in label]
    assert "\\[x\\]" in label
    assert "\\<img" in label


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (result("incident"), ("incidents", {"incident": "i1"})),
        (result("verdict"), ("verdicts", {"verdict": "i1"})),
        (result("hint"), ("hints", {"hint_text": "i1"})),
        (result("device", "gpu-017"), ("node", {"node": "gpu-017"})),
        (result("device"), None),
        (result("of a newer server"), None),
    ],
)
def test_each_kind_has_its_page(found: dict[str, Any], expected: tuple[str, dict[str, str]] | None) -> None:
    """What no page shows is told without a link."""
    assert place_of(SearchResultJson(**found)) == expected


def test_the_box_is_empty_on_the_next_page(api: Any, app: AppTest) -> None:
    """What was looked for has been found; typing on the same page keeps it."""
    api.answers["search"] = {"items": [result(node="gpu-017")]}
    shown = find(app, "gpu")
    assert shown.run().text_input(key="find").value == "gpu"
    shown.query_params["node"] = "gpu-017"
    shown = shown.run()
    assert shown.text_input(key="find").value == ""
    assert "rack r3" not in str(links(shown))
