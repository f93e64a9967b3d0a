"""The dashboards for Grafana are what their description makes, and ask for metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import grafana
import pytest

ROOT = Path(__file__).parents[1]
DOCS = "".join((ROOT / "docs" / name).read_text() for name in ("api.md", "goodput-cluster.md", "sidecar.md"))
PAGES = {name: json.loads(text) for name, text in grafana.written().items()}


def test_the_files_are_what_the_description_makes() -> None:
    """After a change `make grafana` writes them anew."""
    assert {path.name: path.read_text() for path in grafana.FOLDER.iterdir()} == grafana.written()


def panels() -> list[Any]:
    """Every panel, named by its title."""
    return [pytest.param(page, one, id=one["title"]) for page in PAGES.values() for one in page["panels"]]


@pytest.mark.parametrize(("page", "panel"), panels())
def test_a_panel_asks_for_what_the_docs_tell_of(page: dict[str, Any], panel: dict[str, Any]) -> None:
    """Of variables that its page has; each query has a letter and a legend, and a link leads to a page of ours."""
    variables = {one["name"] for one in page["templating"]["list"]} | {"__data", "__series"}
    text = json.dumps(panel)
    assert set(re.findall(r"\$\{?(\w+)", text)) <= variables
    assert [one["refId"] for one in panel["targets"]] == [chr(65 + at) for at in range(len(panel["targets"]))]
    for target in panel["targets"]:
        names = re.findall(r"foreshock_\w+", target["expr"])
        assert names
        for name in names:
            plain = name.removesuffix("_bucket")
            assert plain in DOCS or f"`{plain.removeprefix('foreshock_sidecar_')}" in DOCS, name
        assert target["legendFormat"]
        assert target["datasource"] == {"type": "prometheus", "uid": "${source}"}
    for link in panel["fieldConfig"]["defaults"]["links"]:
        assert re.match(r"\$\{foreshock\}/(verdicts|hints|node|collection|goodput)\b", link["url"])


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_is_one_that_grafana_takes(page: dict[str, Any]) -> None:
    """What its import needs: uid, title, schema; ids are unique, and no panel lies over another or beyond the edge."""
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", page["uid"])
    assert page["schemaVersion"] >= 39
    assert "id" not in page  # of one Grafana: another would take it for an update of something else
    assert len({one["id"] for one in page["panels"]}) == len(page["panels"])
    taken: set[tuple[int, int]] = set()
    for one in page["panels"]:
        place = one["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, one["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
