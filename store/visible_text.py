r"""Text from outside, made safe for where it is shown: nothing hidden in a name or message acts on what shows it.

    visible("gpu-001\x1b[2J\n")  ->  gpu-001\x1b[2J\n    (a backslash and letters, one line)

Logs, alerts and configurations of others give names and messages. A control character moves a terminal's cursor, a line
break forges a log line, a direction mark (U+202E) reorders what a person reads, a zero-width letter makes two names
look alike. One function a medium; Markdown, chats, Slurm and templates have theirs where they are written.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_UNUSUAL = re.compile(r"[^\x20-\x7e]")
# Letters and marks that nobody sees, although Unicode counts them among what is printed (Default_Ignorable_Code_Point).
_INVISIBLE = frozenset(
    map(chr, [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0])
) | frozenset(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
# A spreadsheet takes a cell that begins so for a formula; in East Asian locales the full-width signs too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "|", "%")
# Where a list of a spreadsheet is separated by semicolons, what stands behind one is a cell, too.
_BEHIND_SEMICOLON = re.compile(f";( *)(?=[{re.escape(''.join(_FORMULA))}])")
_NUMBER = re.compile(r"[+-]?\d{1,40}(?:\.\d{1,40})?(?:e[+-]?\d{1,5})?", re.ASCII | re.IGNORECASE)


def visible(text: str) -> str:
    """One line of a terminal or a log: what is hidden in it stands there as an escape, `\\x1b`, `\\u202e`, `\\n`."""
    if text.isascii() and text.isprintable():
        return text
    return _UNUSUAL.sub(lambda found: _escape(found[0]), text)


def visible_lines(text: str) -> str:
    """The same of a text of several lines that is our own in its shape: line breaks stay."""
    return "\n".join(map(visible, text.split("\n")))


def is_hidden(letter: str) -> bool:
    """Whether a person does not see a letter, or sees others in another order for it."""
    if letter.isprintable():
        return letter in _INVISIBLE
    return unicodedata.category(letter) != "Zs"  # a blank of another width


def _escape(letter: str) -> str:
    if not is_hidden(letter):
        return letter
    if letter in _SHORT:
        return _SHORT[letter]
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_json(document: bytes) -> bytes:
    """A JSON document with the same values, in which every hidden letter is written as JSON's escape."""
    if document.isascii() and b"\x7f" not in document:
        return document
    return _UNUSUAL.sub(lambda found: _json_escape(found[0]), document.decode()).encode()


def _json_escape(letter: str) -> str:
    # Between the values stand line breaks of our own; orjson writes those of a value as escapes.
    if letter in "\n\t\r" or not is_hidden(letter):
        return letter
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04x}"


def html_text(value: object) -> str:
    """Text inside an element of HTML or SVG, or inside a quoted attribute."""
    return escape(visible(str(value)))


def csv_value(value: Any) -> Any:
    """A cell of CSV: what a spreadsheet would take for a formula begins with an apostrophe. Numbers stay."""
    if not isinstance(value, str):
        return value
    said = _BEHIND_SEMICOLON.sub(r";\1'", visible(value))
    is_formula = value.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{said}" if is_formula else said


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as RFC 4180 text."""
    out = io.StringIO()
    csv.writer(out).writerows([csv_value(cell) for cell in row] for row in rows)
    return out.getvalue()


def visible_exposition(page: bytes) -> bytes:
    """A metrics page whose label values hold no hidden letter; the format itself has line breaks only."""
    if page.isascii() and not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", page):
        return page
    # In a label value a backslash is written twice.
    return _UNUSUAL.sub(
        lambda found: found[0] if found[0] == "\n" else _escape(found[0]).replace("\\", "\\\\"),
        page.decode("utf-8", "replace"),
    ).encode()
