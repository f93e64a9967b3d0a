"""The Models page: which model serves, whether it holds, and what is on trial."""

from datetime import UTC, datetime
from typing import Any

import pytest
from drawn_page import Opened, failing, seen

from dashboard.charts.charts import ReliabilityPart
from dashboard.views.models import headline, reliability_parts, tried_rows, troubles
from wire.models import LastTrainingJson, ModelJson, ModelsJson

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)
SHIFTED = {"state": "drifted", "features": [{"feature": "gpu_temp_max_c", "psi": 2.0}], "vanished": [], "appeared": []}


def model(role: str = "champion", **checks: Any) -> ModelJson:
    """A model with what was found of it."""
    return ModelJson(id="m1", horizon_h=24, role=role, checks=checks)


@pytest.mark.parametrize(
    ("models", "says"),
    [
        (ModelsJson(), ("info", "No model yet")),
        (ModelsJson(items=(model("challenger"),)), ("info", "No model yet")),
        (ModelsJson(items=(model(),)), ("success", "nothing has been judged yet")),
        (ModelsJson(items=(model(drift={"state": "ok"}),)), ("success", "The models hold.")),
        (ModelsJson(items=(model(drift=SHIFTED),)), ("warning", "shifted: gpu")),
        (
            ModelsJson(items=(model(drift={"state": "ok"}),), training=LastTrainingJson(time=NOW, outcome="failed")),
            ("warning", "the last training failed"),
        ),
        (ModelsJson(items=(model(), model("challenger", drift=SHIFTED))), ("success", "nothing has been judged")),
    ],
)
def test_the_headline_says_whether_the_risk_can_be_relied_on(models: ModelsJson, says: tuple[str, str]) -> None:
    """Only of what serves."""
    level, text = headline(models)
    assert level == says[0]
    assert says[1] in text


def test_each_drift_is_said_with_what_moved() -> None:
    """By name, three of a kind at most; nothing is made up where nothing is named."""
    gone = {"state": "drifted", "vanished": ["a", "b", "c", "d"], "appeared": ["new"]}
    (said,) = troubles(model(drift=gone))
    assert said.endswith("(vanished: a, b, c; new: new)")
    (said,) = troubles(model(calibration={"state": "drifted", "expected": 10.5, "observed": 44.0}))
    assert said == "it expected 10.5 outage rows, 44.0 came"
    (said,) = troubles(model(drift={"state": "drifted"}))
    assert "no feature named" in said
    assert troubles(model(drift="strange", calibration={"state": "unknown"})) == []


def test_what_was_tried_is_shown_with_its_gain_and_interval() -> None:
    """The least log loss first, baselines last; a card of any shape breaks no page."""
    folds = {
        "history_count": {"average_precision": 0.03, "recall": 0.3, "outages": 40},
        "trees": {"average_precision": 0.05, "recall": 0.4, "outages": 40, "log_loss": 0.0212},
        "blend": {"average_precision": 0.06, "recall": 0.42, "outages": 40, "log_loss": 0.0208}
        | {"over_trees": {"log_loss": [-0.0001, 0.0009], "average_precision": [0.001, 0.02]}},
    }
    one = ModelJson(id="m1", horizon_h=24, role="champion", metrics={"last_folds": folds})
    rows = tried_rows(one)
    assert [row["tried"] for row in rows] == ["the mean of both", "trees", "outage history"]
    assert (rows[0]["gain_in_it"], rows[0]["gain_in_log_loss"]) == ("0.001 to 0.020", "\N{MINUS SIGN}0.0001 to 0.0009")
    assert (rows[1]["gain_in_it"], rows[2]["log_loss"]) == ("\N{EN DASH}", "\N{EN DASH}")
    for strange in (None, [], {"trees": 3}, {"trees": {"log_loss": "x", "over_trees": 4, "recall": [1]}}):
        assert len(tried_rows(ModelJson(id="m", horizon_h=24, role="champion", metrics={"last_folds": strange}))) <= 1


def test_the_page_shows_what_serves_and_what_is_on_trial(drawn: Opened) -> None:
    """With the reason of each role, and how the last training went."""
    shown = drawn("models")
    assert failing(shown) == []
    text = seen(shown)
    assert "The models hold." in text
    assert "The server's last training was done" in text
    assert "gbt-24h-3f2a0c5a9b8e: learned from 12,345 rows; trees: they beat both baselines" in text
    tried, table, _checks = (frame.value for frame in shown.dataframe)
    assert list(tried["Tried"]) == ["the mean of both", "trees", "outage history"]
    assert list(table["Role"]) == ["on trial"]
    assert list(table["Why"]) == ["3 outages in 2 days"]


def test_a_cluster_without_a_model_is_told_how_to_get_one(drawn: Opened, api: Any) -> None:
    """And nothing else is on the page."""
    api.answers["models"] = {"items": [], "next_cursor": None, "training": None}
    api.answers["checks"] = {"items": []}
    shown = drawn("models")
    assert failing(shown) == []
    assert "foreshock train --db URL" in seen(shown)
    assert "No check has a record yet" in seen(shown)
    assert not shown.dataframe


def test_each_check_has_its_record(drawn: Opened, api: Any) -> None:
    """A share only where something came of what it said; which ones weigh less, above. Without a model, too."""
    api.answers["models"] = {"items": [], "next_cursor": None, "training": None}
    shown = drawn("models")
    assert failing(shown) == []
    (table,) = (frame.value for frame in shown.dataframe)
    assert list(table["Check"]) == ["kernel: xid 79", "dcgm: row_remap_failure", "nhc: check_hw_ib"]
    assert list(table["Right of nodes"]) == ["71 % (46 % to 90 %)", "2 % (0 % to 9 %)", "not known yet"]
    assert list(table["Weight"]) == ["1.00", "0.36", "1.00"]
    assert list(table["Too early"]) == [1, 1, 14]
    text = seen(shown).replace("\\", "")
    assert "Less than a full weight where two detectors confirm a hold: dcgm: row_remap_failure." in text


def test_a_control_node_says_so(drawn: Opened, api: Any) -> None:
    """On its own page."""
    assert "control group" not in seen(drawn("node"))
    api.answers["nodes/gpu-017"] = api.answers["nodes/gpu-017"] | {"control": True}
    assert "In the control group" in seen(drawn("node"))


def test_what_was_said_and_what_came_is_read_off_the_checks() -> None:
    """Parts of any other shape are passed over; without an interval its ends are what came."""
    parts = [
        {"score": 0.01, "observed": 0.02, "interval": [0.0, 0.05], "rows": 900, "positives": 18},
        {"score": 0.2, "observed": 0.3, "interval": None, "rows": 10},
        *({"score": "x"}, {"score": 0.1, "observed": None}, 7, None),
    ]
    found = reliability_parts(model(reliability=parts))
    assert found == [ReliabilityPart(0.01, 0.02, 0.0, 0.05, 900), ReliabilityPart(0.2, 0.3, 0.3, 0.3, 10)]
    assert reliability_parts(model(reliability="strange")) == reliability_parts(model()) == []
