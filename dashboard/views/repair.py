"""The Repair page: which nodes should go to repair, what to do with each, and the evidence; what to check next."""

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from dashboard.panels import frames
from dashboard.panels import page as panels
from dashboard.panels.frames import Row
from dashboard.panels.page import Site
from dashboard.text import words
from wire.nodes import LeadTimeJson, LinkScoreJson, RiskiestJson, RiskiestNodeJson
from wire.repair import LemonJson, PartJson, RepairEvidenceJson, RepairJson, RepairListJson

SHOWN = 25
LINKS = 10
CHECKED = 10
_RISKIEST = {"risk": "Risk, 24 h", "fails": "If it fails now, GPU-h", "worth": "Keeping it free saves, GPU-h"}


def page(site: Site) -> None:
    """The whole page."""
    _live(site)


@st.fragment(run_every=panels.REFRESH_S)
def _live(site: Site) -> None:
    with panels.troubles():
        cluster = site.client.cluster()
        report = site.client.lemons()
        panels.answer(cluster, *headline(report))
        panels.as_of(cluster)
        st.caption(basis(report))
        for lemon in report.items[:SHOWN]:
            _card(site, lemon, report.at)
        if report.found > SHOWN:
            st.caption(f"and {report.found - SHOWN:,} more: `foreshock lemons` shows all")
        if not report.items:
            panels.empty("A node appears here when it fails again and again while its neighbours do not.")
        else:
            st.caption(
                "For the vendor: `foreshock lemons --rma parts.csv` writes the parts with numbers and evidence; for "
                "technicians: `foreshock lemons --tickets tickets.csv`."
            )
        _riskiest(site.client.riskiest(CHECKED))
        _links(site.client.link_scores(LINKS), cluster.now)


def _riskiest(report: RiskiestJson) -> None:
    """Well nodes to look at while there is time, and what looking at them finds."""
    if not report.items and not report.states:
        return
    help_text = (
        "at work, with the highest risk; a failure of a free node is reckoned under the largest job that runs now. "
        "What keeping a node free saves is reckoned from its score alone: a hint may stand on a fault that has come"
    )
    st.subheader("Check these first", anchor=False, help=help_text)
    if not report.items:
        said = ", ".join(f"{count:,} {words.plain(state)}" for state, count in report.states.items())
        panels.empty(f"No node that is at work has a score: {said}.")
        return
    st.caption(chance(report))
    frames.show([riskiest_row(one) for one in report.items], "riskiest", _RISKIEST, most=CHECKED)
    if report.leads:
        said = "How early failures were foreseen (by a place among the riskiest 5 %), by what failed"
        with st.expander(said, key="leads"):
            frames.show([lead_row(one) for one in report.leads], "lead_times")


def chance(report: RiskiestJson) -> str:
    """How likely a look at these nodes finds one that fails: as the scores say, and as it was before."""
    nodes, record = words.many(len(report.items), "node"), report.record
    risk = words.risk(report.chance)
    text = f"The chance that at least one of these {nodes} fails within {report.horizon_h} h is {risk} by the scores."
    if record is None or record.share is None:
        return f"{text} What came of earlier lists is not known yet."
    low, share, high, said = (words.share(one, 0) for one in (record.low, record.share, record.high, record.said))
    text = (
        f"{text} Of the last {words.many(record.lists, 'list')} of {words.many(record.nodes, 'node')} {record.hit} had "
        f"a failure: {share} (between {low} and {high}), where the scores said {said}."
    )
    if record.worth_gpu_h is None or not record.lost_gpu_h:
        return text
    lost, left = words.count(record.lost_gpu_h), words.count(abs(record.worth_gpu_h))
    saves = "saves" if record.worth_gpu_h >= 0 else "costs"
    return f"{text} Runs lost {lost} GPU-hours a list by them; to keep all the nodes of a list free {saves} {left}."


def riskiest_row(one: RiskiestNodeJson) -> Row:
    """A node to check: what speaks against it, what it runs, and what a failure would cost."""
    worth = "< 1" if one.worth_gpu_h is not None and 0 < one.worth_gpu_h < 0.5 else words.count(one.worth_gpu_h)
    told = [why.text for why in one.reasons if why.contribution > 0 and not words.is_rest(why)]
    return {
        "node": one.node,
        "risk": words.risk(one.score),
        "why": "; ".join(told[:2]) or "nothing stands out",
        "runs": one.run or words.DASH,
        "fails": words.count(one.failure_gpu_h),
        "worth": worth if one.pays else "nothing, by its score",
    }


def lead_row(one: LeadTimeJson) -> Row:
    """How many outages of a kind were foreseen, and how early."""
    return {
        "what_failed": one.words,
        "outages": one.outages,
        "foreseen": one.foreseen,
        "half_of_them_at_least": words.DASH if one.p50_h is None else words.duration(3600 * one.p50_h),
    }


def _links(scores: Sequence[LinkScoreJson], now: datetime) -> None:
    """The cables and modules to look at, where links are scored and something speaks against some."""
    rows = link_rows(scores)
    if not rows:
        return
    st.subheader("Links with the highest risk", anchor=False, help="to be lost; look at the module and the cable")
    frames.show(rows, "links", {"link": "Link", "ends": "Between", "risk": "Risk, 24 h"}, most=LINKS)
    st.caption(f"Scored {words.ago(scores[0].time, now)} from what the fabric's own past teaches.")


def link_rows(scores: Sequence[LinkScoreJson]) -> list[Row]:
    """Links that something speaks against, the likeliest to be lost first."""
    against = [
        (one, [why.text for why in one.reasons if why.contribution > 0 and not words.is_rest(why)]) for one in scores
    ]
    return [
        {"link": one.link, "ends": " and ".join(one.ends), "risk": words.risk(one.score), "why": "; ".join(told)}
        for one, told in against
        if told
    ]


def headline(report: RepairListJson) -> tuple[str, str]:
    """How many nodes, and the first of them."""
    if not report.nodes:
        return "info", "No node is known yet: start `foreshock sidecar` on one, or `foreshock ingest` an archive."
    if not report.items:
        return "success", f"No node of {report.nodes:,} needs repair: none fails more than chance allows."
    worst = report.items[0]
    count = words.many(report.found, "node")
    text = f"{count} should go to repair. The worst: {words.plain(worst.node)}, {rate(worst)}."
    return "warning", text


def rate(lemon: LemonJson) -> str:
    """How much worse than the fleet, in words."""
    return f"it fails {lemon.times_fleet:.0f} times as often as the fleet"


def basis(report: RepairListJson) -> str:
    """What the list promises, and how old it is."""
    text = f"Made {words.utc(report.at)} from the last {report.window_days} days"
    if report.times_fleet is None or report.false_share is None:
        return f"{text}."
    return (
        f"{text}. Listed are nodes that fail at least {report.times_fleet:g} times as often as the average node; "
        f"of the list as a whole up to {words.share(report.false_share, 0)} may be bad luck; "
        "how sure each one is its card says."
    )


def _card(site: Site, lemon: LemonJson, now: datetime) -> None:
    with st.container(border=True, gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            panels.node_link(site, lemon.node)
            st.badge(f"{lemon.times_fleet:.0f} x the fleet", color="red" if lemon.probability >= 0.9 else "orange")
            st.markdown(place(lemon), width="content")
        st.markdown(f"**Do:** {words.plain(lemon.next_step) or 'no advice'}")
        st.markdown("\n".join(f"- {sentence(one)}" for one in lemon.evidence) or "no evidence given")
        with st.expander("Part, repairs and records", key=f"lemon_{lemon.node}"):
            st.markdown(numbers(lemon.part))
            if lemon.repairs:
                frames.show(repair_rows(lemon.repairs, now), f"repairs_{lemon.node}", {"again": "Fault came back"}, 6)
            st.caption("Records: " + (records(lemon.evidence) or "none"))


def place(lemon: LemonJson) -> str:
    """Where it stands and how sure that is."""
    rack = f"rack {words.plain(lemon.rack)} · " if lemon.rack else ""
    return f"{rack}{words.share(lemon.probability, 0)} sure that it is no bad luck"


def sentence(one: RepairEvidenceJson) -> str:
    """A sentence of the server, as plain text with a capital."""
    return words.plain(one.text[:1].upper() + one.text[1:])


def numbers(part: PartJson | None) -> str:
    """By which numbers a vendor knows the part."""
    if part is None:
        return "No single part stands out: the faults are spread, or no source names a device."
    numbers_by_name = {"PCI": part.pci, "UUID": part.uuid, "serial": part.serial, "far end": part.far_end}
    known = [f"{name} {words.plain(value)}" for name, value in numbers_by_name.items() if value]
    share = (
        f", bad on {part.days} of the {words.many(part.of_days, 'day')} with a fault"
        if part.days and part.of_days
        else ""
    )
    return f"**{words.plain(part.words)}**{share}" + (f" ({', '.join(known)})" if known else "")


def repair_rows(repairs: Sequence[RepairJson], now: datetime) -> list[Row]:
    """Times out of service, the newest first."""
    return [
        {
            "began": words.when(one.start, now),
            "lasted": "still out" if one.end is None else words.duration((one.end - one.start).total_seconds()),
            "why": one.reason or words.DASH,
            "planned": {True: "planned", False: "unplanned", None: words.DASH}[one.planned],
            "again": "yes" if one.came_back else "no",
        }
        for one in sorted(repairs, key=lambda repair: repair.start, reverse=True)
    ]


def records(evidence: Sequence[RepairEvidenceJson]) -> str:
    """The newest ids behind the sentences, at most three of each kind, for who looks them up."""
    parts = []
    for noun, kind in (("incident", "incidents"), ("event", "events"), ("job", "jobs")):
        ids = [key for one in evidence for key in getattr(one, kind)]
        if ids:
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            parts.append(f"{noun} {', '.join(words.plain(key) for key in ids[-3:])}{more}")
    return "; ".join(parts)
