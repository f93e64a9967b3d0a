"""JSON documents out of lines: forms, lists, what is broken, what stands beside it, limits."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.text import documents
from parsers.text.documents import Document, DocumentParser, DocumentReader
from parsers.text.parser import ParseError, parse
from store.records.event import Event

LISTS = ("items", "events", "states")


def read(text: str) -> tuple[list[Document], list[str]]:
    """Every document of a text, and what was said to be broken."""
    reader = DocumentReader(LISTS)
    found: list[Document] = []
    errors: list[str] = []
    for line, part in enumerate(text.split("\n"), start=1):
        documents, broken = reader.feed(part, line)
        found += documents
        errors += map(str, broken)
    documents, broken = reader.flush()
    return found + documents, errors + list(map(str, broken))


def values(text: str) -> list[dict[str, object]]:
    """The objects of a text in which nothing is broken."""
    found, errors = read(text)
    assert errors == []
    return [document.value for document in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"a":1}\n{"a":2}', [1, 2], id="one_a_line"),
        pytest.param('{"a":1}{"a":2} {"a":3}', [1, 2, 3], id="several_in_a_line"),
        pytest.param('{"a":1},\n{"a":2}', [1, 2], id="parted_by_commas"),
        pytest.param('{\n  "a": 1\n}\n{\n  "a": 2\n}', [1, 2], id="over_many_lines"),
        pytest.param('{\n  "a": 1\n}{\n  "a": 2\n}', [1, 2], id="concatenated_over_many_lines"),
        pytest.param('[{"a":1},{"a":2}]', [1, 2], id="array"),
        pytest.param('[\n{"a":1},\n{"a":2}\n]', [1, 2], id="array_one_element_a_line"),
        pytest.param('[\n  {\n    "a": 1\n  },\n  {\n    "a": 2\n  }\n]', [1, 2], id="array_over_many_lines"),
        pytest.param('[\n{"a":1}\n{"a":2}\n]', [1, 2], id="array_whose_commas_were_lost"),
        pytest.param('\ufeff{"a":1}', [1], id="byte_order_mark"),
        pytest.param('\x1e{"a":1}\n\x1e{"a":2}', [1, 2], id="record_separators"),
        pytest.param('{"a":1}\n\n \n{"a":2}', [1, 2], id="blank_lines"),
        pytest.param('{"a":1} # said\n{"a":2}', [1, 2], id="words_after_a_document"),
        pytest.param('I0301 up\n{"a":1}\n[x] y {z}\nfoo {"a":9}', [1], id="lines_of_something_else"),
        pytest.param('[2025-03-01 04:05:06] [INFO] {"a":9}\n{"a":1}', [1], id="a_bracketed_time_is_no_array"),
        pytest.param('[[2], 1, "x", null, {"a":1}]', [1], id="only_objects_count"),
        pytest.param("[]\n[]", [], id="empty_arrays"),
    ],
)
def test_documents_are_found_in_every_form(text: str, expected: list[int]) -> None:
    """One object a line, over many lines, several together, in arrays, among other lines."""
    assert [value["a"] for value in values(text)] == expected


def test_strings_may_hold_brackets_and_quotes() -> None:
    """What stands in a string opens and closes nothing."""
    value = {"a": 'x } ] { [ " \\ "items": [', "b": {"items_": ["]"]}}
    assert values(json.dumps(value) + json.dumps(value, indent=2)) == [value, value]


def test_numbers_that_python_writes_are_read() -> None:
    """NaN and Infinity, which JSON does not know."""
    (value,) = values('{"loss": NaN, "a": -Infinity}')
    assert str(value["loss"]) == "nan"


@pytest.mark.parametrize("indent", [None, 0, 1, 2, 4, "\t"], ids=repr)
def test_a_list_is_given_element_by_element_however_it_is_printed(indent: int | str | None) -> None:
    """Each with its header, and its first line."""
    listing = {"kind": "List", "items": [{"a": 1}, {"a": 2, "b": [1, {"c": [2]}]}], "metadata": {"x": [{"a": 9}]}}
    found, errors = read(json.dumps(listing, indent=indent))
    assert errors == []
    assert [document.value for document in found] == listing["items"]
    assert [document.header["kind"] for document in found] == ["List", "List"]


def test_a_list_may_lie_deep_and_a_document_may_hold_two() -> None:
    """As a receiver wrote a body down, and as an array of components with events and states."""
    found, _ = read('{"ts": 1, "body": {"r": "x", "items": [{"a": 1}], "z": {"k": [{"q": 1}]}}}')
    assert [(document.value, document.header["body"]["r"]) for document in found] == [({"a": 1}, "x")]
    two = '[{"c": "x", "info": {"states": [{"s": 1}], "events": [{"e": 1}]}}, {"c": "y", "events": []}, {"c": "z"}]'
    found, _ = read(two)
    assert [document.value for document in found] == [{"s": 1}, {"e": 1}, {"c": "z"}]
    assert [document.header.get("c") for document in found] == ["x", "x", None]


def test_an_element_bears_its_own_line() -> None:
    """Not the list's."""
    found, _ = read('{\n "items": [\n  {"a": 1},\n  {\n   "a": 2\n  }\n ]\n}')
    assert [document.line for document in found] == [3, 4]


@pytest.mark.parametrize(
    ("text", "expected", "first"),
    [
        pytest.param('{"a":0, "b": "cut\n{"a":1}\n{"a":2}', [1, 2], 1, id="line_cut_in_a_string"),
        pytest.param('{"a":0, "b": [1, 2\n{"a":1}\n{"a":2}', [1, 2], 1, id="line_cut_after_a_value"),
        pytest.param('{"a":0, "b": [1,\n{"a":1}\n{"a":2}', [1, 2], 1, id="line_cut_where_a_value_may_follow"),
        pytest.param('{"a":0,\n{"a":1}', [1], 1, id="line_cut_where_a_key_must_follow"),
        pytest.param('{"a":}{"a":1}', [1], 1, id="no_json_beside_a_whole_one"),
        pytest.param('{"a":[}{"a":1}', [1], 1, id="brackets_that_do_not_match"),
        pytest.param('{"a":1}\n{"a":\n{"a":2}{"a":3}\n{"a":4}', [1, 2, 3, 4], 2, id="in_the_middle"),
        pytest.param('[\n  {\n    "b": ,\n    "c": {}\n  },\n  {\n    "a": 1\n  }\n]', [1], 2,
                     id="element_of_an_array"),
        pytest.param('{"items":[\n  {"b": {]},\n  {"a": 1}\n]}\n{"a": 2}', [1, 2], 2, id="element_of_a_list"),
        pytest.param('{"items":[\n  {\n   "b": [ {"x": 1\n  {\n   "a": 1\n  },\n  {\n   "a": 2\n  }\n]}', [1, 2], 2,
                     id="element_cut_short"),
        pytest.param('{"items":[{"a":1},{"a":2},{"a":"cu', [1, 2], 1, id="list_cut_short_in_a_line"),
        pytest.param('{"items":[\n{"a":1},\n{"a":2},\n', [1, 2], 1, id="list_cut_short_between_elements"),
        pytest.param('{"items":[\n{"a":1},\n{"a":2,\n"b":[', [1], 3, id="list_cut_short_in_an_element"),
    ],
)  # fmt: skip
def test_a_broken_document_costs_one_error_and_nothing_beside_it(text: str, expected: list[int], first: int) -> None:
    """The error names the line in which it began."""
    found, errors = read(text)
    assert [document.value["a"] for document in found if "a" in document.value] == expected
    assert len(errors) == 1
    assert f"begins in line {first} " in errors[0]


def test_depth_and_length_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond, the document is broken; the next one is read."""
    deep = '{"a":' * (documents.MAX_DEPTH + 1) + "1" + "}" * (documents.MAX_DEPTH + 1)
    assert read('{"b":' * (documents.MAX_DEPTH - 1) + "1" + "}" * (documents.MAX_DEPTH - 1))[1] == []
    found, errors = read(f'{deep}\n{{"x": 1}}')
    assert {"x": 1} in [document.value for document in found]
    assert len(errors) == 1
    monkeypatch.setattr(documents, "MAX_CHARS", 50)
    found, errors = read("{\n" + '"a": 1,\n' * 20 + '"b": 1}\n{"x": 1}')
    assert [document.value for document in found] == [{"x": 1}]
    assert len(errors) == 1
    assert "longer than 50 characters" in errors[0]
    assert values("[" + '{"a": 1},' * 20 + '{"a": 1}]') == [{"a": 1}] * 21  # a list may be as long as it will


PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8)


@settings(max_examples=60)
@given(
    st.lists(st.dictionaries(st.text(max_size=6), PLAIN | st.lists(PLAIN, max_size=3), max_size=4), max_size=4),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
def test_what_json_writes_is_read_back(records: list[dict[str, object]], indent: int | None, listed: bool) -> None:
    """Any objects, in any print, as a list or one after another."""
    records = [record for record in records if not record.keys() & set(LISTS)]
    text = json.dumps(records, indent=indent) if listed else "\n".join(json.dumps(r, indent=indent) for r in records)
    assert values(text) == records


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(['{"a":', "1", "}", "[", "]", ",", '"items":[', '"', "\n", '{"b":2}', "\\"]), max_size=40)
)
def test_pieces_in_any_order_end(pieces: list[str]) -> None:
    """Nothing is raised, nothing loops; whole lines that follow an end are read."""
    found, _ = read("".join(pieces) + '\n{"end": 1}\n{"end": 2}')
    assert {"end": 2} in [document.value for document in found]


def told(document: Document) -> Sequence[Event]:
    """An event that repeats a document's `a`."""
    return [Event(time=None, node=None, source="test", kind=str(document.value["a"]), line=document.line)]


def test_an_error_and_what_stands_beside_it_are_both_told() -> None:
    """The events first."""
    errors: list[tuple[int, str]] = []
    text = ['{"a":}{"a":1}', '{"a":2}', '{"a":]{"a":3}']
    events = list(parse(DocumentParser(told), text, lambda line, error: errors.append((line, str(error)))))
    assert [event.kind for event in events] == ["1", "2", "3"]
    assert [line for line, _error in errors] == [1, 3]


def test_a_document_cut_short_is_told_at_the_end() -> None:
    """As an error of the flush."""
    parser = DocumentParser(told)
    assert list(parser.feed('{"a": [', 1)) == []
    with pytest.raises(ParseError, match="line 1 is cut short"):
        list(parser.flush())
    assert [event.kind for event in parser.feed('{"a": 4}', 2)] == ["4"]
