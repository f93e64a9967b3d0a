"""A site's rules: read, refused with a place, applied to events and lines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.registry import SiteRulesParser, make_parser
from parsers.site_rules.rules import (
    MAX_FAULTS,
    MAX_PATTERNS,
    NO_RULES,
    RulesError,
    SiteRules,
    no_rules,
    read_rules,
)
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event

EXAMPLE = Path(__file__).parents[2] / "deploy" / "rules.example.yaml"
XID = "2025-03-01T04:05:06Z gpu-017 kernel: NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=a, Ch 00000008"
STALL = "2025-03-01T04:05:07Z gpu-017 mmfs[12]: [E] deadlock detected on fs7"
XID_43, XID_79 = (Event(None, "n", "kernel", "xid", code, "error", "hardware", "watch") for code in (43, 79))


def events(text: str, *lines: str, name: str = "kernel") -> list[Event]:
    """The events of lines under rules."""
    rules = read_rules(text, "rules.yaml")
    return list(parse(make_parser(name, Context(), lambda: rules), lines))


def test_the_example_holds_and_says_what_it_says() -> None:
    """The file that the documentation points to."""
    rules = read_rules(EXAMPLE.read_text(), "example")
    xid, stall = events(EXAMPLE.read_text(), XID, STALL)
    assert (len(rules.faults), len(rules.patterns)) == (3, 1)
    assert (xid.severity, xid.cause, xid.action) == ("info", "application", "none")
    assert (stall.kind, stall.node, stall.severity, stall.cause) == ("gpfs_deadlock", "gpu-017", "error", "storage")
    assert stall.attributes == {"pattern": "gpfs_deadlock", "name": "fs7"}
    assert str(stall.time) == "2025-03-01 04:05:07+00:00"


def test_a_code_counts_before_its_kind_and_what_is_left_out_stays() -> None:
    """Two rows of one kind."""
    rules = read_rules(
        "faults: [{kind: xid, severity: info}, {kind: xid, code: 79, action: replace_part}]", "rules.yaml"
    )
    first, second = rules.judge(XID_43), rules.judge(XID_79)
    assert (first.severity, first.cause, first.action) == ("info", "hardware", "watch")
    assert (second.severity, second.cause, second.action) == ("error", "hardware", "replace_part")


def test_the_same_text_is_the_same_version_and_no_text_changes_nothing() -> None:
    """An empty file is no rules."""
    one, other = (read_rules(text, "r") for text in ("faults: []\n", "patterns: []\n"))
    assert one.version == read_rules("faults: []\n", "elsewhere").version != other.version
    assert no_rules() is NO_RULES
    assert read_rules("", "r").judge(XID_43) == NO_RULES.judge(XID_43) == XID_43


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("faults:\n  - {kind: xid, code: 43}\n", 2, "changes nothing"),
        ("faults:\n  - kind: xid\n    severity: bad\n", 3, "severity is 'bad': use one of info, warning"),
        ("faults:\n  - kind: xid\n    code: x\n    severity: info\n", 3, "code must be a number"),
        ("faults:\n  - {kind: a, severity: info}\n  - {kind: a, severity: error}\n", 3, "stands above"),
        ("faults:\n  - {severity: info}\n", 2, "kind must be a text"),
        ("faults:\n  - 7\n", 2, "must hold keys and values"),
        ("\nfaults: 7\n", 2, "must be a list"),
        ("faults: []\nfoo: 1\n", 2, "foo is no key: use faults, patterns"),
        ("- 1\n", 1, "the file must hold keys and values"),
        ("patterns:\n  - name: a\n    match: '(a'\n", 3, "is no RE2 pattern"),
        ("patterns:\n  - name: a\n    match: '(?=a)'\n", 3, "is no RE2 pattern"),
        ("patterns:\n  - name: a\n", 2, "match must be a pattern"),
        ("patterns:\n  - {name: a, match: b}\n  - {name: a, match: c}\n", 3, "names are unique"),
        ("patterns:\n  - {name: a, match: b, cause: gremlins}\n", 2, "cause is 'gremlins'"),
    ],
)
def test_what_does_not_hold_is_named_with_its_line(text: str, line: int, why: str) -> None:
    """File, line, key and remedy."""
    with pytest.raises(RulesError, match=rf"^rules\.yaml, line {line}: ") as error:
        read_rules(text, "rules.yaml")
    assert why in str(error.value)


@pytest.mark.parametrize("text", ["a: [", "\x00", "!!python/object:os.system {}", "a: &x [*x]", "{" * 3000])
def test_what_is_no_yaml_is_refused(text: str) -> None:
    """And never run."""
    with pytest.raises(RulesError, match=r"rules\.yaml"):
        read_rules(text, "rules.yaml")


def test_too_many_of_anything_are_refused() -> None:
    """A limit on every list, and on the file."""
    faults = "faults:\n" + "".join(f"- {{kind: k{n}, severity: info}}\n" for n in range(MAX_FAULTS + 1))
    patterns = "patterns:\n" + "".join(f"- {{name: k{n}, match: x}}\n" for n in range(MAX_PATTERNS + 1))
    for text in (faults, patterns, "#" * (1024 * 1024 + 1)):
        with pytest.raises(RulesError, match=r"the most|is over"):
            read_rules(text, "rules.yaml")


@given(text=st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else is raised."""
    try:
        assert isinstance(read_rules(text, "r"), SiteRules)
    except RulesError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("match", "line", "found"),
    [
        ("deadlock", STALL, 1),
        ("^\\[E\\] deadlock", STALL, 1),  # an anchor means the message's begin
        ("^gpu-017", STALL, 0),
        ("gpu-017", STALL, 0),  # the prefix is not searched
        ("(?i)DEADLOCK", STALL, 1),
        ("deadlock", STALL.replace("mmfs[12]", "other"), 0),  # another program's
    ],
)
def test_a_pattern_is_searched_in_the_message_of_its_program(match: str, line: str, found: int) -> None:
    """Whatever stands before the message."""
    text = f"patterns: [{{name: a, program: mmfs, match: '{match}'}}]"
    assert len(events(text, line)) == found


def test_a_pattern_of_anybody_finds_every_program_and_a_bare_line() -> None:
    """`*`; the default is the kernel."""
    for program, count in (("'*'", 3), ("kernel", 2)):
        text = f"patterns: [{{name: a, program: {program}, match: 'dead(?P<pci>[0-9a-f:.]*)lock'}}]"
        found = events(text, STALL, "kernel: dead0000:3b:00lock", "deadlock")
        assert len(found) == count
        assert "0000:3b:00.0" in {event.device.pci for event in found}


def test_a_line_may_be_the_formats_and_a_patterns() -> None:
    """Both events are given, in the line's order of sense: what the format says first."""
    text = "faults: [{kind: xid, severity: info}]\npatterns: [{name: ours, match: 'Xid .* Ch'}]"
    assert [event.kind for event in events(text, XID)] == ["xid", "ours"]


def test_patterns_search_syslog_alone_and_faults_hold_for_every_format() -> None:
    """An opensm record is judged anew, its line is not searched."""
    line = (
        "Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
        "LID range [17, 17] of node:gpu007 mlx5_0"
    )
    text = "faults: [{kind: port_removed, severity: info}]\npatterns: [{name: a, program: '*', match: Removed}]"
    assert [(event.kind, event.severity) for event in events(text, line, name="opensm")] == [("port_removed", "info")]


def test_new_rules_hold_from_the_next_line_on() -> None:
    """The parser is not made anew."""
    rules = [read_rules("", "r"), read_rules("faults: [{kind: xid, severity: fatal}]", "r")]
    present = iter((rules[0], rules[1], rules[0]))
    parser = make_parser("kernel", Context(), lambda: next(present))
    assert [next(iter(parser.feed(XID, n))).severity for n in (1, 2, 3)] == ["info", "fatal", "info"]


def test_a_broken_line_that_a_pattern_finds_is_that_events_and_no_error() -> None:
    """The format's refusal counts only where nobody understands the line."""

    class Broken:
        def feed(self, text: str, line: int) -> list[Event]:
            raise ParseError(text)

        def flush(self) -> list[Event]:
            return []

    rules = read_rules("patterns: [{name: a, match: known}]", "r")
    parser = SiteRulesParser(Broken(), "kernel", Context(), lambda: rules)
    assert [event.kind for event in parser.feed("kernel: known", 1)] == ["a"]
    with pytest.raises(ParseError):
        list(parser.feed("kernel: strange", 2))


def test_a_pattern_that_would_run_away_elsewhere_does_not_here() -> None:
    """RE2's time is linear in the line."""
    text = "patterns: [{name: a, match: '(a+)+$'}]"
    assert events(text, "kernel: " + "a" * 60_000 + "b") == []


def test_what_a_line_gave_before_it_broke_is_kept() -> None:
    """By a parser that gives its events one by one, under rules and in a mixed log too."""

    class Halfway:
        def feed(self, text: str, line: int) -> Iterator[Event]:
            yield XID_79
            raise ParseError(text)

        def flush(self) -> list[Event]:
            return []

    rules = read_rules("faults: [{kind: xid, severity: info}]", "r")
    errors: list[int] = []
    for parser in (SiteRulesParser(Halfway(), "kernel", Context(), lambda: rules), Halfway()):
        assert len(list(parse(parser, ["x"], lambda line, _error: errors.append(line)))) == 1
    assert errors == [1, 1]
