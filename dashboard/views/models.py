"""The Models page: which model says what the risk is, whether it still holds, what is on trial; how good checks are."""

import math
from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.charts import charts
from dashboard.panels import frames
from dashboard.panels import page as panels
from dashboard.panels.page import Site
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.models import CheckRecordJson, ChecksJson, ModelJson, ModelsJson

KINDS = {
    "gbt": "trees over all signs",
    "hazard": "what each sign adds",
    "blend": "trees, and what each sign adds",
    "history": "outage history alone",
    "rules": "rules alone",
    "prior": "what other clusters taught",
}
TRIED = {
    "trees": "trees",
    "hazard": "what each sign adds",
    "blend": "the mean of both",
    "prior": "what other clusters taught, alone",
    "history_count": "outage history",
    "rules": "rules",
}
ROLES = {
    "champion": "serves",
    "challenger": "on trial",
    "retired": "served before",
    "rejected": "not shown to be better",
}
TRAININGS = {
    "started": "began",
    "trained": "was done",
    "failed": "failed",
    "put off": "was put off",
}


def page(site: Site) -> None:
    """The whole page; everything on it moves."""
    _live(site)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site) -> None:
    with panels.troubles():
        cluster, models = site.client.cluster(), site.client.models()
        panels.answer(cluster, *headline(models))
        panels.as_of(cluster)
        _training(models, cluster)
        if models.items:
            _models(models, cluster)
        _checks(site.client.checks(), cluster)


def _models(models: ModelsJson, cluster: ClusterJson) -> None:
    serving = [model for model in models.items if model.role == "champion"]
    for model in serving:
        _serving(model, cluster)
    rest = [model for model in models.items if model.role != "champion"]
    st.subheader("On trial, and before", anchor=False, help="a challenger's scores are stored and not shown")
    if rest:
        frames.show([_row(model, cluster) for model in rest], "models", {"why": "Why"})
    else:
        panels.empty("Nothing yet: once a week the server trains a challenger, where there is enough news.")


def _checks(checks: ChecksJson, cluster: ClusterJson) -> None:
    """How good each check is at this site."""
    st.subheader("Checks, by what came of them here", anchor=False, help="what each said of nodes within a year")
    if not checks.items:
        panels.empty("No check has a record yet: it is made of what checks say and what comes within seven days.")
        return
    light = [one for one in checks.items if one.weight < 1.0]
    if light:
        names = ", ".join(words.plain(f"{one.source}: {one.name}") for one in light[:3])
        more = f" and {len(light) - 3} more" if len(light) > 3 else ""
        st.caption(f"Less than a full weight where two detectors confirm a hold: {names}{more}.")
    frames.show([check_row(one, cluster) for one in checks.items], "checks")


def check_row(one: CheckRecordJson, cluster: ClusterJson) -> frames.Row:
    """One check's record; its share only once something came of what it said."""
    judged = one.followed + one.cleared + one.contradicted
    precision, low, high = (words.share(value, 0) for value in (one.precision, one.low, one.high))
    share = f"{precision} ({low} to {high})" if judged else "not known yet"
    return {
        "check": f"{one.source}: {one.name}",
        "nodes": one.nodes,
        "said": one.said,
        "followed": one.followed,
        "cleared": one.cleared,
        "contradicted": one.contradicted,
        "unknown": one.unknown,
        "too_early": one.waiting,
        "right_of_nodes": share,
        "weight": f"{one.weight:.2f}",
        "last": words.when(one.last, cluster.now),
    }


def headline(models: ModelsJson) -> tuple[str, str]:
    """Whether what the pages say of risk can be relied on."""
    serving = [model for model in models.items if model.role == "champion"]
    if not serving:
        return "info", "No model yet: `foreshock train --db URL` fits one from the outages known so far."
    trouble = [f"{words.plain(model.id)}: {text}" for model in serving for text in troubles(model)]
    if models.training is not None and models.training.outcome == "failed":
        trouble.append("the last training failed")
    if trouble:
        return "warning", f"{'; '.join(trouble)}."
    tested = any(_state(model, name) == "ok" for model in serving for name in ("drift", "calibration"))
    return "success", "The models hold." if tested else "The models serve; nothing has been judged yet."


def troubles(model: ModelJson) -> list[str]:
    """What was found against a model that serves, in words; Markdown."""
    said = []
    drift = _part(model, "drift")
    if _state(model, "drift") == "drifted":
        named = {
            "vanished": drift.get("vanished"),
            "new": drift.get("appeared"),
            "shifted": [item.get("feature") for item in drift.get("features") or [] if isinstance(item, dict)],
        }
        parts = [f"{word}: {words.plain(', '.join(map(str, names[:3])))}" for word, names in named.items() if names]
        said.append(f"the nodes no longer look as in its training ({'; '.join(parts) or 'no feature named'})")
    if _state(model, "calibration") == "drifted":
        come = _part(model, "calibration")
        said.append(f"it expected {come.get('expected')} outage rows, {come.get('observed')} came")
    return said


def _part(model: ModelJson, name: str) -> Mapping[str, Any]:
    found = model.checks.get(name)
    return found if isinstance(found, dict) else {}


def _state(model: ModelJson, name: str) -> str:
    return words.plain(str(_part(model, name).get("state", "unknown")))


def _training(models: ModelsJson, cluster: ClusterJson) -> None:
    last = models.training
    if last is not None:
        why = f": {words.plain(last.why)}" if last.why else ""
        what = TRAININGS.get(last.outcome, words.plain(last.outcome))
        st.caption(f"The server's last training {what} {words.at(last.time, cluster.now)}{why}")


def _serving(model: ModelJson, cluster: ClusterJson) -> None:
    by = words.plain(KINDS.get(model.kind, model.kind))
    st.subheader(f"Risk within {_horizon(model)}, by {by}", anchor=False, help="what it was chosen for, below")
    holdout = model.metrics.get("holdout")
    figures = holdout if isinstance(holdout, dict) else {}
    row = st.columns(3)
    shown = (
        ("Learned until", words.ago(model.trained_until, cluster.now), words.utc(model.trained_until)),
        ("ROC AUC, held out", _figure(figures.get("roc_auc")), "0.5 is chance; 0.83 is the best published"),
        ("Drift", _state(model, "drift"), "whether the nodes look as in its training"),
    )
    for column, (label, value, meaning) in zip(row, shown, strict=True):
        column.metric(label, value, help=meaning, border=True, height="stretch")
    rows = model.data.get("rows")
    learned = f"learned from {words.many(rows, 'row')}; " if isinstance(rows, int) else ""
    st.caption(f"{words.plain(model.id)}: {learned}{words.plain(model.why)}")
    figure = charts.reliability(reliability_parts(model))
    if figure is not None:
        st.caption(
            "What it said of nodes in the last four weeks, and what share of those failed: on the line it is right. "
            "Whiskers are intervals of 95 % by node."
        )
        st.plotly_chart(figure, key=f"reliability-{model.horizon_h}", config=charts.CONFIG)
    tried = tried_rows(model)
    if tried:
        st.caption("Tried on the newest folds, on the same rows; gains on the trees are intervals of 95 % by node:")
        frames.show(tried, f"tried-{model.horizon_h}")


def reliability_parts(model: ModelJson) -> list[charts.ReliabilityPart]:
    """Parts of what the model said, the lowest first; what is none is passed over."""
    parts = model.checks.get("reliability")
    found = []
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, dict):
            said, came, rows = _number(part.get("score")), _number(part.get("observed")), _number(part.get("rows"))
            interval = part.get("interval")
            ends = [_number(end) for end in interval] if isinstance(interval, list) and len(interval) == 2 else []
            if said is not None and came is not None:
                low, high = (came if end is None else end for end in (ends or [came, came]))
                found.append(charts.ReliabilityPart(said, came, low, high, int(rows or 0)))
    return found


def _number(value: Any) -> float | None:
    """A share or a count; None of anything else."""
    return value if isinstance(value, int | float) and 0 <= value < 1e15 else None


def tried_rows(model: ModelJson) -> list[frames.Row]:
    """What each that might serve reached on the last folds, the least log loss first, then the baselines."""
    folds = model.metrics.get("last_folds")
    found = folds if isinstance(folds, dict) else {}
    figures = [(name, one) for name, one in found.items() if isinstance(name, str) and isinstance(one, dict)]
    rows = []
    for name, one in sorted(figures, key=lambda item: _loss(item[1])):
        over = one.get("over_trees")
        gains = over if isinstance(over, dict) else {}
        rows.append(
            {
                "tried": words.plain(TRIED.get(name, name)),
                "average_precision": _figure(one.get("average_precision"), 3),
                "gain_in_it": _interval(gains.get("average_precision")),
                "in_the_top_5_%": _figure(one.get("recall")),
                "log_loss": _figure(one.get("log_loss"), 4),
                "gain_in_log_loss": _interval(gains.get("log_loss"), 4),
            }
        )
    return rows


def _loss(figures: Mapping[str, Any]) -> float:
    loss = figures.get("log_loss")
    return loss if isinstance(loss, float) else math.inf


def _interval(ends: object, digits: int = 3) -> str:
    if not isinstance(ends, list) or len(ends) != 2:
        return words.DASH
    # With the sign of arithmetic: a cell that begins with a hyphen is taken for a formula, and marked.
    return " to ".join(_figure(end, digits) for end in ends).replace("-", "\N{MINUS SIGN}")


def _figure(value: object, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else words.DASH


def _horizon(model: ModelJson) -> str:
    return {24: "24 h", 168: "7 days"}.get(model.horizon_h, f"{model.horizon_h} h")


def _row(model: ModelJson, cluster: ClusterJson) -> frames.Row:
    return {
        "model": model.id,
        "horizon": _horizon(model),
        "role": ROLES.get(model.role, model.role),
        "since": words.when(model.since, cluster.now),
        "why": model.why,
    }
