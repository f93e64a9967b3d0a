"""The Collection page: does every node report, is anything lost, and what holds it up."""

from collections.abc import Sequence

import streamlit as st

from dashboard.panels import frames
from dashboard.panels import page as panels
from dashboard.panels.page import Site
from dashboard.text import words
from dashboard.text.sidecars import faults, size, source_rows
from wire.cluster import ClusterJson
from wire.sidecars import SidecarJson

LISTED = 200  # of the silent, and of those in trouble
TRUSTS_OF = 20  # sidecars that are well, whose sources are shown


def page(site: Site) -> None:
    """The whole page; everything on it moves."""
    _live(site)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        panels.answer(cluster, *headline(cluster))
        panels.as_of(cluster)
        counted = cluster.sidecars
        if counted is not None and counted.known:
            _metrics(cluster)
            troubled = site.client.sidecars("troubled", LISTED) if counted.troubled else []
            if counted.troubled:
                _troubled(troubled, counted.troubled)
            if counted.silent:
                _silent(site.client.sidecars("silent", LISTED), counted.silent)
            _trusts([*site.client.sidecars("ok", TRUSTS_OF), *troubled])
        else:
            panels.empty("Sidecars report themselves once a minute: `foreshock sidecar --server URL --source kmsg`.")
        _sources(cluster)


def headline(cluster: ClusterJson) -> tuple[str, str]:
    """Whether every node reports."""
    counted = cluster.sidecars
    if counted is None or not counted.known:
        return "info", "No sidecar has reported yet."
    said = []
    if counted.silent:
        said.append(f"{words.many(counted.silent, 'sidecar')} silent")
    if counted.troubled:
        said.append(f"{counted.troubled:,} in trouble")
    if said:
        return "warning", f"Of {words.many(counted.known, 'sidecar')}: {', '.join(said)}."
    return "success", f"{_all(counted.known)} and nothing was lost."


def _all(known: int) -> str:
    return "The one sidecar reports" if known == 1 else f"All {known:,} sidecars report"


def _metrics(cluster: ClusterJson) -> None:
    counted = cluster.sidecars
    if counted is None:
        return
    row = st.columns(4)
    figures = (
        ("Reporting", counted.known - counted.silent, "heard of within three of their intervals"),
        ("Silent", counted.silent, "not heard of: the node, its network or the sidecar is down; not the same as well"),
        ("In trouble", counted.troubled, "a source cannot be read or waits, or something was lost or refused"),
        ("Events, 1 h", cluster.events_1h, "everything that was stored, routine records too"),
    )
    for column, (label, value, meaning) in zip(row, figures, strict=True):
        column.metric(label, words.count(value), help=meaning, border=True, height="stretch")


def _troubled(found: Sequence[SidecarJson], known: int) -> None:
    st.subheader("In trouble", anchor=False, help="counts are since the sidecar started")
    rows = []
    for sidecar in found:
        wrong = faults(sidecar)
        rows.append(
            {
                "node": sidecar.node,
                "what": "; ".join(fault.what for fault in wrong) or "trouble that this page does not know",
                "do": wrong[0].do if wrong else "see the sidecar's own log on the node",
                "waiting": size(sidecar.report.spool.events_bytes + sidecar.report.spool.telemetry_bytes),
                "runs since": words.utc(sidecar.started),
            }
        )
    _table(rows, "troubled", known)


def _silent(found: Sequence[SidecarJson], known: int) -> None:
    st.subheader("Silent", anchor=False, help="longest first")
    rows = [
        {
            "node": sidecar.node,
            "last heard of": words.utc(sidecar.received),
            "version": sidecar.version or words.DASH,
            "do": "is the node up? then: systemctl status foreshock-sidecar",
        }
        for sidecar in sorted(found, key=lambda sidecar: sidecar.received)
    ]
    _table(rows, "silent", known)


def _table(rows: Sequence[frames.Row], key: str, known: int) -> None:
    if not rows:
        st.caption("None any more: the counts above come with the next answer.")
        return
    frames.show(rows, key, {"do": "What to do", "what": "What is wrong"})
    if known > len(rows):
        st.caption(f"and {known - len(rows):,} more: `GET /api/v1/sidecars?state={key}` lists them all")


def _trusts(found: Sequence[SidecarJson]) -> None:
    """Whose word each source is: of the first sidecars that are well, for nodes are alike, and of those in trouble."""
    st.subheader("Whose word", anchor=False, help="who can write a source decides what it may tell")
    if rows := source_rows(found):
        frames.show(rows, "trusts")
        st.caption(
            f"Of {words.many(len(found), 'sidecar')}. A line that its writer may not tell is refused and counted."
        )
    else:
        panels.empty("No sidecar that reports names a source.")


def _sources(cluster: ClusterJson) -> None:
    st.subheader("Sources", anchor=False, help="a source that falls silent is a blind eye, not good news")
    if not cluster.sources:
        panels.empty("Nothing was received in the last day.")
        return
    rows = [
        {
            "source": source.source,
            "last event": words.when(source.last_event, cluster.now),
            "in the last hour": words.count(source.events_1h),
        }
        for source in cluster.sources
    ]
    frames.show(rows, "sources")
