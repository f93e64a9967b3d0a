"""Slurm's short way to write host names: `gpu-[001-003,007]` is gpu-001 gpu-002 gpu-003 gpu-007.

    expand("gpu-[001-003,007],login1") -> ["gpu-001", "gpu-002", "gpu-003", "gpu-007", "login1"]

    compress(["gpu-001", "gpu-002", "login1"]) -> "gpu-[001-002],login1"

Jobs keep the short text (`store/records/job.py`); whoever needs the hosts expands it here.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from store.records.event import RecordError

# More hosts than any cluster has: a broken list must not eat the memory.
MAX_HOSTS = 200_000
# Brackets of one item, and characters of one name: both make a short list long.
MAX_BRACKETS = 8
MAX_NAME = 255
# What Slurm prints where a job has no hosts yet.
NO_HOSTS = frozenset({"", "(null)", "none", "none assigned", "n/a", "unknown"})

_PART = re.compile(r"[^\[\],]+|\[([^\[\]]*)\]", re.ASCII)
_NUMBERED = re.compile(r"([A-Za-z0-9._-]*?)(\d{1,12})", re.ASCII)
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)


def expand(text: str) -> list[str]:
    """The host names of a hostlist, in its order; a repeated name stays repeated.

    Raises:
        RecordError: brackets do not match, a range runs backwards, or there are more than MAX_HOSTS names.
    """
    if text.strip().lower() in NO_HOSTS:
        return []
    hosts: list[str] = []
    for item in _items(text):
        hosts.extend(_expand_item(item, MAX_HOSTS - len(hosts)))
    return hosts


def _items(text: str) -> list[str]:
    """The comma-separated items; commas inside brackets do not count."""
    items, start, depth = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise RecordError(f"hostlist {text[:60]!r}: brackets do not match at position {position + 1}")
        if letter == "," and depth == 0:
            items.append(text[start:position])
            start = position + 1
    if depth:
        raise RecordError(f"hostlist {text[:60]!r}: a bracket is not closed")
    return [item for item in (part.strip() for part in (*items, text[start:])) if item]


def _expand_item(item: str, room: int) -> list[str]:
    if item.count("[") > MAX_BRACKETS:
        raise RecordError(f"hostlist {item[:60]!r} has more than {MAX_BRACKETS} brackets in a name: split it")
    choices: list[list[str]] = []
    total = 1
    for match in _PART.finditer(item):
        names = [match[0]] if match[1] is None else _numbers(match[1], item, room)
        choices.append(names)
        total *= len(names)
        if total > room:
            raise RecordError(f"hostlist {item[:60]!r} names more than {MAX_HOSTS} hosts: split it")
    if sum([len(names[0]) for names in choices if names]) > MAX_NAME:
        raise RecordError(f"hostlist {item[:60]!r}: a name has {MAX_NAME} characters at most")
    return ["".join(parts) for parts in itertools.product(*choices)]


def _ranges(inside: str, item: str) -> Iterator[tuple[int, int, int]]:
    """First, last and number of digits of each part of a bracket."""
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise RecordError(f"hostlist {item[:60]!r}: {part[:20]!r} is no number or range, such as 001-008")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise RecordError(f"hostlist {item[:60]!r}: the range {part} runs backwards")
        yield first, last, len(match[1])


def _numbers(inside: str, item: str, room: int) -> list[str]:
    names: list[str] = []
    for first, last, width in _ranges(inside, item):
        if len(names) + last - first + 1 > room:
            raise RecordError(f"hostlist {item[:60]!r} names more than {MAX_HOSTS} hosts: split it")
        names.extend(f"{number:0{width}d}" for number in range(first, last + 1))
    return names


def is_named(node: str, text: str) -> bool:
    """Whether a hostlist names a node; not where it is broken. It is not expanded where one bracket an item is.

    A long list of long lists is searched in no time: `gpu-[0001-9999]` costs as much as `gpu-0001`.
    """
    try:
        return any(_is_item(node, item) for item in _items(text))
    except RecordError:
        return False


def _is_item(node: str, item: str) -> bool:
    head, opened, rest = item.partition("[")
    if not opened:
        return node == item
    inside, _, tail = rest.partition("]")
    if not node.startswith(head):
        return False
    if "[" in tail:
        return node in _expand_item(item, MAX_HOSTS)
    number = node[len(head) : len(node) - len(tail)]
    is_number = number.isascii() and number.isdigit() and len(number) <= 12
    return node.endswith(tail) and is_number and _is_within(number, inside, item)


def _is_within(number: str, inside: str, item: str) -> bool:
    value = int(number)
    ranges = _ranges(inside, item)
    return any(first <= value <= last and number == f"{value:0{width}d}" for first, last, width in ranges)


def compress(names: Iterable[str]) -> str:
    """The short way to write names, sorted: `gpu-001 gpu-002 gpu-003 login1` is `gpu-[001-003],login1`.

    What is no node's name (`is_node_name`) is left out: Slurm could read it as an option, or as `ALL`.
    """
    alone: list[str] = []
    numbered: dict[tuple[str, int], list[int]] = defaultdict(list)
    for name in set(names):
        part = _numbered(name)
        if part is not None:
            numbered[part[0]].append(part[1])
        elif is_node_name(name):
            alone.append(name)
    parts = [(prefix, _write(prefix, width, sorted(numbers))) for (prefix, width), numbers in numbered.items()]
    return ",".join(text for _key, text in sorted([*parts, *((name, name) for name in alone)]))


@lru_cache(maxsize=1 << 17)
def _numbered(name: str) -> tuple[tuple[str, int], int] | None:
    """A node's name without its number, with that number's digits, and the number; kept, for they are asked for again.

    None where it has no number, or is no node's name.
    """
    match = _NUMBERED.fullmatch(name)
    return None if match is None or not is_node_name(name) else ((match[1], len(match[2])), int(match[2]))


def _write(prefix: str, width: int, numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    said = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs]
    return f"{prefix}{said[0]}" if len(numbers) == 1 else f"{prefix}[{','.join(said)}]"


@lru_cache(maxsize=256)
def hosts(node_list: str) -> frozenset[str]:
    """The hosts of a hostlist; none where the text is broken."""
    try:
        return frozenset(expand(node_list))
    except RecordError:
        return frozenset()


# A node's name ends up in commands and lists of a scheduler: what could be read there as an option or a word of its own
# is no name.

MOST_LETTERS = 253
# RFC 1123's labels in any case, and the underscore, which sites use nevertheless.
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NODE_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
# What Slurm reads as every node, as the default of nodes, or as none: in any case of its letters.
RESERVED = frozenset({"all", "default", "none", "null", "unknown"})


def is_node_name(text: str) -> bool:
    """Whether a text may be a node's name: an RFC 1123 host name in any case, or with underscores, and no keyword."""
    return len(text) <= MOST_LETTERS and _NODE_NAME.fullmatch(text) is not None and text.lower() not in RESERVED


def check_node_name(text: str) -> str:
    """The name.

    Raises:
        RecordError: it may be none; the message shows it and says what may.
    """
    if is_node_name(text):
        return text
    if text.lower() in RESERVED:
        raise RecordError(f"'node' is {text!r}, a keyword of the scheduler: give the node's host name")
    raise RecordError(
        f"'node' is {text[:80]!r}, no host name: use letters, digits, '-', '_' and '.', 1 to {MOST_LETTERS} of them, "
        "each part beginning and ending with a letter, a digit or '_'"
    )


@dataclass(frozen=True, slots=True)
class NodePattern:
    """Some nodes, by a text: names and hostlists (`gpu-[001-064]`), and names with `*` and `?`, separated by commas."""

    text: str
    _names: frozenset[str]
    _patterns: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, text: str) -> "NodePattern":
        """The pattern of a text.

        Raises:
            RecordError: it is empty, a hostlist is broken, or an item has both brackets and `*` or `?`.
        """
        items = _items(text)
        if not items:
            raise RecordError("a node pattern is empty: write names, or * for every node")
        wild = [item for item in items if "*" in item or "?" in item]
        for item in wild:
            if "[" in item or "]" in item:
                raise RecordError(f"node pattern {item[:60]!r}: brackets do not go together with * and ?")
        names = expand(",".join(item for item in items if item not in wild))
        return cls(text, frozenset(names), tuple(re.compile(translate(item)) for item in wild))

    def matches(self, node: str) -> bool:
        """Whether a node is one of them."""
        return node in self._names or any(pattern.match(node) for pattern in self._patterns)

    @classmethod
    def exactly(cls, names: Iterable[str]) -> "NodePattern":
        """These nodes and no others; what is no name of a node is left out."""
        kept = frozenset(filter(is_node_name, names))
        return cls(",".join(sorted(kept)), kept, ())

    @property
    def is_every(self) -> bool:
        """Whether it is every node."""
        return any(set(item.strip()) == {"*"} for item in self.text.split(","))

    @property
    def only(self) -> str | None:
        """The one node that it names; None where there may be more."""
        return next(iter(self._names)) if len(self._names) == 1 and not self._patterns else None


EVERY_NODE = NodePattern.of("*")
