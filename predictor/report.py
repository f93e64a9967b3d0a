"""The backtest as one page: figures, plots, and what each means to an operator. No scripts, nothing from elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from predictor import plot, report_plots
from predictor.report_plots import percent, thousands

_STYLE = (
    ":root{--ink:#1f2428;--dim:#59636e;--line:#e3e6ea;--paper:#fff;--c0:#d6403b;--c1:#2f6fb5;--c2:#c98500;--c3:#2e8b57;"
    "--c4:#9aa4af;--mark:#fff4e0}@media(prefers-color-scheme:dark){:root{--ink:#e3e6ea;--dim:#9aa4af;--line:#333a42;"
    "--paper:#15191d;--c0:#ff6b64;--c1:#6aa9f0;--c2:#e8b04b;--c3:#63c08d;--c4:#6b7580;--mark:#3a2f1a}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:var(--ink);"
    "background:var(--paper)}h1{font-size:1.6rem;margin-bottom:.2rem}h2{margin:2.2rem 0 .2rem;font-size:1.15rem}"
    "p{color:var(--dim);margin:.2rem 0 .8rem;max-width:60rem}p.verdict{color:var(--ink);font-size:1.05rem}"
    "p.doubt{background:var(--mark);color:var(--ink);padding:.6rem .9rem;border-left:4px solid var(--c2)}"
    "table{border-collapse:collapse;margin:.5rem 0 1rem;font-variant-numeric:tabular-nums;display:block;"
    "overflow-x:auto}"
    "td,th{padding:.25rem .8rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}"
    "th{color:var(--dim);font-weight:600}td:first-child,th:first-child{text-align:left}small{color:var(--dim);white-space:nowrap}"
    ".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:0 2rem}"
    "p.legend{font-size:12px;display:flex;gap:1.2rem;flex-wrap:wrap}.key{display:inline-block;width:22px;height:8px;"
    "margin-right:.4rem}.none{stroke:none;fill:none}"
)


def to_html(report: Mapping[str, Any], lines: Mapping[str, Any] | None = None) -> str:
    """A self-contained HTML page of a backtest's report.

    Args:
        lines: what `curves.curves` gave; without it, or without failures, their plots are left out.
    """
    drawn = lines if lines and lines["rankings"] else None
    sections = [
        _headline(report),
        _ranking(report, drawn),
        _curves(report, drawn),
        _probabilities(report, drawn),
        _truth(report),
        _cost(report),
        _what_if(report),
        _folds(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Foreshock backtest</title>'
        f"<style>{_STYLE}{plot.STYLE}</style></head>\n<body>{''.join(sections)}</body></html>\n"
    )


def figure(value: Any) -> str:
    """A figure for people; a dash where there is none."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return escape(str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = "\n".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>\n{lines}</table>\n"


def _cell(value: Any) -> str:
    """A figure, or a figure and its interval as (value, [low, high])."""
    if not isinstance(value, tuple):
        return figure(value)
    middle, sure = value
    return figure(middle) if sure is None else f"{figure(middle)}<br><small>{sure[0]:.3g} to {sure[1]:.3g}</small>"


def _section(title: str, said: str, *parts: str) -> str:
    return f"<h2>{escape(title)}</h2><p>{escape(said)}</p>{''.join(parts)}\n"


def _headline(report: Mapping[str, Any]) -> str:
    sure = report["intervals"] or {}
    lead = report["lead_time_h"]
    rows = [
        ("nodes", report["nodes"]),
        ("rows (node and moment)", report["rows"]),
        ("rows followed by an unplanned outage", report["positives"]),
        ("distinct outages", report["outages"]),
        ("prevalence", report["prevalence"]),
        ("ROC AUC", (report["roc_auc"], sure.get("roc_auc"))),
        ("average precision", (report["average_precision"], sure.get("average_precision"))),
        ("lift over chance", (report["lift"], sure.get("lift"))),
        ("recall at 1 % false alarms", report["recall_at_false_alarms"]["0.01"]),
        ("false cordons per 1000 node-days (top 1 %)", report["false_cordons_per_1000_node_days"]),
        ("lead time, hours (p10 / p50 / p90)", " / ".join(figure(lead[p]) for p in ("p10", "p50", "p90"))),
    ]
    title = f"<h1>Backtest: unplanned outages within {report['horizon_h']} h</h1>"
    doubts = "".join(f'<p class="doubt">{escape(doubt)}</p>' for doubt in report["doubts"])
    note = (
        f"Judged as it would have been at the time: {report['purge_h']} h lie between the last moment learned from and "
        "the first one judged. Small figures below a value are its 95 % interval, drawn by node."
    )
    said = f'<p class="verdict">{escape(verdict(report))}</p>'
    return f"{title}{said}{doubts}<p>{note}</p>{table(('figure', 'value'), rows)}"


def verdict(report: Mapping[str, Any]) -> str:
    """One or two sentences: how many failures are found where, and whether the model earns its place."""
    top = report["recall_at_top"].get("0.05")
    if top is None:
        return "No outage came in the judged time: there is nothing to judge by."
    said = f"The riskiest 5 % of nodes hold {percent(top)} of the failures. "
    best = report["best_baseline"]
    if best is None:
        return said
    name = best["name"].replace("_", " ")
    gain = best["gain"]["average_precision"]
    sure = best["intervals"]["average_precision"]
    if sure is None:
        return f"{said}There are too few failures to say whether the model is better than counting ({name})."
    if sure[0] > 0:
        return f"{said}The model beats the best rule without learning ({name}) by {gain:.3g} of average precision."
    if sure[1] < 0:
        return f"{said}The rule without learning ({name}) is better than the model: use the rule."
    return f"{said}These data cannot tell the model from the best rule without learning ({name})."


def _ranking(report: Mapping[str, Any], lines: Mapping[str, Any] | None) -> str:
    tops = list(report["recall_at_top"])
    header = ["ranking", "ROC AUC", "average precision", *(f"recall, top {float(top):.0%}" for top in tops)]
    header += [f"precision, top {float(top):.0%}" for top in tops]
    rows = []
    for name, judged in {"model": report, **report["baselines"]}.items():
        sure = judged["intervals"] or {"recall_at_top": {}, "precision_at_top": {}}
        rows.append(
            [name.replace("_", " "), *((judged[key], sure.get(key)) for key in ("roc_auc", "average_precision"))]
            + [(judged[key][top], sure[key].get(top)) for key in ("recall_at_top", "precision_at_top") for top in tops]
        )
    return _section(
        "How many failures stand among the riskiest nodes",
        "If you watch this share of the nodes, this share of the failures happens under your eyes; what needs no "
        "learning (counting past outages, simple rules) is drawn beside the model.",
        report_plots.recall_at_top(report, lines) if lines else "",
        table(header, rows),
    )


def _curves(report: Mapping[str, Any], lines: Mapping[str, Any] | None) -> str:
    if lines is None:
        return ""
    first = _section(
        "Precision over recall",
        "To find this share of the failures by one threshold, so many of your alarms will be right.",
        report_plots.precision_recall(report, lines),
    )
    second = _section(
        "False alarms",
        "To find this share of the failures, so many of the healthy rows are alarmed as well; the diagonal is chance.",
        report_plots.roc(report, lines),
    )
    return f'<div class="pair"><div>{first}</div><div>{second}</div></div>'


def _probabilities(report: Mapping[str, Any], lines: Mapping[str, Any] | None) -> str:
    if lines is None:
        return ""
    first = _section(
        "Does 2 % mean two in a hundred?",
        "Dots on the dashed line: scores can be taken at their word. Beside each dot: failures / rows. "
        f"Brier skill {figure(report['brier_skill'])}, log loss skill {figure(report['log_loss_skill'])} "
        "(1 is perfect, 0 knows the prevalence only).",
        report_plots.reliability(report),
    )
    second = _section(
        "How early",
        "Hours from a node's first place in the top 5 % within the horizon to its failure; "
        f"half of those foreseen had {figure(report['lead_time_h']['p50'])} h or more.",
        report_plots.lead_times(report, lines),
    )
    return f'<div class="pair"><div>{first}</div><div>{second}</div></div>'


def _truth(report: Mapping[str, Any]) -> str:
    truth = report.get("truth")
    if not truth:
        return ""
    groups = {
        "predictable classes": truth["predictable"],
        "outages with a precursor": truth["with_precursor"],
        "those whose precursor had begun": truth["precursor_begun"],
        **truth["classes"],
    }
    rows = [
        (name, part["outages"], part.get("share_with_precursor"), part["recall_at_top"]["0.05"], part["foreseen"])
        for name, part in groups.items()
    ]
    oracle = truth["oracle"]
    best = (
        f" The oracle, who reads the hidden state, reaches average precision {figure(oracle['average_precision'])}; "
        f"the model has {figure(oracle['average_precision_ratio'])} of it "
        "(0.2 to 0.4 is honest work, above 0.6 look for leakage)."
        if oracle
        else ""
    )
    return _section(
        "What could be known",
        f"This cluster is simulated: its truth says which failures had a precursor at all.{best}",
        table(("failures", "outages", "had a precursor", "recall, top 5%", "foreseen at least once"), rows),
    )


def _cost(report: Mapping[str, Any]) -> str:
    cost = report.get("cost")
    if not cost or not cost["curve"]:
        return ""
    even = "-" if cost["break_even_precision"] is None else percent(cost["break_even_precision"])
    said = (
        f"A failure costs a job of {cost['job_gpus']} GPUs {thousands(cost['failure_gpu_h'])} GPU-hours, leaving a "
        f"node out costs {thousands(cost['action_gpu_h'])}: acting pays from a precision of {even} on, "
        f"if it averts {percent(cost['averted'])} of the failures acted on."
    )
    points = {"best in hindsight": cost["best"], "from the break-even score on": cost["at_break_even"]}
    keys = ("threshold", "actions", "failures_met", "precision", "saved_gpu_h", "spent_gpu_h", "net_gpu_h")
    rows = [(name, *(point[key] for key in keys)) if point else (name, "act on none") for name, point in points.items()]
    header = ("act", "from score", "actions", "failures met", "precision", "GPU-h saved", "GPU-h spent", "GPU-h left")
    return _section("What acting is worth", said, report_plots.cost(report), table(header, rows))


def _what_if(report: Mapping[str, Any]) -> str:
    replays = report.get("what_if")
    if not replays:
        return ""
    keys = ("failures_avoided", "share_avoided", "cordons", "cordons_per_day", "share_of_cordons_right",
            "node_hours_wasted", "refused_by_budget", "net_gpu_h")  # fmt: skip
    header = ("policy", "ranking", *(key.replace("_", " ") for key in keys))
    rows = [
        (one["policy"], name.replace("_", " "), *(found[key] for key in keys))
        for one in replays
        for name, found in one["rankings"].items()
    ]
    return _section(
        "What if",
        "The past replayed under a policy, assuming that a job does not run on a node while it is held: an outage that "
        "begins within a hold is avoided, holding what does not fail is wasted.",
        table(header, rows),
    )


def _folds(report: Mapping[str, Any]) -> str:
    if not report["folds"]:
        return ""
    rows = [
        [fold[key][:16].replace("T", " ") for key in ("train_end", "test_start", "test_end")]
        for fold in report["folds"]
    ]
    return _section(
        "Folds",
        "Each model learned from all before a gap and was judged on what came after it, as it would be in operation.",
        report_plots.folds(report),
        table(("learned until (UTC)", "judged from", "judged until"), rows),
    )
