"""What a node has been through, on one time axis; the run on it now; its GPUs by name; evidence for its vendor."""

import io
import zipfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import quote

import streamlit as st

from dashboard.charts import node_axis
from dashboard.charts.charts import CONFIG
from dashboard.client import ApiProblem
from dashboard.panels import page
from dashboard.panels.page import Site
from dashboard.text import words
from store.visible_text import html_text
from wire.cluster import ClusterJson
from wire.nodes import NodeDetailJson, NodeGpuJson, NodeTimelineJson

WEEK, PAST = timedelta(days=7), timedelta(days=30)  # what is shown at first; what the API answers of a node
REACH = "the 30 days that are shown here"
KEEP_S = 30.0  # what ran and erred is read again as rarely; names of GPUs ten times as rarely
_DAY = timedelta(days=1)
_GRID = """<style>
.gpus { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: .5rem; list-style: none;
  margin: 0 !important; padding: 0 !important; }
.gpus li { border: 1px solid color-mix(in srgb, currentcolor 25%, transparent); border-left-width: 5px;
  margin: 0 !important; border-radius: .5rem; padding: .4rem .7rem; font-size: .875rem; line-height: 1.45;
  overflow-wrap: anywhere; }
</style>"""
_STATES = {"failing": "#d6403b", "degraded": "#e9a11a", "healthy": "#3a9d74"}


def timeline_of(site: Site, node: str, now: datetime) -> NodeTimelineJson | str:
    """What ran and erred on a node in the days that are shown; a sentence where that is not known."""

    def read() -> NodeTimelineJson | str:
        try:
            return site.client.node_timeline(node, now - PAST, now)
        except ApiProblem as trouble:
            return f"Not known. {words.plain(str(trouble))}"

    return page.kept("node_timeline", node, KEEP_S, read)


def running(site: Site, told: NodeTimelineJson | str, now: datetime) -> None:
    """The run that is on it now."""
    if isinstance(told, str):
        st.caption(f"Which run is on it: {told[:1].lower()}{told[1:]}")
        return
    jobs = [job for job in told.jobs if job.end is None or job.end > now]
    if not jobs:
        st.markdown(":material/timelapse: No run is on it now.")
    for job in jobs[:4]:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(":material/timelapse: On it now:", width="content")
            page.run_link(site, job.run)
            since = "" if job.start is None else f", for {words.duration((now - job.start).total_seconds())}"
            nodes = "" if job.nodes is None else f" on {words.many(job.nodes, 'node')}"
            st.markdown(f"job {words.plain(job.job)}{nodes}{since}", width="content")


def axis(node: NodeDetailJson, told: NodeTimelineJson | str, cluster: ClusterJson) -> None:
    """Everything of the node over one time axis; at first the last week, or the page's time range."""
    st.subheader(
        "What happened, on one time axis",
        anchor=False,
        help="Draw over a stretch to look closer: all charts go along. Press twice to see the whole again. "
        "The time in the bar above chooses another range.",
    )
    span = page.span()
    # By the minute: charts that say the same are not drawn again with each answer.
    now = cluster.now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    until = span.end(now)
    since = until - WEEK if span.since is None else max(span.since, cluster.now - PAST)
    known = None if isinstance(told, str) else told
    figure = None
    if since < until:
        figure = node_axis.axis(node_axis.NodeAnswers(node, known, now, span.words()), since, until)
    if figure is None:
        nothing = "Nothing is known of this node"
        page.empty(
            span.nothing(nothing, cluster.now - PAST, REACH) if span else f"{nothing} of the last week, no run either."
        )
    else:
        st.plotly_chart(figure, key="node_axis", config=CONFIG)
    if known is None:
        st.caption(f"Runs and errors by the hour: {told}")
        return
    for what, moment in (("Jobs", known.jobs_since), ("Errors", known.errors_since)):
        if moment is not None and moment > since:
            st.caption(f"{what} before {words.utc(moment)} are too many to be shown here.")


def gpus(site: Site, node: NodeDetailJson, now: datetime) -> None:
    """A grid of its GPUs, NPUs or MLUs: number, serial number, addresses, state, what it showed within a day."""
    told: list[NodeGpuJson] = []
    head = st.empty()
    help_text = "serial numbers come from the topology, from health checks and exporters"
    head.subheader("GPUs", anchor=False, help=help_text)
    try:
        told = page.kept("node_gpus", node.node, 10 * KEEP_S, lambda: site.client.node_gpus(node.node))
        if told and told[0].type != "gpu":
            head.subheader(f"{words.DEVICES.get(told[0].type, 'GPU')}s", anchor=False, help=help_text)
    except ApiProblem as trouble:
        st.caption(f"Not known. {words.plain(str(trouble))}")
        return
    cards = cards_of(node, told, now)
    if not cards:
        st.caption("Nobody tells which accelerators it has: nodes.csv, the scheduler or an exporter would.")
        return
    listed = "".join(
        f'<li style="border-left-color: {colour}">{"<br>".join(html_text(line) for line in lines)}</li>'
        for colour, lines in cards
    )
    st.html(f'{_GRID}<ul class="gpus">{listed}</ul>')


def cards_of(node: NodeDetailJson, told: Sequence[NodeGpuJson], now: datetime) -> list[tuple[str, list[str]]]:
    """Of each GPU a colour and its lines: those that the node should have, and others that are named."""
    numbered = {gpu.index: gpu for gpu in told if gpu.index is not None}
    whole = [numbered.get(at, NodeGpuJson(index=at)) for at in range(min(node.gpus or 0, 128))]
    others = [gpu for gpu in told if gpu.index is None or gpu.index >= len(whole)]
    return [_card(node, gpu, now) for gpu in [*whole, *others]]


def _card(node: NodeDetailJson, gpu: NodeGpuJson, now: datetime) -> tuple[str, list[str]]:
    kind = words.DEVICES.get(gpu.type, "GPU")
    name = kind if gpu.index is None else f"{kind} {gpu.index}"
    state = next((one for one in node.devices if one.device == name), None)
    faults = [
        one
        for one in node.incidents
        if one.severity in ("error", "fatal")
        and now - (one.shown or one.end) < _DAY
        and any(_is_it(gpu, d.index, d.pci) for d in (one.devices or (one.device,)) if d.type == gpu.type)
    ]
    said = "failed" if any(one.severity == "fatal" for one in faults) else state.state if state else ""
    colour = "#d6403b" if said == "failed" else _STATES.get(said, "#8d949c")
    head = f"{name}, number not told" if gpu.index is None else name  # it may be one of those with a number
    lines = [f"{head} · {said}" if said else head, f"serial number {gpu.serial or 'not told'}"]
    lines += [gpu.pci] if gpu.pci else []
    lines += [gpu.uuid] if gpu.uuid else []
    lines += [f"{words.ago(one.start, now)}: {words.what(one)}" for one in faults[-2:]]
    return colour, lines


def _is_it(gpu: NodeGpuJson, index: int | None, pci: str | None) -> bool:
    if gpu.pci is not None and pci is not None:
        return gpu.pci == pci
    return index is not None and gpu.index == index


def evidence(site: Site, node: str) -> None:
    """A button that fetches what `foreshock rma` packs for a vendor, of the last 90 days."""
    st.download_button(
        "Evidence for the vendor",
        data=lambda: packed(site, node),
        file_name=f"{node}-rma.zip",
        mime="application/zip",
        key="rma",
        help="a ZIP for a ticket: records of the hardware, a timeline, serial numbers; no users, no runs. "
        "`foreshock rma` writes the same with a signature.",
        on_click="ignore",
        icon=":material/folder_zip:",
    )


def packed(site: Site, node: str) -> bytes:
    """The ZIP; where the API refuses, one that holds its sentence."""
    try:
        return site.client.printout(f"nodes/{quote(node, safe='')}/rma")
    except ApiProblem as trouble:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("not_made.txt", f"{trouble}\n")
        return out.getvalue()
