"""The phone's page: what is wrong in one sentence, what to do now, and how old that is.

phone_sections(PhoneFacts(cluster, verdicts, incidents, hints, runs))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote

from api.pages import document
from store.records.event import Severity
from store.visible_text import html_text
from wire.cluster import ClusterJson
from wire.events import IncidentJson
from wire.hints import HintJson
from wire.verdicts import VerdictJson
from wire.words import values
from wire.words import verdicts as sayings

REFRESH_S = 15
MOST_ROWS, MOST_OTHERS = 20, 4
GRAVE: tuple[Severity, ...] = ("fatal", "error")
STYLE = (
    "body{margin:.6rem auto}h1{font-size:1.2rem}h2{margin-top:1.2rem}ol{list-style:none;margin:0;padding:0}"
    "li{border:1px solid var(--line);border-left-width:5px;border-radius:.4rem;padding:.5rem .7rem;margin:.5rem 0}"
    "li.fatal{border-left-color:var(--c0)}li.error{border-left-color:var(--c2)}li b{font-size:1.05rem}"
    "li p{margin:.15rem 0}li p.do{color:var(--ink);font-weight:600}a{display:inline-block;padding:.5rem 0}"
)
DAY = timedelta(days=1)
_OVER = ("closed", "validated")


@dataclass(frozen=True, slots=True)
class PhoneFacts:
    """What the page is made of: the API's own answers.

    `incidents`: the newest grave ones, `is_cut`: there are more; `hints`: the open ones, newest last; `runs`: the run
    that each incident hit, by its id.
    """

    cluster: ClusterJson
    verdicts: Sequence[VerdictJson] = ()
    incidents: Sequence[IncidentJson] = ()
    hints: Sequence[HintJson] = ()
    runs: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False


def phone_sections(facts: PhoneFacts, reloads: bool = True) -> list[str]:
    """The page from top to bottom; `reloads`: a browser loads it again by itself."""
    return [
        document.heading("Foreshock"),
        *_answer(facts),
        _freshness(facts.cluster),
        *_queue(facts),
        *_approvals(facts.hints),
        document.line("To decide, open the dashboard."),
        _reloading(reloads),
    ]


def _reloading(reloads: bool) -> str:
    """Whether it loads again, and the way out of that: who reads slowly, or has it read aloud, wants it to stay."""
    now, address, other = (
        (f"This page loads again every {REFRESH_S} s.", "?reload=no", "Do not load it again")
        if reloads
        else ("This page stays as it is.", "?reload=yes", f"Load it again every {REFRESH_S} s")
    )
    return f'{document.line(now)}<p><a href="{address}">{other}</a></p>'


def to_do(incidents: Sequence[IncidentJson], now: datetime) -> list[list[IncidentJson]]:
    """The faults of each place that are not over, the gravest first: open before taken, then the newest.

    A place is a node, or the fault itself where it is of none.
    """
    found = [one for one in incidents if one.severity in GRAVE and now - (one.shown or one.end) < DAY]
    found = [one for one in found if one.life is None or one.life.state not in _OVER]
    found = [one for one in found if one.action != "none" or one.severity == "fatal"]  # an error of a victim
    places: dict[str, list[IncidentJson]] = {}
    for one in sorted(found, key=lambda one: (sayings.is_taken(one), _grade(one), -one.start.timestamp())):
        places.setdefault(one.node or f" {one.id}", []).append(one)
    return list(places.values())


def _grade(incident: IncidentJson) -> int:
    return [*map(str, GRAVE)].index(incident.severity)


def _answer(facts: PhoneFacts) -> list[str]:
    """The most urgent cause and what to do about it; without one, how the nodes are."""
    cluster = facts.cluster
    said = [document.answer("error", values.blind(cluster).replace("`", ""))] if cluster.stale and cluster.nodes else []
    standing = sayings.by_urgency(facts.verdicts)
    if not standing:
        level, text = values.headline(cluster)
        return said or [document.answer(level, text.replace("`", ""))]
    first, *others = standing
    level, text, more = sayings.headline(first, cluster.now)
    said.append(document.answer(level, f"{text} {more}"))
    said += [
        document.line(f"Also: {sayings.title(one)} ({values.risk(one.probability)}). Do: {sayings.to_do(one)}.")
        for one in others[:MOST_OTHERS]
    ]
    if len(others) > MOST_OTHERS:
        said.append(document.line(f"and {len(others) - MOST_OTHERS:,} more verdicts"))
    return said


def _freshness(cluster: ClusterJson) -> str:
    heard = "No node was ever heard."
    if cluster.heard_until is not None:
        heard = f"The nodes were heard {values.ago(cluster.heard_until, cluster.now)}."
    age = "Old data" if cluster.stale else "Fresh data" if cluster.heard_until is not None else "No data"
    over = values.replay_over(cluster)
    stop = [values.STOPS[cluster.stop]] if cluster.stop in values.STOPS else []
    return document.line(" ".join([f"{age}. {heard} As of {values.utc(cluster.now)}.", *stop, *(over or ())]))


def _queue(facts: PhoneFacts) -> list[str]:
    places = to_do(facts.incidents, facts.cluster.now)
    title = f"<h2>Act now ({'at least ' if facts.is_cut else ''}{len(places):,})</h2>"
    if not places:
        return [title, document.line("No grave fault of the last 24 hours waits for anybody.")]
    hints = {hint.node: hint for hint in facts.hints}  # the newest of a node: they come newest last
    shown = [_place(found, hints.get(found[0].node or ""), facts) for found in places[:MOST_ROWS]]
    more = [document.line(f"and {len(places) - MOST_ROWS:,} more")] if len(places) > MOST_ROWS else []
    return [title, f"<ol>{''.join(shown)}</ol>", *more]


def _place(found: Sequence[IncidentJson], hint: HintJson | None, facts: PhoneFacts) -> str:
    first, now = found[0], facts.cluster.now
    device = values.device(first.device, brief=True, name=first.name)
    parts = (values.place(first), "" if first.device.type == "node" else device)
    where = ", ".join(part for part in parts if part)
    age = values.ago(first.start, now) if first.start <= now else values.utc(first.start)
    said = [f"<b>{html_text(values.shown(where))}</b>", document.line(f"{values.shown(values.what(first))}, {age}")]
    run = facts.runs.get(first.id)
    said += [document.line(f"Run hit: {values.shown(run)}")] if run else []
    others = len(found) - 1
    said += [document.line(f"{values.many(others, 'more fault')} on this node")] if others else []
    action = "look at it" if first.action == "none" else values.action(first.action, first.device.type)
    said.append(f'<p class="do">Do: {html_text(action)}</p>')
    said += [document.line(f"{values.NAMELESS[:1].upper()}{values.NAMELESS[1:]}.")] if values.is_nameless(first) else []
    if hint is not None:
        state = values.hint_state(hint.state, hint.action, facts.cluster.stop)
        said.append(document.line(f"Hint: {values.shown(hint.action)}, {values.shown(state)}"))
    said += [document.line(text) for text in _life(first)]
    if "/" not in first.id:  # no path leads to such an id
        link = f"api/v1/print/incidents/{quote(first.id, safe='')}"
        said.append(f'<a href="{html_text(link)}">More of it</a>')
    return f'<li class="{html_text(first.severity)}">{"".join(said)}</li>'


def _life(incident: IncidentJson) -> list[str]:
    life = incident.life
    if life is None:
        return []
    state = values.LIVES.get(life.state, life.state)
    whom = f", with {life.owner.removeprefix('person:')}" if life.owner else ""
    said = [values.shown(f"{state[:1].upper()}{state[1:]}{whom}")] if life.state != "open" else []
    return said + ([f"Silent until {values.utc(life.silenced_until)}"] if life.silenced_until else [])


def _approvals(hints: Sequence[HintJson]) -> list[str]:
    waiting = [hint for hint in hints if hint.state == "proposed"]
    if not waiting:
        return []
    named = ", ".join(values.shown(f"{hint.action} {hint.node}") for hint in waiting[:MOST_ROWS])
    more = f" and {len(waiting) - MOST_ROWS:,} more" if len(waiting) > MOST_ROWS else ""
    return [f"<h2>Wait for approval ({len(waiting):,})</h2>", document.line(f"{named}{more}")]
