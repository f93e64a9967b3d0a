"""Every hint in one table: filters that stand in the address, rows to select, and one decision about many.

What is selected is hints, not places in the table: while anything is selected the rows stay as they are, and newer
hints wait until nothing is.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard.client import PAGE, ApiProblem
from dashboard.panels import frames, hint_card, links, page
from dashboard.panels.frames import Row
from dashboard.panels.page import Site
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.events import IncidentJson
from wire.hints import HintJson, HintOutcomeJson

MOST_AT_ONCE = 100  # hints of one decision: each is a request of its own
HEADS = {"owner": "Asked by", "came": "What became of it"}
# In the session: the rows of the table and the filter that they passed, the count of its selections, the table's name,
# what is to be confirmed, and what came of the last decision.
_ROWS, _FILTER, _ROUND, _TABLE = "hint_rows", "hint_filter", "hint_round", "hint_table"
_QUESTION, _RESULT = "hint_question", "hint_result"
ENDS = {"withdrawn": "taken back", "expired": "expired", "released": "released"}
DONE = {"approve": "approved", "withdraw": "taken back"}


@dataclass(frozen=True, slots=True)
class HintFilter:
    """Which hints a person wants to see; what is empty takes all."""

    states: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    text: str = ""

    def takes(self, hint: HintJson) -> bool:
        """Whether it is one of them. The text stands in its node, job, reason, owner or id, whatever its letters."""
        if (self.states and hint.state not in self.states) or (self.actions and hint.action not in self.actions):
            return False
        said = (hint.node, hint.job or "", hint.reason, hint.owner or "", hint.id)
        return all(part in " ".join(said).casefold() for part in self.text.casefold().split())


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """What came of a decision about many: how many went well, and why each other one did not."""

    verb: str
    done: int
    first: int = 0  # approvals that need another person's, too
    failed: tuple[tuple[str, str], ...] = ()


def draw(site: Site, hints: Sequence[HintJson], cluster: ClusterJson) -> None:
    """The filters, the table, and what is to be done with the selected ones.

    Args:
        hints: in the order of the table.
    """
    st.subheader("All hints", anchor=False, help="the newest thousand; select rows to decide about many at once")
    _result()
    wanted = _filters(hints)
    if st.session_state.get(_FILTER) != wanted:
        _forget_selection()
        st.session_state[_FILTER] = wanted
    chosen = _chosen()
    span = page.span()
    found = [hint for hint in hints if wanted.takes(hint) and (hint.created is None or span.holds(hint.created))]
    oldest = min((hint.created for hint in hints if hint.created is not None), default=None)
    limit = span.limit(oldest, f"the newest {PAGE:,}") if len(hints) >= PAGE else None
    if not found and not chosen:
        none = "No hint fits this filter and time range: take a part of it away."
        page.empty(f"{none} {limit or ''}".rstrip() if hints else "No hint is known yet.")
        return
    shown = _kept(hints) if chosen else found
    devices = {one.id: one for one in site.client.incidents(frames.RECENT_INCIDENTS)}
    st.session_state[_ROWS] = shown
    _table(site, rows(shown, devices, cluster))
    st.caption(f"{words.many(len(found), 'hint')} of {len(hints):,}" + (f". {limit}" if limit else ""))
    newer = len({hint.id for hint in found} - {hint.id for hint in shown})
    if newer:
        st.caption(f":material/update: {words.many(newer, 'newer hint')}: shown once no row is selected")
    if site.may("act:approve"):
        _decisions(site, hints, [hint for hint in shown if hint.id in chosen])


def _filters(hints: Sequence[HintJson]) -> HintFilter:
    """State, action and text, each kept in the address."""
    left, middle, right = st.columns([2, 2, 3], gap="small")
    states = list(dict.fromkeys([*words.HINT_STATES, *(hint.state for hint in hints)]))
    actions = list(dict.fromkeys([*hint_card.ASKS, *(hint.action for hint in hints)]))
    state = left.multiselect("State", states, key="hint_state", bind="query-params", format_func=words.shown)
    action = middle.multiselect("Action", actions, key="hint_action", bind="query-params", format_func=words.shown)
    text = right.text_input(
        "Text",
        key="hint_text",
        bind="query-params",
        max_chars=255,
        placeholder="a node, job, reason, owner or id",
    )
    return HintFilter(tuple(state), tuple(action), (text or "").strip())


def rows(hints: Sequence[HintJson], incidents: Mapping[str, IncidentJson], cluster: ClusterJson) -> list[Row]:
    """A hint a row; the device is that of its incident, or its link."""
    return [
        {
            "when": words.when(hint.created, cluster.now),
            "node": words.shown(hint.node),
            "device": _device(hint, incidents),
            "action": words.shown(hint.action),
            "state": words.shown(hint.state),
            "why": words.shown(frames.unmarked(hint.reason)) or words.DASH,
            "owner": words.shown((hint.owner or words.DASH).removeprefix("person:")),
            "came": words.shown(came(hint, cluster.stop)),
            "evidence": evidence_page(hint) or "",
        }
        for hint in hints
    ]


def _device(hint: HintJson, incidents: Mapping[str, IncidentJson]) -> str:
    """That of its incident, or the link that it is about."""
    incident, link = incidents.get(str(hint.evidence.get("incident"))), hint.evidence.get("link")
    if incident is None and isinstance(link, Mapping) and link.get("name"):
        return words.shown(f"link {link['name']}")
    return words.DASH if incident is None else words.shown(words.device(incident.device, True, incident.name))


def evidence_page(hint: HintJson) -> str | None:
    """The page of its evidence: of the incident that it was made for, else of its verdict."""
    for name in ("incident", "verdict"):
        ident = hint.evidence.get(name)
        if isinstance(ident, str) and ident:
            return links.address(f"{name}s", **{name: ident})
    return None


def came(hint: HintJson, stop: str = "none") -> str:
    """What became of a hint: whether it was right, who ended it, what keeps it back, or how far its schedulers are."""
    closed = hint.evidence.get("closed")
    by = str(closed.get("by") or "") if isinstance(closed, Mapping) else ""
    whom = f" by {by.removeprefix('person:')}" if by and by not in ("policy", "foreshock") else ""
    said = [was] if (was := hint_card.lowered(hint)) else []
    said += [f"{ENDS[hint.state]}{whom}"] if hint.state in ENDS else []
    if hint.outcome is not None:
        said.append(judged(hint.outcome))
    elif hint.state == "proposed":
        said.append("waits for approval")
    elif words.is_held_back(hint.state, hint.action, stop):
        said.append("held back by the stop")
    elif hint.state not in ENDS:
        said += [f"{one.scheduler}: {hint_card.PLACED.get(one.state, one.state)}" for one in hint.placements]
    return "; ".join(said) or words.DASH


def judged(outcome: HintOutcomeJson) -> str:
    """Whether the node failed as the hint had said, as far as that can be known; what it cost and saved."""
    if outcome.basis == "acted":
        text = "carried out: nobody knows whether it would have failed"
    elif outcome.right:
        text = "right: the node failed" + (f" {words.duration(outcome.lead_s)} later" if outcome.lead_s else "")
    else:
        text = "wrong: the node did not fail within a day"
    saved, held = outcome.saved_gpu_h, outcome.held_gpu_h
    figures = [f"{words.count(held)} GPU-h held"] if held else []
    figures += [f"{words.count(saved)} GPU-h saved"] if saved else []
    return f"{text} ({', '.join(figures)})" if figures else text


def _new_key() -> str:
    """The table's name: another one for each selection and for other rows, so that no click is taken for another's."""
    shown = "\n".join(hint.id for hint in st.session_state[_ROWS])
    digest = hashlib.blake2b(shown.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"hint_table_{st.session_state.get(_ROUND, 0)}_{digest}"


def _forget_selection() -> None:
    st.session_state[_ROUND] = st.session_state.get(_ROUND, 0) + 1
    st.session_state[_QUESTION] = st.session_state[_TABLE] = None


def _chosen() -> frozenset[str]:
    """The ids of the selected hints: of the rows as they were when they were selected."""
    shown: Sequence[HintJson] = st.session_state.get(_ROWS, ())
    table = st.session_state.get(_TABLE)
    found = (st.session_state.get(table) if table else None) or {}
    places = found.get("selection", {}).get("rows", ())
    return frozenset(shown[place].id for place in places if 0 <= place < len(shown))


def _kept(hints: Sequence[HintJson]) -> list[HintJson]:
    """The rows of the last time, each hint as it is now."""
    news = {hint.id: hint for hint in hints}
    return [news.get(hint.id, hint) for hint in st.session_state.get(_ROWS, ())]


def _table(site: Site, found: Sequence[Row]) -> None:
    configured = frames.columns(found[0], HEADS, 260)
    configured["came"]["width"], configured["device"]["width"] = 250, 150
    # The address tells which kind of page it is.
    configured["evidence"] = st.column_config.LinkColumn("Evidence", display_text=r"^(incident|verdict)s\?")
    options: dict[str, Any] = {}
    if site.may("act:approve"):
        options = {"on_select": "rerun", "selection_mode": "multi-row"}
    st.session_state[_TABLE] = _new_key()
    frames.draw(found, st.session_state[_TABLE], configured, most=8, **options)


def _decisions(site: Site, hints: Sequence[HintJson], chosen: Sequence[HintJson]) -> None:
    """One question for all that are selected, then each by its own request."""
    question = st.session_state.get(_QUESTION)
    if question is not None:
        news = {hint.id: hint for hint in hints}
        verb, asked = question
        _confirm(site, verb, [news.get(one.id, one) for one in asked])
        return
    if not chosen:
        return
    if len(chosen) > MOST_AT_ONCE:
        st.caption(f"{len(chosen):,} are selected: decide about at most {MOST_AT_ONCE} at once.")
        return
    able = {
        "approve": [one for one in chosen if one.state == "proposed" and not hint_card.has_approved(site.caller, one)],
        "withdraw": [one for one in chosen if one.state in hint_card.UNDO],
    }
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{words.many(len(chosen), 'hint')} selected**", width="content")
        for verb, found in able.items():
            if found:
                label = f"{verb.capitalize()} {len(found):,}"
                st.button(label, key=f"many_{verb}", on_click=_ask, args=(verb, tuple(found)))
    if not any(able.values()):
        st.caption("None of them waits for you, and none can be taken back any more.")


def _confirm(site: Site, verb: str, found: Sequence[HintJson]) -> None:
    """The question names each hint as it is now: a watch that became a drain is asked as one."""
    named = "; ".join(words.plain(f"{one.action} {one.node}") for one in found)
    many = words.many(len(found), "hint")
    what = {
        "approve": f"{many} will be sent to the scheduler: {named}.",
        "withdraw": f"{many} will be taken back: {named}. A scheduler that has one is ordered to release the node.",
    }
    st.warning(what[verb])
    with st.container(horizontal=True):
        yes = f"Yes, {verb} {len(found):,}"
        st.button(yes, key="many_yes", type="primary", on_click=_decide, args=(site, verb, found))
        st.button("No, leave them", key="many_no", on_click=_leave)


def _ask(verb: str, found: tuple[HintJson, ...]) -> None:
    """The hints are those that were selected when the button was pressed, whatever is selected later."""
    st.session_state[_QUESTION] = (verb, found)
    st.session_state[_RESULT] = st.session_state["outcome"] = None


def _leave() -> None:
    st.session_state[_QUESTION] = None


def _decide(site: Site, verb: str, found: Sequence[HintJson]) -> None:
    """A request a hint: one that is refused holds up no other. What is not what the person read is left alone."""
    failed, decided = list[tuple[str, str]](), list[HintJson]()
    for one in found:
        try:
            now = site.client.hint(one.id, one.node)
            if now is not None and (now.action, now.state) != (one.action, one.state):
                failed.append((f"{one.action} {one.node}", f"it is {now.action}, {now.state} now: select it again"))
                continue
            site.client.decide(one.id, verb)
            decided.append(one)
        except ApiProblem as trouble:
            failed.append((f"{one.action} {one.node}", str(trouble)))
    first = sum(1 for one in decided if one.approvals_needed > 1 and not one.approvals) if verb == "approve" else 0
    st.session_state[_RESULT] = DecisionResult(verb, len(decided), first, tuple(failed))
    _forget_selection()


def _result() -> None:
    """What came of the last decision about many; what failed is told hint by hint."""
    result: DecisionResult | None = st.session_state.get(_RESULT)
    if result is None:
        return
    if result.done:
        page.banner("success", f"{words.many(result.done, 'hint')} {DONE.get(result.verb, 'decided')}.")
    if result.first:
        st.caption("Where two people are needed, nothing is sent before the other person's approval.")
    if result.failed:
        page.banner("error", f"{words.many(len(result.failed), 'hint')} could not be decided:")
        told: list[Row] = [{"hint": words.shown(name), "why": words.shown(why)} for name, why in result.failed]
        frames.show(told, "hints_failed", {"why": "Why not"}, most=6)
