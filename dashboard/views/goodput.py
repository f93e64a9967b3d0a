"""The Goodput page: how much of a run's time was useful work, what took the rest, and what to change."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from dashboard.charts import ledger_charts
from dashboard.charts.charts import CONFIG
from dashboard.client import ApiProblem
from dashboard.panels import frames, stops
from dashboard.panels import page as panels
from dashboard.panels.goodput import SELDOM_S, cluster_section
from dashboard.panels.page import Site
from dashboard.text import words
from dashboard.text.advice import checkpoint_lines, gain_rows, mtbf_rows, spares_lines
from wire.cluster import ClusterJson
from wire.goodput import LedgerJson
from wire.money.price import GpuHourPrice, price_of, shown


def page(site: Site) -> None:
    """The selector (kept in the address as ?run=), then the run's ledger."""
    with panels.troubles():
        chosen = panels.chosen_run(site)
        if chosen is not None:
            _live(site, chosen)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site, run: str) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        ledger = site.client.goodput(run)
        panels.answer(cluster, *headline(ledger, cluster.target))
        if (stopped := stops.sentence(ledger, cluster.now)) is not None:
            st.markdown(f":material/timelapse: {stopped}.")
        panels.as_of(cluster)
        if site.run_page is not None:
            panels.run_link(site, run, "Attempt by attempt, and what if")
        if ledger.wall_s > 0:
            _metrics(ledger, cluster)
            _buckets(ledger, price_of(cluster.gpu_hour_price))
            _losses(ledger, cluster)
            _advice(site, run)
        cluster_section(site, price_of(cluster.gpu_hour_price))


def _advice(site: Site, run: str) -> None:
    """Both pieces of advice, side by side; one that cannot be given says why."""
    left, right = st.columns(2, gap="medium")
    sides: tuple[tuple[Any, str, Callable[[], None]], ...] = (
        (left, "How often to save a checkpoint", lambda: _saving(site, run)),
        (right, "How many nodes to keep spare", lambda: _spares(site)),
    )
    for side, title, draw in sides:
        with side:
            st.subheader(title, anchor=False)
            try:
                draw()
            except ApiProblem as trouble:
                st.caption(f"No advice yet. {words.plain(str(trouble))}")
    _gains(site, run)


def _saving(site: Site, run: str) -> None:
    advice = site.client.checkpoint_advice(run)
    st.markdown("\n\n".join(checkpoint_lines(advice)))
    figure = ledger_charts.saving_curve(advice)
    if figure is not None:
        st.plotly_chart(figure, key="saving_curve", config=CONFIG)


def _spares(site: Site) -> None:
    st.markdown("\n\n".join(spares_lines(site.client.spares_advice())))
    told = panels.kept("mtbf", site.client.server, SELDOM_S, site.client.mtbf)
    for rates, of in ((told.cluster, "outages of all nodes"), (told.runs, "stops of all runs")):
        if rates is not None and rates.components:
            st.markdown(
                f"**Time between {of}** on {words.many(rates.nodes, 'node')}, by component "
                f"(in {words.count(rates.node_days)} node-days):"
            )
            labels = {"every": "One every", "interval": "95 % interval"}
            frames.show(mtbf_rows(rates), f"mtbf_{of[:4].strip()}", labels, most=8)


def _gains(site: Site, run: str) -> None:
    """What each change would gain, the largest first."""
    st.subheader(
        "What each change would gain",
        anchor=False,
        help="each change alone, in points of goodput with its 95 % interval; together they gain less than their sum",
    )
    try:
        rows = gain_rows(site.client.gains_advice(run))
    except ApiProblem as trouble:
        st.caption(f"No advice yet. {words.plain(str(trouble))}")
        return
    if not rows:
        panels.empty("No single change would gain a tenth of a point.")
        return
    labels = {"change": "Change", "gain": "Points of goodput", "interval": "95 % interval", "worth": "Worth a day"}
    frames.show(rows, "gains", labels, most=8)


def headline(ledger: LedgerJson, target: float | None) -> tuple[str, str]:
    """Goodput against its target, and the largest loss."""
    if ledger.wall_s <= 0 or ledger.goodput is None:
        return (
            "info",
            f"Run {words.plain(ledger.run)} has done nothing yet: its ledger begins with its first training step.",
        )
    kept, wall = words.share(ledger.goodput), words.duration(ledger.wall_s)
    text = f"{words.plain(ledger.run)} did useful training in {kept} of {wall}"
    text += f"; target {words.share(target, 0)}" if target is not None else ""
    losses = {name: s for name, s in ledger.buckets.items() if name != "productive" and s > 0}
    if losses:
        worst = max(losses, key=lambda name: losses[name])
        text += f". The largest loss: {ledger_charts.bucket(worst).name.lower()}, {words.duration(losses[worst])}"
    met = target is None or ledger.goodput >= target
    return "success" if met else "warning", f"{text}."


def _metrics(ledger: LedgerJson, cluster: ClusterJson) -> None:
    lost_s = ledger.wall_s - ledger.buckets.get("productive", 0.0)
    row = st.columns(5)
    delta = None
    if ledger.goodput is not None and cluster.target is not None:
        delta = f"{(ledger.goodput - cluster.target) * 100:+.1f} points"
    row[0].metric(
        f"Goodput, target {words.share(cluster.target, 0)}",
        words.share(ledger.goodput),
        delta=delta,
        border=True,
        height="stretch",
    )
    row[1].metric(
        "Wall time",
        words.duration(ledger.wall_s),
        help=f"since {words.utc(ledger.start)}",
        border=True,
        height="stretch",
    )
    row[2].metric("Not useful", words.duration(lost_s), border=True, height="stretch")
    hours = None if ledger.gpus is None else lost_s / 3600 * ledger.gpus
    price = price_of(cluster.gpu_hour_price)
    row[3].metric(
        "GPU-hours lost",
        words.count(hours),
        delta=(shown(price.of(hours)) or None) if price else None,
        delta_color="off",
        delta_arrow="off",
        help=f"on {words.count(ledger.gpus)} GPUs",
        border=True,
        height="stretch",
    )
    row[4].metric("Interruptions", words.count(len(ledger.interruptions)), border=True, height="stretch")


def _buckets(ledger: LedgerJson, price: GpuHourPrice | None) -> None:
    st.subheader("Where the time went", anchor=False)
    rows = frames.bucket_rows(ledger.buckets, ledger.wall_s, ledger.gpus, price)
    if not rows:
        panels.empty("The ledger does not say where the time went.")
        return
    st.plotly_chart(ledger_charts.wall_time(ledger), key="wall_time", config=CONFIG)
    with st.expander("The same as a table: the parts sum to the wall time exactly"):
        frames.show(rows, "buckets")


def _losses(ledger: LedgerJson, cluster: ClusterJson) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("What was lost", anchor=False)
        figure = ledger_charts.losses(ledger, ledger.gpus)
        if figure is None:
            panels.empty("Nothing was lost.")
        else:
            st.plotly_chart(figure, key="losses", config=CONFIG)
    with right:
        st.subheader("What interruptions cost, by cause", anchor=False)
        figure = ledger_charts.by_cause(ledger.interruptions, ledger.gpus)
        if figure is None:
            panels.empty("The run was never interrupted.")
        else:
            st.plotly_chart(figure, key="by_cause", config=CONFIG)
    if ledger.interruptions:
        st.subheader(
            "Interruptions", anchor=False, help="lost: work that no save kept, noticing, waiting, starting and loading"
        )
        price = price_of(cluster.gpu_hour_price)
        rows = frames.interruption_rows(ledger.interruptions, cluster.now, ledger.gpus, price)
        frames.show(rows, "interruptions", {"culprit": "Culprit", "gpu_hours": "GPU-hours"}, most=8)
