"""A parser under a site's rules: faults judged anew, patterns searched beside the format's own.

    parser = make_parser("kernel", context, rules_file.current)

Rules may change while a log is followed: the next line is read by the new ones.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from parsers.auto import MIXED, MixedParser
from parsers.parser import Context, ParseError, Parser
from parsers.registry import PARSERS
from parsers.rules import NO_RULES, Rules, RulesSource
from store.event import Event

if TYPE_CHECKING:
    from parsers.site_patterns import PatternMatcher

# The format whose lines are searched for patterns: the one that reads lines of any program.
SEARCHED = "kernel"


def make_parser(format_name: str, context: Context, rules: RulesSource | None = None) -> Parser:
    """A format's parser, or that of several (`MIXED`), under a site's rules where there are any.

    Raises:
        KeyError: there is no such format.
    """
    if format_name == MIXED:
        return MixedParser(lambda name: make_parser(name, context, rules))
    inner = PARSERS[format_name].make(context)
    return inner if rules is None else RuledParser(inner, format_name, context, rules)


class RuledParser:
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

    def _renewed(self) -> Rules:
        rules = self._rules()
        if rules is not self._seen:
            self._seen = rules
            searched = self._format == SEARCHED and rules.patterns
            self._matcher = self._make_matcher(rules) if searched else None
        return rules

    def _make_matcher(self, rules: Rules) -> "PatternMatcher":
        from parsers.site_patterns import PatternMatcher  # only here: without patterns nobody needs RE2

        return PatternMatcher(rules.patterns, self._context)
