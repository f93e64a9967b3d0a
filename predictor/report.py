"""The backtest as one plain page: the figures, the baselines beside them, the folds, the calibration. No scripts."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.25rem .8rem;border-bottom:1px solid #ddd;"
    "text-align:right}td:first-child,th:first-child{text-align:left}h2{margin-top:2rem}.bar{background:#4a7ebb;"
    "height:.7rem;display:inline-block;vertical-align:middle}p{color:#555}"
)
_BAR_PX = 260


def to_html(report: Mapping[str, Any]) -> str:
    """A self-contained HTML page of a backtest's report."""
    sections = [
        _headline(report),
        "<h2>Ranking, and what needs no learning</h2>"
        "<p>Share of outages among the nodes that rank highest at each moment.</p>",
        _ranking(report),
        f"<h2>Calibration</h2><p>Rows in ten parts by score: what was said, what came.</p>{_calibration(report)}",
        f"<h2>Folds</h2><p>Learned up to the first, judged between the others.</p>{_folds(report)}",
    ]
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Foreshock backtest</title>'
        f"<style>{_STYLE}</style></head>\n<body>{body}</body></html>\n"
    )


def figure(value: Any) -> str:
    """A figure for people; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = "\n".join("<tr>" + "".join(f"<td>{figure(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>\n{lines}</table>"


def _headline(report: Mapping[str, Any]) -> str:
    lead = report["lead_time_h"]
    rows = [
        ("nodes", report["nodes"]),
        ("rows (node and moment)", report["rows"]),
        ("rows followed by an unplanned outage", report["positives"]),
        ("distinct outages", report["outages"]),
        ("prevalence", report["prevalence"]),
        ("ROC AUC", report["roc_auc"]),
        ("average precision", report["average_precision"]),
        ("lift over chance", report["lift"]),
        ("false cordons per 1000 node-days (top 1 %)", report["false_cordons_per_1000_node_days"]),
        ("lead time, hours (p10 / p50 / p90)", " / ".join(figure(lead[p]) for p in ("p10", "p50", "p90"))),
    ]
    title = f"<h1>Backtest: unplanned outages within {report['horizon_h']} h</h1>"
    note = f"<p>Split by time; {report['purge_h']} h between the last moment learned from and the first one judged.</p>"
    return title + note + table(("figure", "value"), rows)


def _ranking(report: Mapping[str, Any]) -> str:
    rankings = {"model": report, **report["baselines"]}
    tops = list(report["recall_at_top"])
    header = ["ranking", "ROC AUC", "average precision", *(f"recall, top {float(top):.0%}" for top in tops)]
    header += [f"precision, top {float(top):.0%}" for top in tops]
    rows = [
        [
            name.replace("_", " "),
            judged["roc_auc"],
            judged["average_precision"],
            *(judged["recall_at_top"][top] for top in tops),
            *(judged["precision_at_top"][top] for top in tops),
        ]
        for name, judged in rankings.items()
    ]
    return table(header, rows)


def _calibration(report: Mapping[str, Any]) -> str:
    bins = report["calibration"]
    largest = max([value for part in bins for value in (part["score"], part["observed"])], default=0.0) or 1.0

    def bar(value: float) -> str:
        return f'<span class="bar" style="width:{value / largest * _BAR_PX:.0f}px"></span> {value:.4g}'

    lines = "\n".join(
        f'<tr><td>{part["rows"]}</td><td style="text-align:left">{bar(part["score"])}</td>'
        f'<td style="text-align:left">{bar(part["observed"])}</td></tr>'
        for part in bins
    )
    return f"<table><tr><th>rows</th><th>said</th><th>came</th></tr>\n{lines}</table>"


def _folds(report: Mapping[str, Any]) -> str:
    rows = [(fold["train_end"], fold["test_start"], fold["test_end"]) for fold in report["folds"]]
    return table(("learned until", "judged from", "judged until"), rows)
