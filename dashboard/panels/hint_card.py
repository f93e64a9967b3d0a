"""One hint as a card: the request, its reason, cost, approval, the state at each scheduler, and the undo."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from dashboard.client import ApiProblem
from dashboard.panels import frames, links, page
from dashboard.panels.page import Site
from dashboard.text import words
from dashboard.text import words as vocabulary
from wire.cluster import ClusterJson
from wire.hints import CallerJson, HintJson, HoldJson
from wire.money.price import GpuHourPrice, MoneyJson, aside, price_of

ASKS = {
    "watch": "keep an eye on it",
    "avoid": "place new work elsewhere if possible",
    "cordon": "place no new work on it",
    "drain": "place no new work on it and let running work end",
    "release": "let it take work again",
    "checkpoint": "its job should save now",
    "requeue": "its job should start again without it",
    "swap": "its job should go on with a spare in its place",
}
# What a decision does, said before it is taken.
CONFIRM = "It will be sent to the scheduler: {ask} ({node})."
# What one press of it takes back is said on the button: what is not sent yet is withdrawn, the rest is undone.
UNDO = {"shadow": "Withdraw", "proposed": "Withdraw", "approved": "Undo", "sent": "Undo", "confirmed": "Undo"}
FIRST = "Your approval of {action} {node} is recorded. It needs another person, too: nothing is sent yet."
UNDONE = {
    "Withdraw": "Withdrawn: {action} {node}.",
    "Undo": "Undone: {action} {node}. A scheduler that has it is ordered to release the node.",
}
# Evidence that has words of its own, or that the card says already.
SAID = {
    *("score", "scored", "horizon_h", "held", "incident", "reasons", "acted", "closed"),
    *("approved", "approvals", "cost", "quiet", "spare", "release", "repair", "call", "verdict", "link"),
}
_SIZES = ("node_gpus", "job_gpus")
PLACED = {
    "asked": "ordered, not read back yet",
    "confirmed": "has it",
    "foreign": "already held by another, unchanged",
    "undone": "a person removed it in the scheduler",
    "absent": "has no such node",
    "refused": "refuses",
    "released": "released",
}


def draw(site: Site, hint: HintJson, cluster: ClusterJson) -> None:
    """The whole card."""
    with st.container(border=True, gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            page.node_link(site, hint.node)
            st.markdown(f"**{words.plain(hint.action)}**: {ASKS.get(hint.action, 'as named')}", width="content")
            st.badge(
                state_text(hint, cluster.stop),
                color=vocabulary.HINT_TINTS.get(hint.state, "gray"),
            )
        st.markdown(words.plain(frames.unmarked(hint.reason)) or "no reason recorded")
        for line in facts(hint, cluster.now, price_of(cluster.gpu_hour_price)):
            st.markdown(line)
        _evidence_pages(site, hint)
        st.caption(
            f"requested {words.at(hint.created, cluster.now)} by {words.plain(hint.owner or 'unknown')} · "
            f"expires {words.due_at(hint.valid_until, cluster.now)}"
        )
        if hint.evidence:
            with st.expander("Evidence", key=f"evidence_{hint.id}", expanded=hint.state == "proposed"):
                st.markdown("\n\n".join(evidence(hint, cluster.now)))
        _decisions(site, hint)


def state_text(hint: HintJson, stop: str) -> str:
    """`proposed: waits for approval`; what says its own name already says it once."""
    name, told = words.plain(hint.state), words.plain(words.hint_state(hint.state, hint.action, stop))
    return told if told.startswith(name) else f"{name}: {told}"


def _evidence_pages(site: Site, hint: HintJson) -> None:
    """Where its incident and its verdict are laid open."""
    pages = {"incident": site.incident_page, "verdict": site.verdict_page}
    found = {name: hint.evidence.get(name) for name, view in pages.items() if view is not None}
    with st.container(horizontal=True, gap="small"):
        for name, ident in found.items():
            if isinstance(ident, str) and ident:
                st.page_link(
                    pages[name], label=f"Its {name}", query_params=links.query(**{name: ident}), width="content"
                )


def facts(hint: HintJson, now: datetime, price: GpuHourPrice | None = None) -> list[str]:
    """The job, cost, approval and schedulers of a hint, between reason and evidence; unknown ones are absent."""
    lines = [f"**Job:** {words.plain(hint.job)}{_spare(hint.evidence)}"] if hint.job else []
    if link := link_text(hint.evidence.get("link")):
        lines.append(f"**Link:** {link}")
    if hint.remedy is not None:
        lines.append(f"**What to do about the fault:** {words.plain(words.remedy(hint.remedy))}")
    cost = hint.evidence.get("cost")
    left_s = None if hint.valid_until is None else (hint.valid_until - now).total_seconds()
    if isinstance(cost, Mapping) and (told := costs(cost, left_s, price)):
        lines.append(f"**Cost:** {told}")
    if was := lowered(hint):
        lines.append(f"**{was.capitalize()}:** {words.plain(str(hint.evidence['held']))}")
    lines.append(f"**Approved by:** {consent(hint, now)}")
    lines += [f"**{words.plain(one.scheduler)}:** {hold_state_text(one, now)}" for one in hint.placements]
    if hint.evidence.get("repair"):
        lines.append("**Repair:** it failed its test too often; `foreshock lemons --tickets` has its ticket")
    elif hint.evidence.get("release"):
        lines.append("**Release:** well for long enough, waits for its test")
    return lines


def lowered(hint: HintJson) -> str:
    """`lowered from a cordon`, where a budget or the breaker let no more be asked; else empty."""
    why = hint.evidence.get("held")
    if not why:
        return ""
    return f"lowered from {'an avoid' if hint.evidence.get('link') or str(why).startswith('avoid') else 'a cordon'}"


def costs(cost: Mapping[str, Any], left_s: float | None = None, price: GpuHourPrice | None = None) -> str:
    """The GPU-hours that the hint may still hold and those that a failure would cost; what was assumed is said.

    Args:
        left_s: until it expires; None: of its whole time.
    """
    taken, failure, run = cost.get("held_gpu_h"), cost.get("failure_gpu_h"), cost.get("run")
    node_gpus, job_gpus = (cost.get(name) if isinstance(cost.get(name), int) else None for name in _SIZES)
    assumed = cost.get("assumed")
    is_node, is_job = (isinstance(assumed, list | tuple) and name in assumed for name in _SIZES)
    said = []
    if isinstance(taken, int | float):
        held = float(taken) if left_s is None or node_gpus is None else round(node_gpus * max(left_s, 0.0) / 3600, 1)
        guess = (
            f" ({words.many(node_gpus, 'GPU')} assumed: how many it has is not known)" if is_node and node_gpus else ""
        )
        said.append(
            f"up to {words.count(held)} GPU-hours of this node until it expires{aside(_of(price, held))}{guess}"
        )
    if isinstance(failure, int | float):
        whose = f"stops {words.plain(str(run))} and" if run else "under the largest job"
        if is_job and job_gpus:
            whose = f"under a job of {job_gpus:,} GPUs (assumed: none ran when that was reckoned)"
        elif not run and job_gpus:
            whose += f" that ran when that was reckoned ({job_gpus:,} GPUs)"
        hours = float(failure)
        said.append(f"a failure {whose} costs about {words.count(hours)} GPU-hours{aside(_of(price, hours))}")
    return "; ".join(said)


def _of(price: GpuHourPrice | None, gpu_hours: float) -> MoneyJson | None:
    return None if price is None else price.of(gpu_hours)


def link_text(link: Any) -> str:
    """Which link of the node it is about, and what was said of it; empty where it is about none."""
    if not isinstance(link, Mapping) or not link.get("name"):
        return ""
    ends = link.get("ends")
    between = " and ".join(map(str, ends)) if isinstance(ends, list | tuple) else ""
    text = words.plain(str(link["name"])) + (f", between {words.plain(between)}" if between else "")
    score, stop = link.get("score"), link.get("stop_risk")
    if isinstance(score, int | float):
        text += f": {words.risk(float(score))} to be lost within {words.plain(str(link.get('horizon_h', 24)))} h"
        text += f", as of {words.utc(scored)}" if (scored := _moment(link.get("time"))) else ""
    if isinstance(stop, int | float):
        text += f"; by its own signs alone {words.risk(float(stop))} that it is lost and stops the job"
    return text


def consent(hint: HintJson, now: datetime) -> str:
    """Who approved it."""
    yes = hint.evidence.get("approved")
    if isinstance(yes, Mapping):
        earlier = [str(each.get("by")) for each in _items(hint.evidence.get("approvals"))]
        who = " and ".join(dict.fromkeys(map(words.someone, [*earlier, str(yes.get("by") or "somebody")])))
        return f"{who}, {words.at(_moment(yes.get('time')), now)}"
    if hint.approvals:
        given = " and ".join(f"{words.someone(each.by)}, {words.at(each.time, now)}" for each in hint.approvals)
        return f"{given}; **{len(hint.approvals)} of {hint.approvals_needed}**: it needs another person"
    if hint.state == "proposed":
        quiet = hint.evidence.get("quiet")
        whom = "you and another person" if hint.approvals_needed > 1 else "you"
        return f"nobody yet, it waits for {whom}" + (f" (quiet hours {words.plain(str(quiet))})" if quiet else "")
    if hint.state == "shadow":
        return "nobody (shadow mode)"
    return "the policy" + (f", version {words.plain(hint.policy)}" if hint.policy else "")


def has_approved(caller: CallerJson, hint: HintJson) -> bool:
    """Whether the person who looks has given one of two approvals already."""
    me = f"person:{caller.person}" if caller.person else f"token:{caller.name}"
    return any(each.person == me for each in hint.approvals)


def _items(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def hold_state_text(one: HoldJson, now: datetime) -> str:
    """The state of the hint at one scheduler."""
    if one.action == "release" and one.state == "asked":
        text = "release ordered, not read back yet"
    else:
        text = PLACED.get(one.state, words.plain(one.state))
    seen = one.observed or one.asked
    when = f", {words.at(seen, now)}" if seen else ""
    return text + when + (f" ({words.plain(one.detail)})" if one.detail else "")


def evidence(hint: HintJson, now: datetime) -> list[str]:
    """The evidence as lines of Markdown: the server's known keys in words, any other under its own name."""
    found, lines = hint.evidence, []
    if risk := risk_text(hint, now):
        whose = "Risk of the node itself" if found.get("link") else "Risk"
        lines.append(f"**{whose} within {words.plain(str(found.get('horizon_h', 24)))} h:** {risk}")
    if found.get("incident"):
        lines.append(f"**Confirmed fault:** incident {words.plain(str(found['incident']))}")
    reasons = found.get("reasons") or ()
    lines += [f"- {words.plain(str(why))}" for why in (reasons if isinstance(reasons, list | tuple) else [reasons])]
    for name, value in found.items():
        if name not in SAID and value is not None:
            lines.append(f"**{words.plain(name.replace('_', ' ').capitalize())}:** {words.plain(str(value))}")
    return lines


def risk_text(hint: HintJson, now: datetime) -> str:
    """`8 % when it was made, 3.0 h ago · 03:10:00 UTC; 13 % now`: of when each risk is; empty where none is known."""
    score, said = hint.evidence.get("score"), []
    if isinstance(score, int | float):
        scored = _moment(hint.evidence.get("scored")) or hint.created
        said.append(f"{words.risk(float(score))} when it was made, {words.at(scored, now)}")
    if hint.risk_now is not None:
        fresh = hint.risk_now
        said.append(f"{words.risk(fresh.score)} now, as of {words.at(fresh.time, now)}")
    return "; ".join(said)


def _spare(found: Mapping[str, Any]) -> str:
    return f", the spare is **{words.plain(str(found['spare']))}**" if found.get("spare") else ""


def _moment(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def _decisions(site: Site, hint: HintJson) -> None:
    """To approve takes a second press, so that no slip of the hand acts on a cluster; to undo takes one."""
    if not site.may("act:approve"):
        return
    if st.session_state.get("confirming") == hint.id:
        ask = ASKS.get(hint.action) or words.plain(hint.action)
        st.warning(CONFIRM.format(ask=ask, node=words.plain(hint.node)))
        with st.container(horizontal=True):
            first = hint.approvals_needed > 1 and not hint.approvals
            said = FIRST if first else "Approved: {action} {node}."
            args = (site, hint, "approve", said)
            st.button("Yes, approve", key=f"yes_{hint.id}", type="primary", on_click=_decide, args=args)
            st.button("No, leave it", key=f"no_{hint.id}", on_click=_ask, args=(None,))
        return
    undo = UNDO.get(hint.state, "Withdraw")
    with st.container(horizontal=True):
        if hint.state == "proposed" and not has_approved(site.caller, hint):
            st.button("Approve", key=f"approve_{hint.id}", on_click=_ask, args=(hint.id,))
        args = (site, hint, "withdraw", UNDONE[undo])
        st.button(undo, key=f"withdraw_{hint.id}", on_click=_decide, args=args)


def _ask(hint: str | None) -> None:
    st.session_state["confirming"] = hint
    st.session_state["outcome"] = None


def _decide(site: Site, hint: HintJson, verb: str, said: str) -> None:
    """Send the request and store its outcome for the page."""
    st.session_state["confirming"] = None
    try:
        site.client.decide(hint.id, verb)
    except ApiProblem as trouble:
        st.session_state["outcome"] = (False, str(trouble))
    else:
        st.session_state["outcome"] = (True, said.format(action=hint.action, node=hint.node))
