"""The screen when things are not as they should be: on every page, one sentence that says so, and nothing green.

Empty clusters stand in `test_pages.py`, one node and 12,500 in `test_cluster_view.py`, hostile text in
`test_hostile_text.py`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from drawn_page import Opened, draw_page, failing, seen
from real.patience import patience
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.app import PAGES
from dashboard.panels.page import Site

APP = Path(dashboard.__file__).parent / "app.py"
SINCE = "2025-03-27T06:26:00Z"


@pytest.mark.parametrize("page", PAGES)
def test_old_data_is_called_old_and_nothing_well(drawn: Opened, api: Any, page: str) -> None:
    """Whatever was well when it was last heard of."""
    counts = {"ok": 0, "silent": 3, "faulty": 0, "at_risk": 0, "out": 0, "cordoned": 0}
    api.answers["cluster"] = api.answers["cluster"] | {"stale": True, "heard_until": SINCE, "states": counts}
    silent = {"state": "silent", "score_24h": None, "reasons": [], "last_seen": SINCE}
    api.answers["nodes"] = {"items": [one | silent for one in api.answers["nodes"]["items"]]}
    api.answers["nodes/gpu-017"] = api.answers["nodes/gpu-017"] | silent
    shown = drawn(page, node="gpu-017")
    assert failing(shown) == []
    assert "2025-03-27 06:26" in seen(shown)
    assert not shown.success
    first = next(one for one in shown.main if one.type in ("error", "warning", "info", "success"))
    assert "2025-03-27 06:26" in first.value, "said first, above what it makes old"


def test_of_nodes_that_nobody_hears_of_no_zero_is_shown(drawn: Opened, api: Any) -> None:
    """None is known to be faulty, and none not to be; what the scheduler took out it still says."""
    counts = {"ok": 0, "silent": 2, "faulty": 0, "at_risk": 0, "out": 1, "cordoned": 0}
    old = {"stale": True, "heard_until": SINCE, "states": counts, "incidents_24h": 0}
    api.answers["cluster"] = api.answers["cluster"] | old
    shown = {one.label.partition(",")[0]: one for one in drawn("cluster").metric}
    assert [shown[name].value for name in ("Faulty", "At risk", "Incidents")] == ["–", "–", "–"]
    assert (shown["Not known"].value, shown["Out or cordoned"].value) == ("2", "1")
    assert not shown["Goodput"].delta
    api.answers["cluster"] |= {"states": counts | {"silent": 0, "faulty": 3}}
    shown = {one.label.partition(",")[0]: one.value for one in drawn("cluster").metric}
    assert (shown["Not known"], shown["Faulty"]) == ("0", "3")


@pytest.mark.parametrize("page", PAGES)
def test_a_refused_token_is_one_sentence(drawn: Opened, api: Any, page: str) -> None:
    """Nothing of the cluster, and the remedy."""
    api.answers = {path: (401, {"detail": "no token"}) for path in api.answers}
    shown = drawn(page)
    assert failing(shown) == []
    said = [one.value.replace("\\", "") for one in shown.error]
    assert len(said) == 1
    assert said[0].endswith("wants a token: start the dashboard with --token-file FILE (no token).")
    assert not shown.metric and not shown.dataframe


@pytest.mark.parametrize("page", PAGES)
def test_an_api_that_is_gone_is_one_sentence(connect: Any, page: str) -> None:
    """Nobody listens there any more."""
    shown = draw_page(Site(connect("http://127.0.0.1:9")), page)
    assert failing(shown) == []
    (error,) = shown.error
    assert "Nothing answers at http" in error.value and "foreshock serve" in error.value
    assert "that is not the same as well" in seen(shown)


def test_each_cluster_is_asked_with_its_own_token(api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session stays with the cluster that its address named: for another one the browser is sent elsewhere."""
    given = []
    for name in ("west", "east"):
        (tmp_path / name).write_text(f"of-{name}\n")
        told = {"name": name, "server": api.url, "token_file": str(tmp_path / name)}
        given.append(f"--cluster={json.dumps(told)}")
    monkeypatch.setattr("sys.argv", ["app.py", *given])
    for named, own in ((None, "west"), ("east", "east")):
        api.asked.clear()
        app = opened_at(named)
        assert not app.exception and app.query_params["cluster"] == own
        assert {entry[3] for entry in api.asked} == {f"Bearer of-{own}"}
    api.asked.clear()
    app.selectbox(key="cluster_choice").select("west").run()
    app.query_params["cluster"] = "west"
    assert not app.run().metric
    assert "No cluster is called north" in seen(opened_at("north"))
    assert api.asked == []


def opened_at(cluster: str | None) -> AppTest:
    """The first page, with a cluster in its address."""
    app = AppTest.from_file(str(APP), default_timeout=patience(30))
    if cluster is not None:
        app.query_params["cluster"] = cluster
    return app.run()
