"""Names are terms of docs/words.md, names of formats and programs, or plain English."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from parsers.registry import PARSERS

ROOT = Path(__file__).parents[1]
VOCABULARY = ROOT / "docs" / "words.md"
PLAIN = ROOT / "tests" / "plain_words.txt"
MOST_TERMS = 150
# Words that earlier names used for something that the trade has a word for.
INVENTED = {"told", "asked", "wish", "ground", "standing", "seen", "made", "taken", "placed", "court", "apart"}


def terms() -> list[str]:
    """Every term of the vocabulary, one to a comma."""
    rows = re.findall(r"^\| ([^|]+) \|", VOCABULARY.read_text(encoding="utf-8"), re.MULTILINE)
    return [term.strip() for row in rows for term in row.split(",") if row not in ("term", "---")]


def words_of(name: str) -> Iterator[str]:
    """The words of a class or file name, in lower case."""
    for part in name.split("_"):
        yield from (word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", part))


@cache
def names() -> list[tuple[str, str]]:
    """Every class and file of the product, with its place."""
    return list(_names())


def _names() -> Iterator[tuple[str, str]]:
    rooms = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "benchmarks"]
    rooms += [ROOT / "hook" / "foreshock_hook"]
    files = sorted(path for room in rooms for path in room.rglob("*.py") if "migrations" not in path.parts)
    for path in files:
        place = path.relative_to(ROOT).as_posix()
        yield from ((part, place) for part in path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, f"{place}:{node.lineno}"


def stems(word: str) -> set[str]:
    """A word, and its singular."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


def test_every_word_of_a_name_is_known() -> None:
    """A new word is a term with a line in docs/words.md, or plain English in tests/plain_words.txt."""
    known = {word for term in (*terms(), *PARSERS) for word in words_of(term.replace(" ", "_"))}
    known |= set(PLAIN.read_text(encoding="utf-8").split())
    unknown = {(word, place) for name, place in names() for word in words_of(name) if not stems(word) & known}
    assert unknown == set()


def test_no_name_uses_an_invented_word() -> None:
    """The trade has its own."""
    assert [(name, place) for name, place in names() if INVENTED & set(words_of(name))] == []


def test_the_vocabulary_is_short_and_says_each_term_once() -> None:
    """Who is new can read it in ten minutes."""
    found = terms()
    assert len(found) == len(set(found)) <= MOST_TERMS


def test_plain_words_are_in_order_and_in_use() -> None:
    """A word that no name uses any more goes; none is a term as well."""
    plain = PLAIN.read_text(encoding="utf-8").split()
    used = {stem for name, _ in names() for word in words_of(name) for stem in stems(word)}
    assert plain == sorted(set(plain))
    assert set(plain) - used == set()
    assert not set(plain) & INVENTED
