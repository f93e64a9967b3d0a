"""The formats that Foreshock reads: one line here, one file in `formats/`, one fixture pair.

    detect(["Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> SUBNET UP"])    "opensm"
    make_parser("kernel", context, rules_file.current)                its parser, under a site's rules

`auto` tries the formats in this order: a format whose lines the pattern of another finds too comes before that one.
A format is loaded when it is first used. Rules may change while a log is followed: they hold from the next line on.
"""

import importlib
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING

from parsers.site_rules.rules import NO_RULES, RulesSource, SiteRules
from parsers.text.lines import split
from parsers.text.parser import (
    MAX_LINE,
    UNREADABLE,
    Context,
    Format,
    FormatSigns,
    ParseError,
    Parser,
    clean,
    parse_error,
)
from parsers.text.scan import Block, LineSelection, LineSelector, by_re2
from parsers.trust import TrustedParser
from store.records.event import Event
from store.records.event_sources import Trust, may_tell

if TYPE_CHECKING:
    import re2

    from parsers.site_rules.patterns import PatternMatcher

# Each is the FORMAT of the module of its name.
_NAMES = (
    "nvsentinel",
    "kubelet",
    "kubernetes",
    "alertmanager",
    "gpud",
    "redfish",
    "nvrx",
    "flight",
    "ncclras",
    "pyspy",
    "hook",
    "otel",
    "mlgoodput",
    "dlrover",
    "dcgmi",
    "dcgm",
    "npu",
    "node_exporter",
    "cambricon",
    "amd",
    "ascend",
    "opensm",
    "ufm",
    "switch",
    "ibqueryerrors",
    "iblinkinfo",
    "ibnetdiscover",
    "perfquery",
    "optics",
    "nvidia_smi",
    "npu_smi",
    "hccn",
    "cnmon",
    "rocm_smi",
    "amd_smi",
    "checkpoints",
    "sacctmgr",
    "sacct",
    "squeue",
    "sinfo",
    "scontrol",
    "slurmctld",
    "slurmd",
    "nhc",
    "rasdaemon",
    "ipmi_sel",
    "hostengine",
    "training",
    "fabricmanager",
    "kernel",
)


class _Formats(Mapping[str, Format]):
    """Every format by its name, in order."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._formats: dict[str, Format | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Format:
        found = self._formats[name]
        if found is None:
            found = self._formats[name] = importlib.import_module(f"parsers.formats.{name}").FORMAT
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._formats

    def __iter__(self) -> Iterator[str]:
        return iter(self._formats)

    def __len__(self) -> int:
        return len(self._formats)


PARSERS: Mapping[str, Format] = _Formats(_NAMES)

# How many lines to look at: a training log opens with some 1,500 lines of settings.
SAMPLE_LINES = 4000
# Lines before the first that speaks for a format: so many of them are kept for it.
HEADING_LINES = 16
# What a log of several formats is called; `make_parser` knows it.
MIXED = "mixed"


def detect(sample_lines: Sequence[str], trust: Trust | None = None) -> str | None:
    """The name of the format that the lines speak for, MIXED where they speak for several; None for none.

    Of a log of a trust only formats count that it may tell: whatever a user prints, his log is none of the kernel's.
    """
    hits: Counter[str] = Counter()
    in_document = False
    for text in sample_lines:
        name = recognise(text)
        if name is None or not may_tell(trust, name):
            continue
        if PARSERS[name].shape == "document":
            in_document = True
        elif in_document and text[:1].isspace():  # a kernel message, say, that the document quotes
            continue
        if PARSERS[name].shape == "table":  # its rows are of no form that could be recognised
            return name
        hits[name] += 1
    if len(hits) > 1:
        return MIXED
    return next(iter(hits), None)


def recognise(text: str) -> str | None:
    """The format that a line speaks for, the first of the registry that recognises it; None where none does."""
    known = recogniser()
    return known(text) or next((name for name, reads in known.readers if reads(text)), None)


# Of fewer lines nobody can say that they are of another format; of more than the most, these are looked at.
_FEW_LINES = 10
_MOST_LINES = 100_000


def misread(name: str, texts: Iterable[str]) -> str | None:
    """Why the lines of a log that told nothing are hardly of a format; None where they may be.

    Not one has the format's shape, and most have another's, or the format is no log. A log in which nothing is wrong
    has lines of its format, or lines of anyone's: of those nothing is said.
    """
    entry, sample, count = PARSERS[name], list[str](), 0
    for text in islice(filter(str.strip, texts), _MOST_LINES):
        if entry.recognises.search(text) or (entry.reads is not None and entry.reads(text)):
            return None
        count += 1
        if len(sample) < SAMPLE_LINES:
            sample.append(text)
    if count < _FEW_LINES:
        return None
    other, hits = max(Counter(map(recognise, sample)).items(), key=lambda one: (one[0] is not None, one[1]))
    if other is not None and (PARSERS[other].shape != "log" or 2 * hits > len(sample)):
        return f"no line of {count} is of the format {name}: it looks like {other}"
    return None if entry.shape == "log" else f"no line of {count} is of the format {name}"


# Control characters that Python takes for blanks or for a line's end, and RE2 does not.
_ODD = re.compile(r"[\n\x0b\x1c-\x1f]")
_MAX_MEMORY_BYTES = 64 * 1024 * 1024


class Recogniser:
    """Every format's pattern, ready: one search for all formats at once instead of one for each.

    RE2 says which patterns may match, and only those are tried. What RE2 cannot read (a look-ahead) is always tried.
    """

    def __init__(self) -> None:
        import re2  # only here: who names a log's format needs it not

        limits = re2.Options()
        limits.log_errors = False
        limits.max_mem = _MAX_MEMORY_BYTES
        self._set = re2.Set.SearchSet(limits)
        self._in_set: list[int] = []
        self._always: list[int] = []
        self._entries = list(PARSERS.items())
        for place, (_, entry) in enumerate(self._entries):
            try:
                self._set.Add(entry.recognises.pattern)
            except re2.error:
                self._always.append(place)
            else:
                self._in_set.append(place)
        self._set.Compile()
        # The formats that tell by more than a pattern whether a line is theirs.
        self.readers = [(name, entry.reads) for name, entry in self._entries if entry.reads is not None]

    def __call__(self, text: str) -> str | None:
        """The first format of the registry whose pattern finds something in the line; None where none does."""
        tried: Iterable[int] = range(len(self._entries))
        # RE2 knows ASCII's digits and blanks alone: a line that holds others is tried with every pattern.
        if text.isascii() and (text.isprintable() or not _ODD.search(text)):
            hits = self._set.Match(text) or ()
            tried = sorted([self._in_set[hit] for hit in hits] + self._always)
        for place in tried:
            name, entry = self._entries[place]
            if entry.recognises.search(text):
                return name
        return None


@cache
def recogniser() -> Recogniser:
    """The process's one: it is made when it is first asked."""
    return Recogniser()


class MixedParser:
    """Hands each line to the format that it speaks for.

    A line that speaks for none may be more of any record before it: every format met so far is shown it. What stands
    before the first line that speaks for a format may begin a record of it (a date, a name): that format is shown it.
    """

    def __init__(self, make: Callable[[str], Parser]) -> None:
        """`make` gives the parser of a format's name."""
        self._make = make
        self._parsers: dict[str, Parser] = {}
        self._before: deque[tuple[str, int]] = deque(maxlen=HEADING_LINES)

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line.

        Raises:
            ParseError: the line is broken to all that were shown it.
        """
        name = recognise(text)
        if name is not None:
            if name not in self._parsers:
                self._parsers[name] = self._make(name)
            parser = self._parsers[name]
            if not self._before:
                return parser.feed(text, line)
            before = list(self._before)
            self._before.clear()
            return _all([partial(parser.feed, *heading) for heading in before] + [partial(parser.feed, text, line)])
        if not self._parsers:
            self._before.append((text, line))
            return []
        return _all([partial(parser.feed, text, line) for parser in self._parsers.values()])

    def flush(self) -> Iterable[Event]:
        """What the formats held back."""
        return _all([parser.flush for parser in self._parsers.values()])


# What RE2 and Python may read differently, or what a reader takes out: such lines are asked about one by one.
_ODD_BYTES = rb"[^\x01-\x7f]|[\x0b\x1c-\x1f]"
_GROUP_NAME = re.compile(r"\(\?P<\w+>")


class MixedSelector:
    """The lines that a `MixedParser` must be fed, of blocks in turn: what it makes of them is the same as of all lines.

    Where a line speaks for a format without signs, all from its block on may belong to that format's records. What
    stands before the first line that speaks for any format may be the beginning of its record.
    """

    def __init__(self) -> None:
        all_signs = [entry.signs for entry in PARSERS.values() if entry.signs is not None]
        signs = FormatSigns(
            tuple(dict.fromkeys(literal for one in all_signs for literal in one.literals)),
            "|".join(one.starts for one in all_signs if one.starts),
        )
        self._met: set[str] = set()
        self._is_whole = False
        self._search_signs = by_re2(signs)
        self._spoken = self._unmet()
        self._select = LineSelector(signs, self._search, all_signs)

    def __call__(self, blocks: Iterable[bytes]) -> Iterator[LineSelection]:
        """What is to be read of each block."""
        for block in blocks:
            selected = LineSelection(0, []) if self._is_whole else self._select(block, 0, len(block))
            if self._is_whole or not self._met:
                texts = list(enumerate(map(clean, split(block))))
                selected = LineSelection(len(texts), texts)
            yield selected

    def _search(self, block: Block, start: int, end: int) -> list[int]:
        """Places in lines with signs, and in the first line of each format that was not met before."""
        places = self._search_signs(block, start, end)
        at = start
        while at < end and (match := self._spoken.search(block, at, end)):
            begin = block.rfind(b"\n", start, match.start()) + 1 or start
            stop = block.find(b"\n", match.start(), end)
            at = end if stop < 0 else stop + 1
            name = recognise(clean(bytes(block[begin : min(at, begin + MAX_LINE)])))
            if name is None or name in self._met:
                continue
            if PARSERS[name].signs is None:
                self._is_whole = True
                break
            places += _lines_before(block, start, begin) if not self._met else []
            places.append(begin)
            self._met.add(name)
            self._spoken = self._unmet()
        return sorted(places)

    def _unmet(self) -> "re2._Regexp[bytes]":
        """What finds a line that may speak for a format that was not met."""
        import re2  # only here: who names a log's format needs it not

        limits = re2.Options()
        limits.log_errors, limits.max_mem = False, _MAX_MEMORY_BYTES
        limits.never_nl, limits.encoding = True, re2.Options.Encoding.LATIN1
        ways = [
            entry.loosely or _GROUP_NAME.sub("(?:", entry.recognises.pattern)
            for name, entry in PARSERS.items()
            if name not in self._met
        ]
        return re2.compile(
            b"(?m:" + b"|".join([*(b"(?:%b)" % way.encode() for way in ways), _ODD_BYTES]) + b")", limits
        )


def _lines_before(block: Block, start: int, at: int) -> Iterator[int]:
    """Where the lines begin that may be the heading of a record."""
    for _ in range(HEADING_LINES):
        if at <= start:
            return
        at = block.rfind(b"\n", start, at - 1) + 1 or start
        yield at


def _all(steps: Sequence[Callable[[], Iterable[Event]]]) -> list[Event]:
    """The events of every step; an error only where there is nothing else."""
    found: list[Event] = []
    broken: ParseError | None = None
    for step in steps:
        try:
            for event in step():
                found.append(event)  # extend() does not promise to keep them
        except UNREADABLE as error:
            broken = broken or parse_error(error)
    if broken is not None and not found:
        raise broken
    return found


# The format whose lines are searched for patterns: the one that reads lines of any program.
SEARCHED = "kernel"


def make_parser(format_name: str, context: Context, rules: RulesSource | None = None) -> Parser:
    """A format's parser, or that of several (`MIXED`), under a site's rules where there are any.

    Of a log of a trust (`context.trust`) it gives only what the log's writer may tell.

    Raises:
        KeyError: there is no such format.
    """
    if format_name == MIXED:
        return MixedParser(lambda name: make_parser(name, context, rules))
    inner: Parser = PARSERS[format_name].make(context)
    if rules is not None:
        inner = SiteRulesParser(inner, format_name, context, rules)
    return inner if context.trust is None else TrustedParser(inner, context)


class SiteRulesParser:
    """Another parser's events as the site reads them."""

    def __init__(self, inner: Parser, format_name: str, context: Context, rules: RulesSource) -> None:
        self._inner = inner
        self._format = format_name
        self._context = context
        self._rules = rules
        self._seen = NO_RULES
        self._matcher: PatternMatcher | None = None

    def feed(self, text: str, line: int) -> Iterator[Event]:
        """The format's events of the line, and those of the patterns that it matches.

        Raises:
            ParseError: the format says so, and no pattern matches the line.
        """
        rules = self._renewed()
        found = [] if self._matcher is None else list(self._matcher.events(text, line, self._format))
        try:
            yield from map(rules.judge, self._inner.feed(text, line))
        except ParseError:
            if not found:
                raise
        yield from found

    @property
    def holds(self) -> bool:
        """Whether the format may hold something back."""
        return bool(getattr(self._inner, "holds", True))

    def flush(self) -> Iterator[Event]:
        """What the format held back."""
        yield from map(self._renewed().judge, self._inner.flush())

    def _renewed(self) -> SiteRules:
        rules = self._rules()
        if rules is not self._seen:
            self._seen = rules
            searched = self._format == SEARCHED and rules.patterns
            self._matcher = self._make_matcher(rules) if searched else None
        return rules

    def _make_matcher(self, rules: SiteRules) -> "PatternMatcher":
        from parsers.site_rules.patterns import PatternMatcher  # only here: without patterns nobody needs RE2

        return PatternMatcher(rules.patterns, self._context)
