"""What a fault code of an Ascend NPU, of a switch between NPUs or of their host means: `catalogs/ascend.csv`.

    coded(Event(..., kind=""), "80E18005") -> Event(kind="ascend_fault", code=0x80E18005, severity="error",
                                                    action="reset_gpu", attributes={"fault_code": "80E18005"})

A code that no table knows stays a fault, to be looked at: it is never dropped.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Literal

from store.catalog_rows import rows
from store.records.event import ACTIONS, CAUSES, SEVERITIES, Action, Cause, Event, Severity, from_wire

# What a fault code means: severity, cause and action of each Xid, SXid and NVLink 5 error, from CSV tables.
#
# The tables under `catalogs/` name their sources in their first lines. A code that no table knows stays an event,
# with cause `unknown`: it is never dropped.

_SEVERITY: dict[str, Severity] = {word: word for word in SEVERITIES}
_CAUSE: dict[str, Cause] = {word: word for word in CAUSES}
_ACTION: dict[str, Action] = {word: word for word in ACTIONS}


_THEN: Mapping[Action, str] = {"contact_support": "contact support"}

# Kinds whose code says what they mean, by the table that knows it.
_CODED = {"xid": "xid", "quoted_xid": "xid", "sxid": "sxid", "sxid_detail": "sxid", "fabricmanager_nvswitch": "sxid"}
# What these mean is in the line: the recovery action, the subcode of an NVLink 5 unit.
_SAID_BY_LINE = {("xid", code) for code in (*range(144, 151), 154)}


@dataclass(frozen=True, slots=True)
class Fault:
    """One code's meaning.

    Attributes:
        then: what to do where the action did not help for good; None where the sources say nothing.
        decided_by_line: the log line's own Fatal or Non-fatal decides the severity.
    """

    code: int
    description: str
    severity: Severity
    cause: Cause
    action: Action
    then: Action | None = None
    decided_by_line: bool = False

    def meaning(self) -> str:
        """The description, with what to do if the fault comes again."""
        again = "" if self.then is None else f"; if it comes again, {_THEN[self.then]}"
        return self.description + again


@dataclass(frozen=True, slots=True)
class NvlinkFault:
    """One NVLink 5 error: a unit, the bits of intrinfo (two driver layouts) and the error status that mean it.

    An empty pattern or no error status means any.
    """

    xid: int
    unit: str
    intrinfo_v1: str
    intrinfo_v2: str
    error_status: tuple[int, ...]
    severity: Severity
    cause: Cause
    action: Action


@dataclass(frozen=True, slots=True)
class KindMeaning:
    """One kind of event's meaning, in one of its variants."""

    kind: str
    variant: str
    severity: Severity
    cause: Cause
    action: Action
    description: str


@cache
def _faults(table: str) -> dict[int, Fault]:
    found = {}
    for row in rows(table):
        printed = row["severity"] == "printed"
        found[int(row["code"])] = Fault(
            code=int(row["code"]),
            description=row["description"],
            severity="warning" if printed else _SEVERITY[row["severity"]],
            cause=_CAUSE[row["cause"]],
            action="watch" if printed else _ACTION[row["action"]],
            then=_ACTION[row["then"]] if row.get("then") else None,
            decided_by_line=printed,
        )
    return found


def xid(code: int) -> Fault | None:
    """What an Xid means, or None for a code that the table does not know."""
    return _faults("xid").get(code)


def sxid(code: int) -> Fault | None:
    """What an SXid means, or None for a code that the table does not know."""
    return _faults("sxid").get(code)


@cache
def nvlink5() -> tuple[NvlinkFault, ...]:
    """The NVLink 5 table, in its order."""
    return tuple(
        NvlinkFault(
            xid=int(row["xid"]),
            unit=row["unit"],
            intrinfo_v1=row["intrinfo_v1"],
            intrinfo_v2=row["intrinfo_v2"],
            error_status=tuple(int(word, 16) for word in row["error_status"].split("/") if word),
            severity=_SEVERITY[row["severity"]],
            cause=_CAUSE[row["cause"]],
            action=_ACTION[row["action"]],
        )
        for row in rows("nvlink5")
    )


@cache
def kind_meanings() -> Mapping[tuple[str, str], KindMeaning]:
    """Every kind of event that is judged by its kind alone, by kind and variant."""
    return _judgements("kinds", "kind", "variant")


@cache
def opensm_errors() -> Mapping[tuple[str, str], KindMeaning]:
    """What the subnet manager's error codes mean, by code and function (empty: whichever says it)."""
    return _judgements("opensm", "error", "function")


def _judgements(table: str, name: str, variant: str) -> Mapping[tuple[str, str], KindMeaning]:
    return {
        (row[name], row[variant]): KindMeaning(
            kind=row[name],
            variant=row[variant],
            severity=_SEVERITY[row["severity"]],
            cause=_CAUSE[row["cause"]],
            action=_ACTION[row["action"]],
            description=row["description"],
        )
        for row in rows(table)
    }


@cache
def _by_kind() -> Mapping[str, tuple[KindMeaning, ...]]:
    found: dict[str, list[KindMeaning]] = {}
    for kind in kind_meanings().values():
        found.setdefault(kind.kind, []).append(kind)
    return {name: tuple(rows) for name, rows in found.items()}


@cache
def kind_description(kind: str, code: int | None, severity: Severity, cause: Cause) -> str | None:
    """What a kind of event means to people, in the form that has this severity and cause; None: no table knows it."""
    if kind in _CODED:
        fault = None if code is None else _faults(_CODED[kind]).get(code)
        return None if fault is None else fault.meaning()
    forms = _by_kind().get(kind, ())
    if not forms:
        return None
    own = None if code is None else coded_form(kind, code)[0]
    best = max(
        forms,
        key=lambda form: (form.variant == own, form.severity == severity, form.cause == cause, form.variant == ""),
    )
    return best.description


def named_kind(kind: str, code: int | None) -> str:
    """A kind with its code as its maker writes it: `xid 79`, `ascend_fault 80818C00`, `link_down`."""
    if code is None:
        return kind
    return f"{kind} {code:08X}" if kind in ("ascend_fault", "ascend_fault_cleared") else f"{kind} {code}"


def coded_form(kind: str, code: int) -> tuple[str | None, str]:
    """Which form of its kind a code is, and what its vendor calls it; None for one that no table knows."""
    if kind == "gpu_afid":
        return _afids().get(code, (None, ""))
    known = kind == "mlu_xid" and (kind, str(code)) in kind_meanings()
    return str(code) if known else None, ""


@cache
def _afids() -> Mapping[int, tuple[str | None, str]]:
    return {int(row["code"]): (row["form"], row["name"]) for row in rows("afid")}


def code_description(kind: str, code: int | None) -> str | None:
    """What an Xid or SXid means; None where its line says more, or no table knows it."""
    if kind not in ("xid", "sxid") or code is None or (kind, code) in _SAID_BY_LINE:
        return None
    fault = _faults(_CODED[kind]).get(code)
    return None if fault is None else fault.description


def with_kind_meaning(event: Event, variant: str = "") -> Event:
    """The event with its kind's severity, cause and action, and the kind's description where it bears no message.

    Raises:
        KeyError: the table has no such kind and variant; a test feeds every decoder, so none is met at run time.
    """
    known = kind_meanings()[event.kind, variant]
    return Event(  # as replace() does, three times as fast
        event.time,
        event.node,
        event.source,
        event.kind,
        event.code,
        known.severity,
        known.cause,
        known.action,
        event.device,
        event.message or known.description,
        event.attributes,
        event.line,
        event.file,
        event.id,
    )


# Which measures are counters, and what it means when one rises: the table `catalogs/counters.csv`.
#
# counter("nvlink_crc_l3", "gpu") -> Counter("nvlink_crc", "warning", "hardware", "NVLink CRC error(s) on link 3")
# counter("gpu_temp_c", "gpu")    -> None

# Names remembered; a page may hold any.
_REMEMBERED = 8192
_LINK = re.compile(r"(.+)_l[0-9a-z]{1,4}")
_PLURAL = re.compile(r"\((e?s)\)")


@dataclass(frozen=True, slots=True)
class Counter:
    """What a rise means, and what it is called: `words` has `(s)` where many make a plural."""

    kind: str
    severity: Severity
    cause: Cause
    words: str = ""

    def rise(self, count: float) -> str:
        """A rise in words: "1 more PCIe replay", "slowed down by heat for 2.5 s"."""
        if "{s}" in self.words:
            return self.words.replace("{s}", f"{count / 1e9:.3g}")
        more = f"{count:.0f}"
        ending = "" if more == "1" else r"\1"
        return f"{more} more {_PLURAL.sub(ending, self.words)}"


@lru_cache(maxsize=_REMEMBERED)
def counter(name: str, device: str) -> Counter | None:
    """What the rise of a measure of a type of device means; None for a measure that is no counter of ours."""
    exact, patterns = _counters()
    found = exact.get((name, device)) or exact.get((name, ""))
    if found is not None:
        return found
    matched = ((pattern.fullmatch(name), known) for pattern, known in patterns)
    return next((replace(one, words=one.words.replace("*", match[1])) for match, one in matched if match), None)


def link_counters(names: Iterable[str]) -> set[str]:
    """Totals among names of counters that rose, of which a link's own counter rose as well."""
    return {match[1] for match in map(_LINK.fullmatch, names) if match}


@cache
def _counters() -> tuple[dict[tuple[str, str], Counter], list[tuple[re.Pattern[str], Counter]]]:
    exact: dict[tuple[str, str], Counter] = {}
    patterns: list[tuple[re.Pattern[str], Counter]] = []
    for row in rows("counters"):
        words: Event = from_wire({**row, "source": "table"})  # refuses words that are none of ours
        known = Counter(words.kind, words.severity, words.cause, row["words"])
        if "*" in row["name"]:
            patterns.append((re.compile(re.escape(row["name"]).replace(r"\*", "([0-9a-z]+)")), known))
        else:
            exact[row["name"], row["devices"]] = known
    return exact, patterns


AscendPart = Literal["npu", "switch", "node"]
# How a code is handled that its table does not know.
_UNKNOWN_HANDLING: Mapping[AscendPart, str] = {"npu": "", "switch": "switch", "node": "node"}


@cache
def _ascend_handlings() -> Mapping[str, str]:
    return {row["code"]: row["handling"] for row in rows("ascend")}


def ascend_handling(code: str, of: AscendPart = "npu") -> str:
    """How a code is handled: a variant of the kind `ascend_fault`.

    An NPU's and a host's are hex digits; a switch's is `0x00f1fef5,155914,L2,na`, as its log writes it.
    """
    if of == "switch":
        key = code.replace(" ", "").replace(",", "/")
    else:
        key = ("node/" if of == "node" else "") + code.upper()
    return _ascend_handlings().get(key, _UNKNOWN_HANDLING[of])


def with_ascend_code(event: Event, code: str, of: AscendPart = "npu", *, over: bool = False) -> Event:
    """The event as a fault of that code, or as its end."""
    number = code.split(",")[0].strip().removeprefix("0x")
    text = code.replace(" ", "") if of == "switch" else code.upper()
    fault = replace(
        event,
        kind="ascend_fault_cleared" if over else "ascend_fault",
        code=int(number, 16),
        attributes={"fault_code": text, **event.attributes},
    )
    return with_kind_meaning(fault, "" if over else ascend_handling(code, of))


# Fault codes that an exporter shows of an accelerator: Ascend's codes, AMD's field identifiers, Cambricon's Xids.
#
# shown_codes({"error_code": 2162167809.0, "gpu_temp_c": 61.0}) -> {ShownCode("ascend_fault", 0x80E01801)}
# with_shown_code(event, ShownCode("gpu_afid", 18, "fatal")) -> Event(kind="gpu_afid", code=18, severity="error", ...)
#
# The numbers of Cambricon's Xids have nothing to do with NVIDIA's. Tables: `kinds.csv` (`mlu_xid`, by number),
# `afid.csv`, `ascend.csv`. A code that no table knows stays a fault: it is never dropped.

# The measures that hold such codes begin with one of these.
CODES = ("error_code", "afid_", "mlu_xid_last")
_AFID = re.compile(r"afid_(?P<severity>[a-z_]{4,24})_\d{1,4}", re.ASCII)
_FORMS = {"fatal": "fatal", "non_fatal_uncorrected": "uncorrected", "non_fatal_corrected": "corrected"}
_MOST_CODE = 2**53


@dataclass(frozen=True, slots=True, order=True)
class ShownCode:
    """One code. `severity`: what the exporter's label says of it, of AMD's alone."""

    kind: str
    code: int
    severity: str = ""

    def stands(self) -> bool:
        """Whether it is shown only while its fault lasts; the others are of the last event, however old."""
        return self.kind == "ascend_fault"


def shown_codes(values: Mapping[str, float]) -> frozenset[ShownCode]:
    """The codes among the values of one device; 0 is none."""
    found: set[ShownCode] = set()
    for name, value in values.items():
        if not name.startswith(CODES) or not 0 < value < _MOST_CODE:
            continue
        if name.startswith("error_code"):
            found.add(ShownCode("ascend_fault", int(value)))
        elif name == "mlu_xid_last":
            found.add(ShownCode("mlu_xid", int(value)))
        elif match := _AFID.fullmatch(name):
            found.add(ShownCode("gpu_afid", int(value), match["severity"]))
    return frozenset(found)


def with_shown_code(event: Event, shown: ShownCode, *, over: bool = False) -> Event:
    """The event as that code's fault, or as its end where it is known to end."""
    if shown.kind == "ascend_fault":
        return with_ascend_code(event, f"{shown.code:08X}", over=over)
    if shown.kind == "mlu_xid":
        return with_mlu_xid(event, shown.code)
    form, name = coded_form("gpu_afid", shown.code)
    form = _FORMS.get(shown.severity, "") if form is None else form
    coded = with_kind_meaning(replace(event, kind="gpu_afid", code=shown.code, message=""), form)
    told = f"AFID {shown.code}: {coded.message}" + (f" ({name})" if name else "")
    return replace(coded, message=told, attributes={"afid": shown.code, **event.attributes})


def with_mlu_xid(event: Event, code: int) -> Event:
    """The event as Cambricon's Xid of that number; a message that it bears stays."""
    coded = with_kind_meaning(replace(event, kind="mlu_xid", code=code), coded_form("mlu_xid", code)[0] or "")
    return coded if event.message else replace(coded, message=f"MLU Xid {code}: {coded.message}")
