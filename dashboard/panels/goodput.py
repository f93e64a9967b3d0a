"""The whole cluster on the goodput page: what became of the last days' GPU-hours, and what took them."""

from dataclasses import replace
from datetime import datetime

import streamlit as st

from dashboard.charts import cluster_charts
from dashboard.charts.charts import CONFIG
from dashboard.client import ApiProblem
from dashboard.panels import frames, page
from dashboard.panels.page import Site
from dashboard.text import words
from wire.goodput import CausesJson, ClusterGoodputJson
from wire.money.price import GpuHourPrice, aside, shown

DAYS = 7
SELDOM_S = 60.0  # what becomes of whole days is asked for so often
# The groupings of losses, in the words of the page.
BY = {
    "cause": "Cause",
    "code": "What was seen",
    "node": "Node",
    "device": "Device",
    "leaf": "Leaf switch",
    "driver": "Driver",
    "run": "Training run",
}


@st.fragment
def cluster_section(site: Site, price: GpuHourPrice | None = None) -> None:
    """The cluster's levels, then the losses by cause. An older server has neither."""
    st.subheader(f"The whole cluster, the last {DAYS} days", anchor=False)
    try:
        answer = site.client.cluster_goodput()
        page.printout(replace(site, caller=site.client.whoami()), "print/week", "week")
        _levels(answer, price)
    except ApiProblem as trouble:
        st.caption(f"Not known. {words.plain(str(trouble))}")
        return
    _days(site, answer)
    st.subheader(
        "Losses of all runs by cause",
        anchor=False,
        help="lost work, detection, waiting, startup and loading; the parts sum to all that was lost",
    )
    by = st.segmented_control("Group by", list(BY), default="cause", format_func=lambda key: BY[key], key="by")
    try:
        _losses(site.client.causes(by or "cause", answer.since), by or "cause")
    except ApiProblem as trouble:
        st.caption(f"Not known. {words.plain(str(trouble))}")


def headline(answer: ClusterGoodputJson, price: GpuHourPrice | None = None) -> str:
    """One sentence: how much counted, and which step down is the largest."""
    share, of = answer.productive_of_existing, "existed"
    if share is None:
        share, of = answer.runtime_goodput, "were held by jobs"
    if share is None:
        return "No run held a GPU in this time."
    steps = [(name, -value) for name, kind, value in cluster_charts.steps(answer) if kind == "relative" and value < 0]
    said = f"{words.share(share)} of the GPU-hours that {of} became training that counts."
    if not steps:
        return said
    name, hours = max(steps, key=lambda step: step[1])
    cost = "" if price is None else aside(price.of(hours))
    return f"{said} The largest loss: {words.plain(name.lower())}, {hours:,.0f} GPU-hours{cost}."


def _levels(answer: ClusterGoodputJson, price: GpuHourPrice | None) -> None:
    st.markdown(headline(answer, price))
    row = st.columns(4)
    ettr = answer.ettr
    figures = (
        ("Scheduling goodput", words.share(answer.scheduling_goodput), "GPU-hours held by jobs, of those that existed"),
        ("Runtime goodput", words.share(answer.runtime_goodput), "GPU-hours that count, of those that jobs held"),
        ("Program goodput (MFU)", words.share(answer.program_goodput), "needs the model's shape, of logs or `shapes`"),
        (
            "ETTR",
            words.DASH if ettr is None else words.share(ettr.least),
            "Meta's effective training time ratio, at the least: saves, evaluations and slow steps count as training"
            + ("" if ettr is None else f"; at the most {words.share(ettr.most)}"),
        ),
    )
    for place, (name, value, help_) in zip(row, figures, strict=True):
        place.metric(name, value, help=help_, border=True, height="stretch")
    for doubt in answer.doubts:
        st.caption(words.plain(doubt))
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.plotly_chart(cluster_charts.waterfall(answer), key="waterfall", config=CONFIG)
    with right:
        st.plotly_chart(cluster_charts.by_day(answer.days), key="cluster_days", config=CONFIG)


def _days(site: Site, answer: ClusterGoodputJson) -> None:
    """What the stops of each of the days cost, by cause."""
    st.subheader("Losses by day and cause", anchor=False, help="a stop counts to the day on which it came")
    days = tuple((day.since, day.until) for day in answer.days[-DAYS:])

    def read() -> list[tuple[datetime, CausesJson]]:
        return [(since, site.client.causes("cause", since, until)) for since, until in days]

    try:
        figure = cluster_charts.by_cause_and_day(page.kept("losses_of_days", days, SELDOM_S, read))
    except ApiProblem as trouble:
        st.caption(f"Not known. {words.plain(str(trouble))}")
        return
    if figure is None:
        page.empty("No run was interrupted in this time.")
    else:
        st.plotly_chart(figure, key="losses_by_day", config=CONFIG)


def _losses(answer: CausesJson, by: str) -> None:
    if not answer.items:
        page.empty("No run was interrupted in this time.")
        return
    in_gpus = answer.total.lost_gpu_hours is not None
    st.plotly_chart(cluster_charts.losses(answer.items, in_gpus), key=f"losses_by_{by}", config=CONFIG)
    whole = answer.total.lost_gpu_hours if in_gpus else answer.total.lost_s
    rows = [
        {
            "by": cluster_charts.name_of(item),
            "gpu_hours": None if item.lost_gpu_hours is None else round(item.lost_gpu_hours, 1),
            **({"money": shown(item.lost_money)} if answer.total.lost_money else {}),
            "share": words.share(((item.lost_gpu_hours or 0.0) if in_gpus else item.lost_s) / whole if whole else None),
            "lost": words.duration(item.lost_s),
            "stops": item.interruptions,
            "runs": item.runs,
        }
        for item in answer.items
    ]
    frames.show(rows, f"table_by_{by}", {"by": BY[by], "gpu_hours": "GPU-hours"}, most=8)
    if answer.next_cursor:
        st.caption(f"The {len(rows)} costliest.")
