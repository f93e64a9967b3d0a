r"""A site's own reading of faults: other severities, causes and actions for known faults, and patterns for new ones.

    faults:
      - {kind: xid, code: 43, severity: info, cause: application, action: none}
    patterns:
      - {name: gpfs_stall, match: 'mmfs: .* deadlock on (?P<name>\S+)', severity: error, cause: storage}

    rules = read_rules(text, "rules.yaml")
    rules.judge(event)        the event as the site reads it

Patterns are in RE2's syntax (github.com/google/re2/wiki/Syntax): the time of a search is linear in the line, so that
no pattern can stall a source. What a file gets wrong is said with its line; `deploy/rules.example.yaml` shows all keys.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from store.records.event import ACTIONS, CAUSES, SEVERITIES, Action, Cause, Event, Severity

if TYPE_CHECKING:
    from yaml import Node

MAX_PATTERNS = 500
MAX_FAULTS = 5000
MAX_TEXT = 1024 * 1024
# Of a pattern's name, its kind and its program.
MAX_NAME = 128

Word = TypeVar("Word")


class RulesError(ValueError):
    """A rules file that does not hold; the message names file, line and remedy."""


@dataclass(frozen=True, slots=True)
class FaultOverride:
    """How the site reads a kind of fault; None leaves what the catalogue says."""

    severity: Severity | None = None
    cause: Cause | None = None
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class SitePattern:
    """A line that tells a fault of the site's own. Named groups become attributes; `pci` becomes the device.

    `program` is whose lines are searched: the kernel's, or those of the syslog tag named; `*` is anybody's.
    """

    name: str
    match: str
    kind: str
    severity: Severity = "warning"
    cause: Cause = "unknown"
    action: Action = "none"
    program: str = "kernel"


@dataclass(frozen=True, slots=True)
class SiteRules:
    """A rules file, read. `version` is of its text: the same text is the same version everywhere."""

    faults: Mapping[tuple[str, int | None], FaultOverride] = field(default_factory=dict)
    patterns: tuple[SitePattern, ...] = ()
    text: str = ""
    version: str = "none"

    def judge(self, event: Event) -> Event:
        """The event as the site reads it: a fault's code counts before its kind."""
        if not self.faults:
            return event
        found = self.faults.get((event.kind, event.code)) or self.faults.get((event.kind, None))
        if found is None:
            return event
        return replace(
            event,
            severity=found.severity or event.severity,
            cause=found.cause or event.cause,
            action=found.action or event.action,
        )


NO_RULES = SiteRules()
# Asked again and again: the rules of a file may change.
RulesSource: TypeAlias = Callable[[], SiteRules]


def no_rules() -> SiteRules:
    """The source of a site without rules."""
    return NO_RULES


def read_rules(text: str, place: str) -> SiteRules:
    """The rules of a YAML text.

    Args:
        place: what to call it in a message: its path.

    Raises:
        RulesError: it is no YAML, or a key or value does not hold; nothing of it is taken then.
    """
    import yaml  # only here: a sidecar without rules does without its memory

    if len(text) > MAX_TEXT:
        raise RulesError(f"{place} is over {MAX_TEXT} characters: no set of rules is that long")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RulesError(f"{place} is no YAML: {' '.join(str(error).split())[:300]}") from error
    reader = _RulesReader(place, root)
    table = reader.mapping(content or {}, (), ("faults", "patterns"))
    faults: dict[tuple[str, int | None], FaultOverride] = {}
    for number, item in enumerate(reader.listed(table.get("faults"), ("faults",), MAX_FAULTS)):
        key, judgement = reader.fault(item, ("faults", number))
        if key in faults:
            raise reader.wrong(("faults", number), "names a fault that stands above: keep one of them")
        faults[key] = judgement
    patterns: dict[str, SitePattern] = {}
    for number, item in enumerate(reader.listed(table.get("patterns"), ("patterns",), MAX_PATTERNS)):
        pattern = reader.pattern(item, ("patterns", number))
        if pattern.name in patterns:
            raise reader.wrong(("patterns", number), f"is called {pattern.name!r} like one above: names are unique")
        patterns[pattern.name] = pattern
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return SiteRules(faults, tuple(patterns.values()), text, digest)


class _RulesReader:
    """Takes the content apart; knows on which line each part stands."""

    def __init__(self, place: str, root: "Node | None") -> None:
        self._place = place
        self._root = root

    def wrong(self, path: Sequence[str | int], why: str) -> RulesError:
        """An error that names the place of a path in the file."""
        name = "".join(f"[{part}]" if isinstance(part, int) else f" {part}" for part in path).strip()
        return RulesError(f"{self._place}, line {self._line(path)}: {name or 'the file'} {why}")

    def _line(self, path: Sequence[str | int]) -> int:
        node = self._root
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            node = found
        return 1 if node is None else node.start_mark.line + 1

    def mapping(self, value: Any, path: tuple[str | int, ...], known: Sequence[str]) -> Mapping[str, Any]:
        """The value as keys and values, all of them known."""
        if not isinstance(value, dict):
            raise self.wrong(path, "must hold keys and values")
        for key in value:
            if key not in known:
                raise self.wrong((*path, str(key)), f"is no key: use {', '.join(known)}")
        return value

    def listed(self, value: Any, path: tuple[str | int, ...], limit: int) -> list[Any]:
        """The value as a list; nothing is an empty one."""
        if value is not None and not isinstance(value, list):
            raise self.wrong(path, "must be a list: begin each entry with a dash")
        if value and len(value) > limit:
            raise self.wrong(path, f"holds {len(value)} entries: {limit} are the most")
        return value or []

    def fault(self, item: Any, path: tuple[str | int, ...]) -> tuple[tuple[str, int | None], FaultOverride]:
        """One entry of `faults`."""
        table = self.mapping(item, path, ("kind", "code", "severity", "cause", "action"))
        code = table.get("code")
        if code is not None and (type(code) is not int or not 0 <= code < 2**63):
            raise self.wrong((*path, "code"), "must be a number, as the log prints it")
        judgement = FaultOverride(*self._words(table, path))
        if judgement == FaultOverride():
            raise self.wrong(path, "changes nothing: give severity, cause or action")
        return (self._text(table, "kind", path), code), judgement

    def pattern(self, item: Any, path: tuple[str | int, ...]) -> SitePattern:
        """One entry of `patterns`."""
        table = self.mapping(item, path, ("name", "match", "kind", "severity", "cause", "action", "program"))
        name = self._text(table, "name", path)
        severity, cause, action = self._words(table, path)
        return SitePattern(
            name=name,
            match=self._regex(table, path),
            kind=self._text(table, "kind", path) if "kind" in table else name,
            severity=severity or "warning",
            cause=cause or "unknown",
            action=action or "none",
            program=self._text(table, "program", path) if "program" in table else "kernel",
        )

    def _words(
        self, table: Mapping[str, Any], path: tuple[str | int, ...]
    ) -> tuple[Severity | None, Cause | None, Action | None]:
        return (
            self._word(table, "severity", SEVERITIES, path),
            self._word(table, "cause", CAUSES, path),
            self._word(table, "action", ACTIONS, path),
        )

    def _word(
        self, table: Mapping[str, Any], key: str, words: tuple[Word, ...], path: tuple[str | int, ...]
    ) -> Word | None:
        value = table.get(key)
        if value is not None and value not in words:
            raise self.wrong((*path, key), f"is {str(value)[:40]!r}: use one of {', '.join(map(str, words))}")
        return value

    def _text(self, table: Mapping[str, Any], key: str, path: tuple[str | int, ...]) -> str:
        value = table.get(key)
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
            raise self.wrong((*path, key), f"must be a text of 1 to {MAX_NAME} characters")
        return value

    def _regex(self, table: Mapping[str, Any], path: tuple[str | int, ...]) -> str:
        from parsers.text.re2_pattern import (  # only here: a file without patterns does without RE2
            PatternError,
            compiled,
        )

        text = table.get("match")
        if not isinstance(text, str) or not text:
            raise self.wrong((*path, "match"), "must be a pattern, such as 'mmfs: .* deadlock'")
        try:
            compiled(text)
        except PatternError as error:
            raise self.wrong((*path, "match"), f"is no RE2 pattern: {error}") from error
        return text


def _child(node: "Node | None", part: str | int) -> "Node | None":
    """The node of a key or of a place in a list."""
    if node is None or not isinstance(node.value, list):
        return None
    if isinstance(part, int):
        return node.value[part] if part < len(node.value) else None
    return next((value for key, value in node.value if key.value == part), None)


# A rules file that is followed: read at the start, and again when it has changed.
#
#     file = RulesFile(Path("/etc/foreshock/rules.yaml"))
#     file.current().judge(event)
#
# A change that does not hold is refused as a whole and said once; the rules before it stay in force.

CHECK_S = 1.0
_LOG = logging.getLogger("foreshock.rules")
_Stamp = tuple[int, int, int]


class RulesFile:
    """The rules of a file, as they are now."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Raises:
            RulesError: it cannot be read, or does not hold.
        """
        self._path = path
        self._monotonic = monotonic
        self._stamp = self._stamp_of()
        self._rules = read_rules(self._text(), str(path))
        self._checked = monotonic()
        self.errors = 0  # changes that were refused

    def current(self) -> SiteRules:
        """The rules in force; looks at the file once a second at most."""
        now = self._monotonic()
        if now - self._checked >= CHECK_S:
            self._checked = now
            self._look()
        return self._rules

    def _look(self) -> None:
        stamp = self._stamp_of()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            rules = read_rules(self._text(), str(self._path))
        except RulesError as error:
            self.errors += 1
            _LOG.error("the rules of before stay in force: %s", error)
            return
        if rules.version != self._rules.version:
            _LOG.info("%s: rules %s take the place of %s", self._path, rules.version, self._rules.version)
            self._rules = rules

    def _stamp_of(self) -> _Stamp | None:
        """What changes when the file does, a swapped symbolic link (a ConfigMap's) included; None: it is not there."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _text(self) -> str:
        try:
            with self._path.open(encoding="utf-8") as file:
                return file.read(MAX_TEXT + 1)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise RulesError(f"{self._path} cannot be read: {reason}") from error
