"""The backtest as one page: figures, plots, and what each means to an operator. No scripts, nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics import precision_recall_curve, roc_curve

from predictor.history.arrays import Floats, to_ms
from predictor.history.what_failed import NOUNS
from predictor.model.skill import Judged, first_flags, flagged_share
from store.html_page import figure, page, section, table
from store.plural import many
from store.records.event import parse_time
from store.svg_plot import Axis, Plot, Point, legend
from store.visible_text import html_text

# The lines that a report draws: precision over recall, recall over false alarms, recall over the share flagged.

SHARES = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
_POINTS = 160

Points = list[tuple[float, float]]


def curves(judged: Judged, ranks: Mapping[str, Floats]) -> dict[str, Any]:
    """`rankings` by name (`model` first), each with `precision_recall`, `roc`, `recall_at_top`; `leads_h`.

    Args:
        judged: known rows alone.
        ranks: the scores of each baseline on the same rows.
    """
    everyone = {"model": judged, **{name: replace(judged, scores=rank) for name, rank in ranks.items()}}
    if not judged.labels.positive.any() or judged.labels.positive.all():
        return {"rankings": {}, "leads_h": []}
    return {
        "rankings": {name: _lines(one) for name, one in everyone.items()},
        "leads_h": [float(lead) for lead in first_flags(judged)],
    }


def _lines(judged: Judged) -> dict[str, Points]:
    positive = judged.labels.positive
    precision, recall, _ = precision_recall_curve(positive, judged.scores, drop_intermediate=True)
    # Without recall a precision says nothing, least of all the 1 that scikit-learn ends with.
    reported = np.flatnonzero(recall > 0)[::-1]
    false, right, _ = roc_curve(positive, judged.scores)
    total = float(positive.sum())
    top = [(share, float(flagged_share(judged, share)[positive].sum() / total)) for share in SHARES]
    return {
        "precision_recall": _thinned(recall[reported], precision[reported]),
        "roc": _thinned(false, right),
        "recall_at_top": top,
    }


def _thinned(across: Floats, up: Floats) -> Points:
    """At most so many points, evenly over the length of the line, its ends among them."""
    if len(across) <= _POINTS:
        return [(float(x), float(y)) for x, y in zip(across, up, strict=True)]
    length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(across), np.diff(up)))])
    wanted = np.linspace(0.0, length[-1], _POINTS)
    kept = np.unique(np.clip(np.searchsorted(length, wanted), 0, len(across) - 1))
    return [(float(across[i]), float(up[i])) for i in kept]


# The plots of a backtest's report: each takes the report (and the lines of `report.py`) and gives one SVG.

COLOURS = ("c0", "c1", "c2", "c5", "c6")
ORACLE = "c3"
_LEAD_BARS = 12


def percent(value: float) -> str:
    """A share as people write it."""
    return f"{100 * value:.3g} %"


def thousands(value: float) -> str:
    """A large number, short: 12k."""
    return f"{value / 1000:.3g}k" if abs(value) >= 1000 else f"{value:.3g}"


def _whole(value: float) -> str:
    """A count; nothing between two counts."""
    return f"{value:.0f}" if value == round(value) else ""


def ranking_colours(lines: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rankings and their colours, the model first."""
    return [(name.replace("_", " "), COLOURS[i % len(COLOURS)]) for i, name in enumerate(lines["rankings"])]


def precision_recall_plot(report: Mapping[str, Any], lines: Mapping[str, Any]) -> str:
    """Precision over recall; its axis is logarithmic, for failures are rare."""
    base = report["prevalence"]
    plot = Plot(Axis("share of failures found", 0, 1, write=percent), Axis("precision", base / 2, 1, True, percent))
    marks = [plot.line([(0, base), (1, base)], "c4 dash"), plot.note((0, base), "chance", "start", (4, 5))]
    marks += _each(plot, lines, "precision_recall")
    return plot.drawn("precision over recall", marks) + legend(ranking_colours(lines))


def roc_plot(_report: Mapping[str, Any], lines: Mapping[str, Any]) -> str:
    """Recall over false alarms."""
    plot = Plot(Axis("share of healthy rows alarmed", 0, 1, write=percent), Axis("failures found", 0, 1, write=percent))
    marks = [
        plot.line([(0, 0), (1, 1)], "c4 dash"),
        plot.note((0.62, 0.55), "chance", "start"),
        *_each(plot, lines, "roc"),
    ]
    return plot.drawn("ROC curve", marks) + legend(ranking_colours(lines))


def _each(plot: Plot, lines: Mapping[str, Any], which: str) -> list[str]:
    """The line of every ranking, the model last, so that it lies on top."""
    drawn = [
        plot.line(line[which], colour)
        for line, (_, colour) in zip(lines["rankings"].values(), ranking_colours(lines), strict=True)
    ]
    return drawn[::-1]


def recall_at_top_plot(report: Mapping[str, Any], lines: Mapping[str, Any]) -> str:
    """How many failures stand among the riskiest nodes, with intervals, the baselines and the oracle."""
    shares = [share for share, _ in lines["rankings"]["model"]["recall_at_top"]]
    plot = Plot(
        Axis("share of nodes flagged at each moment", shares[0], shares[-1], True, percent),
        Axis("failures among them", 0, 1, write=percent),
    )
    keys = ranking_colours(lines)
    marks = [plot.line([(share, share) for share in shares], "c4 dash"), *_each(plot, lines, "recall_at_top")]
    for i, ((name, colour), figures) in enumerate(zip(keys, [report, *report["baselines"].values()], strict=True)):
        sure = (figures["intervals"] or {}).get("recall_at_top", {})
        for top, value in figures["recall_at_top"].items():
            # Beside each other, or one whisker would hide the next.
            at = float(top) * 1.05 ** (i - len(report["baselines"]) / 2)
            marks.append(plot.whisker(at, sure.get(top), colour))
            marks.append(plot.dot((at, value), colour, f"{name}, top {percent(float(top))}: {percent(value)}"))
    keys += [("chance", "c4 dash")]
    oracle = (report.get("truth") or {}).get("oracle")
    if oracle:
        points: list[Point] = [(float(top), value) for top, value in oracle["recall_at_top"].items()]
        marks += [plot.line(points, ORACLE), *(plot.dot(p, ORACLE, f"oracle: {percent(p[1])}") for p in points)]
        keys += [("oracle (sees what no log tells)", ORACLE)]
    return plot.drawn("recall at the top", marks) + legend(keys)


def reliability_plot(report: Mapping[str, Any]) -> str:
    """What was said against what came, on logarithmic axes; the counts stand beside the dots."""
    parts = report["reliability"]
    reported = [part["score"] for part in parts] + [part["observed"] for part in parts if part["observed"]]
    low, high = max(min(reported, default=0.001), 1e-5) / 2, min(max(reported, default=0.1) * 2, 1.0)
    plot = Plot(Axis("said (mean score)", low, high, True, percent), Axis("came", low, high, True, percent))
    marks = [plot.line([(low, low), (high, high)], "c4 dash")]
    for part in parts:
        at = (part["score"], part["observed"])
        marks.append(plot.whisker(part["score"], part["interval"], "c0"))
        marks.append(plot.dot(at, "c0", f"{part['positives']} of {many(part['rows'], 'row')} failed"))
        marks.append(plot.note(at, f"{part['positives']}/{thousands(part['rows'])}", "start", (8, -4)))
    return plot.drawn("reliability", marks)


def lead_times_plot(report: Mapping[str, Any], lines: Mapping[str, Any]) -> str:
    """How many hours the foreseen failures were foreseen."""
    horizon = report["horizon_h"]
    width = horizon / _LEAD_BARS
    counts = [0] * _LEAD_BARS
    for lead in lines["leads_h"]:
        counts[min(int(lead / width), _LEAD_BARS - 1)] += 1
    plot = Plot(
        Axis("hours from the first flag to the failure", 0, horizon),
        Axis("failures", 0, max([*counts, 1]), write=_whole),
    )
    bars = [
        plot.box(
            (i * width, (i + 0.92) * width),
            (0, count),
            "c0",
            f"{many(count, 'failure')}, {i * width:g} h ahead and more",
        )
        for i, count in enumerate(counts)
    ]
    return plot.drawn("lead times", bars)


def cost_plot(report: Mapping[str, Any]) -> str:
    """GPU-hours saved, spent and left over the number of actions."""
    points = report["cost"]["curve"]
    shares = [point["actions"] / report["rows"] for point in points]
    kinds = (("net_gpu_h", "c0", "left"), ("saved_gpu_h", "c3", "saved"), ("spent_gpu_h", "c1", "spent"))
    # What acting on everybody costs would press the interesting part flat.
    most = max([point["saved_gpu_h"] for point in points] + [1.0]) * 1.1
    least = -most
    plot = Plot(
        Axis("share of node-moments acted on", min(shares), max(shares), True, percent),
        Axis("GPU-hours", least, most, write=thousands),
    )
    marks = [plot.line([(min(shares), 0), (max(shares), 0)], "c4 dash")]
    for key, colour, _ in kinds:
        within = [(s, p[key]) for s, p in zip(shares, points, strict=True) if least <= p[key] <= most]
        marks.append(plot.line(within, colour))
        marks += [plot.dot(at, colour, f"{thousands(at[1])} GPU-hours") for at in within]
    best = report["cost"]["best"]
    if best:
        marks.append(plot.note((best["actions"] / report["rows"], best["net_gpu_h"]), "best", shift=(0, 10)))
    return plot.drawn("cost", marks) + legend([(name, colour) for _, colour, name in kinds])


def folds_plot(report: Mapping[str, Any]) -> str:
    """When each model learned, and what it was judged on."""
    spans = [[to_ms(parse_time(fold[key])) / 86_400_000 for key in fold] for fold in report["folds"]]
    begin = min(test for _, test, _ in spans)
    first, last = min(end for end, _, _ in spans) - begin, max(end for _, _, end in spans) - begin
    first -= 0.15 * (last - first)
    plot = Plot(
        Axis("days since the first judged moment", first, last), Axis("fold", 0.4, len(spans) + 0.6, write=_whole)
    )
    marks = []
    for number, span in enumerate(spans, start=1):
        learned, start, end = (day - begin for day in span)
        rows: Sequence[tuple[Point, str, str]] = (
            ((first, learned), "c4", "learned from all before"),
            ((start, end), "c0", f"judged: {report['folds'][number - 1]['test_start']}"),
        )
        marks += [plot.box(across, (number - 0.35, number + 0.35), colour, title) for across, colour, title in rows]
    return plot.drawn("folds", marks) + legend([("learned", "c4"), ("purge (left out)", "none"), ("judged", "c0")])


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
        _lists(report),
        _leads(report),
        _truth(report),
        _cost(report),
        _what_if(report),
        _folds(report),
    ]
    return page("Foreshock backtest", sections)


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
    doubts = "".join(f'<p class="doubt">{html_text(doubt)}</p>' for doubt in report["doubts"])
    note = (
        f"Judged as it would have been at the time: {report['purge_h']} h lie between the last moment learned from and "
        "the first one judged. Small figures below a value are its 95 % interval, drawn by node."
    )
    said = f'<p class="verdict">{html_text(verdict(report))}</p>'
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
    if sure == [0.0, 0.0]:
        return f"{said}What served ranks as the best ranking that learns nothing here ({name})."
    if sure is None:
        return f"{said}There are too few failures to say whether the model is better than counting ({name})."
    if sure[0] > 0:
        said += f"The model beats the best ranking that learns nothing here ({name})"
        return f"{said} by {gain:.3g} of average precision."
    if sure[1] < 0:
        return f"{said}A ranking that learns nothing here ({name}) is better than the model: use that one."
    said += f"These data cannot tell the model from the best ranking that learns nothing here ({name})"
    return f"{said}: a gain of {best['seen_from']['average_precision']:.2g} would have been seen."


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
    return section(
        "How many failures stand among the riskiest nodes",
        "If you watch this share of the nodes, this share of the failures happens under your eyes; what needs no "
        "learning (counting past outages, simple rules) is drawn beside the model.",
        recall_at_top_plot(report, lines) if lines else "",
        table(header, rows),
    )


def _curves(report: Mapping[str, Any], lines: Mapping[str, Any] | None) -> str:
    if lines is None:
        return ""
    first = section(
        "Precision over recall",
        "To find this share of the failures by one threshold, so many of your alarms will be right.",
        precision_recall_plot(report, lines),
    )
    second = section(
        "False alarms",
        "To find this share of the failures, so many of the healthy rows are alarmed as well; the diagonal is chance.",
        roc_plot(report, lines),
    )
    return f'<div class="pair"><div>{first}</div><div>{second}</div></div>'


def _probabilities(report: Mapping[str, Any], lines: Mapping[str, Any] | None) -> str:
    if lines is None:
        return ""
    first = section(
        "Does 2 % mean two in a hundred?",
        "Dots on the dashed line: scores can be taken at their word. Beside each dot: failures / rows. "
        f"Brier skill {figure(report['brier_skill'])}, log loss skill {figure(report['log_loss_skill'])} "
        "(1 is perfect, 0 knows the prevalence only).",
        reliability_plot(report),
    )
    second = section(
        "How early",
        "Hours from a node's first place in the top 5 % within the horizon to its failure; "
        f"half of those foreseen had {figure(report['lead_time_h']['p50'])} h or more.",
        lead_times_plot(report, lines),
    )
    return f'<div class="pair"><div>{first}</div><div>{second}</div></div>'


def _lists(report: Mapping[str, Any]) -> str:
    rows = [
        (one["nodes"], one["lists"], one["hit"], (one["share"], (one["low"], one["high"])), one["said"], one["failing"])
        for one in report["lists"]
    ]
    if not rows:
        return ""
    return section(
        "Who checks so many nodes",
        f"The riskiest nodes of moments that lie {report['horizon_h']} h apart: how often at least one of them failed "
        "in that time, and how often the scores said so.",
        table(("nodes checked", "lists", "with a failure", "share", "said", "failing nodes, mean"), rows),
    )


def _leads(report: Mapping[str, Any]) -> str:
    classes = report.get("lead_time_h_by_class")
    if not classes:
        return ""
    ordered = sorted(classes.items(), key=lambda item: -item[1]["outages"])
    rows = [
        (NOUNS[name], one["outages"], one["foreseen"], *(one[p] for p in ("p10", "p50", "p90")))
        for name, one in ordered
    ]
    return section(
        "How early, by what failed",
        "The gravest fault that a node showed around the beginning of its outage; hours from its first place in the "
        "top 5 % within the horizon.",
        table(("what failed", "outages", "foreseen", "p10", "p50", "p90"), rows),
    )


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
    return section(
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
    return section("What acting is worth", said, cost_plot(report), table(header, rows))


def _what_if(report: Mapping[str, Any]) -> str:
    replays = report.get("what_if")
    if not replays:
        return ""
    keys = ("failures_avoided", "share_avoided", "cordons", "cordons_per_day", "share_of_cordons_right",
            "node_hours_wasted", "refused_by_budget", "net_gpu_h")  # fmt: skip
    header = (
        "policy",
        "ranking",
        "avoided",
        "of all",
        "cordons",
        "a day",
        "right",
        "wasted node-h",
        "refused",
        "GPU-h left",
    )
    rows = [
        (one["policy"].replace(",", ", "), name.replace("_", " "), *(found[key] for key in keys))
        for one in replays
        for name, found in one["rankings"].items()
    ]
    return section(
        "What if",
        "The past replayed under a policy, assuming that a job does not run on a node while it is held: an outage that "
        "begins within a hold is avoided, holding what does not fail is wasted; the budget refuses what is too much.",
        table(header, rows),
    )


def _folds(report: Mapping[str, Any]) -> str:
    if not report["folds"]:
        return ""
    rows = [
        [fold[key][:16].replace("T", " ") for key in ("train_end", "test_start", "test_end")]
        for fold in report["folds"]
    ]
    rows = [[*row, one["why"]] for row, one in zip(rows, report["served"], strict=True)]
    return section(
        "Folds",
        "Each model learned from all before a gap and was judged on what came after it, as it would be in operation.",
        folds_plot(report),
        table(("learned until (UTC)", "judged from", "judged until", "what served, and why"), rows),
    )
