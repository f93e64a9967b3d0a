"""JSON documents out of lines: one a line, one over many lines, several concatenated, the elements of a list.

    {"kind": "EventList", "items": [
        {"reason": "NodeNotReady", ...},
    -> Document(value={"reason": "NodeNotReady", ...}, header={"kind": "EventList", "items": []}, line=2)

A list is given element by element, so that its length does not matter and a cut one gives all that was whole: the
elements of an outermost array, and of an array under one of the keys that a format names (`items`, `alerts`).
What is broken costs one error; reading goes on at the next line that can begin a document.
Lines that are no JSON are passed over.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from parsers.text.parser import ParseError
from store.records.event import Event

# One document, or one element of a list: a Kubernetes node is some 20,000 characters.
MAX_CHARS = 8 * 1024 * 1024
MAX_DEPTH = 32
# Broken documents of one line; what follows them there is passed over: nothing in such a line was ever a document.
MAX_BROKEN = 1000

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]]|[^\s"{}\[\]]+')
# What a document begins with; anything else is a line of something else: `[2025-03-01 04:05:06] ...`, `{braces}`.
_BEGIN = re.compile(r'[\s,\x1e\ufeff]*(?:(?=\{\s*(?:["}]|$))|(?=\[\s*(?:[{\[\]]|$)))')
_BLANKS = re.compile(r"\s*")
_CLOSES = {"}": "{", "]": "["}
_CLOSER = {"{": "}", "[": "]"}
# What Python's json writes and JSON does not know.
_NOT_JSON = re.compile(r"NaN|Infinity")


@dataclass(frozen=True, slots=True)
class Document:
    """A document, or an element of a list.

    Attributes:
        value: the object.
        line: its first line.
        header: of an element what stood before its list, as far as it was whole; empty for none.
    """

    value: dict[str, Any]
    line: int
    header: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _OpenDocument:
    """What has been read of a document that is still open."""

    line: int
    stack: list[str] = field(default_factory=list)
    outer: int = 0  # depth of the elements of an outermost array; 0 for an object
    list_depth: int = 0  # depth of the elements of a named list that is open
    listed: bool = False  # a named list was found: the document is reported by its elements
    header: Mapping[str, Any] = field(default_factory=dict)
    unit_line: int = 0  # where the innermost document or element began; 0 where none is open
    indent: int = 0
    parts: list[str] = field(default_factory=list)
    chars: int = 0
    later: list[tuple[int, str]] = field(default_factory=list)  # the lines after unit_line
    last: str = ""  # the last character that meant something
    string: str = ""  # the last string, which may be a key

    def base(self) -> int:
        """The depth at which a document or element begins."""
        return self.list_depth or self.outer

    def may_hold_value(self) -> bool:
        """Whether JSON allows a value after what was read."""
        if len(self.stack) == self.base():
            return True
        return self.last == ":" if self.stack[-1] == "{" else self.last in "[,"


class DocumentReader:
    """Takes lines, gives documents and what was wrong. Holds at most one document of MAX_CHARS."""

    def __init__(self, lists: Iterable[str] = ()) -> None:
        """`lists` are the keys whose arrays are given element by element."""
        self._lists = frozenset(f'"{key}"' for key in lists)
        self._open: _OpenDocument | None = None
        self._found: list[Document] = []
        self._errors: list[ParseError] = []
        self._begin = self._bare = 0  # where in the line reading began, and the first character there that is no blank

    def feed(self, text: str, line: int) -> tuple[list[Document], list[ParseError]]:
        """What one line completes, and what it breaks."""
        self._read([(line, text)])
        return self._taken()

    def flush(self) -> tuple[list[Document], list[ParseError]]:
        """What is wrong with a document that nothing more will come of; what else stood in its lines."""
        opened, self._open = self._open, None
        if opened is not None:
            first = opened.unit_line or opened.line
            self._fail(first, "is cut short")
            self._read(self._restart(opened.later, opened.indent), reported=True)
            self._open = None
        return self._taken()

    def _read(self, lines: list[tuple[int, str]], *, reported: bool = False) -> None:
        """Reads lines, and again those that stood in something broken. It costs one error, unless that is reported."""
        queue, errors = deque((line, text, 0) for line, text in lines), len(self._errors)
        broken = 0
        while queue:
            line, text, at = queue.popleft()
            rest = self._line(text, at, line)
            if rest is not None:
                reported, errors = True, errors if reported else len(self._errors)
                broken = broken + 1 if rest and rest[0][2] else 0
                queue.extendleft(reversed(rest) if broken < MAX_BROKEN else ())
        if reported:
            del self._errors[errors:]

    def _taken(self) -> tuple[list[Document], list[ParseError]]:
        found, self._found = self._found, []
        errors, self._errors = self._errors, []
        return found, errors

    def _line(self, text: str, at: int, line: int) -> list[tuple[int, str, int]] | None:
        """Reads a line from a place on. What is broken is reported, and what is to be read again is returned.

        A line may be of any length, and hold any number of documents: it is never copied for one of them.
        """
        self._begin, self._bare = at, _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # it always matches
        while at < len(text):
            opened = self._open
            if opened is None:
                begin = _BEGIN.match(text, at)
                if begin is None:
                    return None
                at = begin.end()
                self._open = opened = _OpenDocument(line)
            at, why = self._scan(opened, text, at, line)
            if why:
                self._open = None
                first = opened.unit_line or opened.line
                self._fail(first, why)
                if opened.unit_line in (0, line):
                    return [(line, text, at)]
                again = self._restart([*opened.later, (line, text)], opened.indent)
                return [(number, whole, 0) for number, whole in again]
        return None

    @staticmethod
    def _restart(lines: list[tuple[int, str]], indent: int) -> list[tuple[int, str]]:
        """The lines from the first on that can begin another document: as little indented as the broken one."""
        for place, (_number, text) in enumerate(lines):
            bare = text.lstrip()
            if bare[:1] in ("{", "[") and len(text) - len(bare) <= indent:
                return lines[place:]
        return []

    def _fail(self, line: int, why: str) -> None:
        self._errors.append(ParseError(f"the JSON that begins in line {line} {why}: fetch it again whole"))

    def _scan(self, opened: _OpenDocument, text: str, at: int, line: int) -> tuple[int, str]:
        """Reads on in an open document to its end or the line's: where it stopped, and what is broken."""
        start = at if opened.unit_line else -1
        for token in _TOKEN.finditer(text, at):
            word = token[0]
            if word in _CLOSER:
                if not opened.may_hold_value() or len(opened.stack) >= MAX_DEPTH:
                    return token.end(), f"breaks off in line {line}"
                start = self._opening(opened, text, token.start(), start, line)
            elif word in _CLOSES:
                if not opened.stack or opened.stack[-1] != _CLOSES[word]:
                    return token.end(), f"breaks off in line {line}"
                start = self._closing(opened, text, token.end(), start)
                if not opened.stack:
                    self._open = None
                    return token.end(), ""
            elif word[0] == '"':
                if len(word) < 2 or word[-1] != '"':
                    return len(text), f"breaks off in line {line}"
                opened.string = word
            opened.last = word[-1]
        return len(text), self._held(opened, text, start, line)

    def _held(self, opened: _OpenDocument, text: str, start: int, line: int) -> str:
        """Keeps what the line holds of an open document; what is wrong where that is too much."""
        if not opened.unit_line:
            return ""
        if start >= 0:
            opened.parts.append(text[start:])
        opened.chars += len(text)
        if line != opened.unit_line:
            opened.later.append((line, text))
        return f"is longer than {MAX_CHARS} characters" if opened.chars > MAX_CHARS else ""

    def _opening(self, opened: _OpenDocument, text: str, at: int, start: int, line: int) -> int:
        """A bracket opens; where in the line the text of the innermost document begins from now on (-1: not here)."""
        word, depth = text[at], len(opened.stack)
        if depth == 0 and word == "[":
            opened.outer = 1
        elif depth == opened.base():
            opened.unit_line, opened.parts, opened.chars, opened.later = line, [], 0, []
            opened.indent = at - self._begin if at == self._bare else 0
            if not opened.list_depth:
                opened.listed, opened.header = False, {}
            start = at
        elif word == "[" and not opened.list_depth and opened.last == ":" and opened.string in self._lists:
            if not opened.listed:
                closers = "".join(_CLOSER[bracket] for bracket in reversed(opened.stack[opened.outer :]))
                before = "\n".join([*opened.parts, text[max(start, 0) : at]])
                opened.header = object_of(f"{before}[]{closers}") or {}
            opened.listed, opened.list_depth, opened.unit_line, opened.parts = True, depth + 1, 0, []
            start = -1
        opened.stack.append(word)
        return start

    def _closing(self, opened: _OpenDocument, text: str, end: int, start: int) -> int:
        """A bracket closes, which may end a document or a list; as `_opening`."""
        opened.stack.pop()
        depth = len(opened.stack)
        if opened.list_depth and depth < opened.list_depth:
            opened.list_depth = 0
            return -1
        if depth != opened.base() or not opened.unit_line:
            return start
        whole = "\n".join([*opened.parts, text[max(start, 0) : end]])
        line, opened.unit_line, opened.parts, opened.later = opened.unit_line, 0, [], []
        value = object_of(whole)
        if value is not None:
            self._found.append(Document(value, line, opened.header))
        elif whole[0] == "{":
            self._fail(line, "is no valid JSON")
        return -1


def object_of(text: str) -> dict[str, Any] | None:
    """The object that a text holds; None for anything else."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        if not _NOT_JSON.search(text):
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


class DocumentParser:
    """A parser whose records are JSON documents; what a document tells is for `decode` to say."""

    def __init__(self, decode: Callable[[Document], Iterable[Event]], lists: Iterable[str] = ()) -> None:
        """`lists` as of DocumentReader."""
        self._decode = decode
        self._reader = DocumentReader(lists)

    def feed(self, text: str, line: int) -> Iterator[Event]:
        """The events of the documents that a line completes.

        Raises:
            ParseError: a document is broken; what stood beside it is given first.
        """
        yield from self._given(*self._reader.feed(text, line))

    def flush(self) -> Iterator[Event]:
        """What stood in the lines of a document that was cut short.

        Raises:
            ParseError: the last document is cut short.
        """
        yield from self._given(*self._reader.flush())

    def _given(self, found: list[Document], errors: list[ParseError]) -> Iterator[Event]:
        for document in found:
            yield from self._decode(document)
        if errors:
            raise errors[0]
