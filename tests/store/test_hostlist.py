"""Slurm's hostlists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.records.event import RecordError
from store.records.hostlist import EVERY_NODE, MAX_HOSTS, NodePattern, compress, expand, is_named, is_node_name


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu-001", ["gpu-001"]),
        ("gpu-[001-003,007]", ["gpu-001", "gpu-002", "gpu-003", "gpu-007"]),
        ("gpu-[098-101]", ["gpu-098", "gpu-099", "gpu-100", "gpu-101"]),
        ("gpu-[8-10]", ["gpu-8", "gpu-9", "gpu-10"]),
        ("a[1-2],b3, login", ["a1", "a2", "b3", "login"]),
        ("rack[1-2]node[01-02]-ib", ["rack1node01-ib", "rack1node02-ib", "rack2node01-ib", "rack2node02-ib"]),
        ("learnnode[1273,1405]", ["learnnode1273", "learnnode1405"]),
        ("2e333a22-f584-4a62-b54a-ff02158bc431", ["2e333a22-f584-4a62-b54a-ff02158bc431"]),
    ],
)
def test_a_hostlist_names_its_hosts(text: str, hosts: list[str]) -> None:
    """Ranges keep their leading zeros; several brackets multiply."""
    assert expand(text) == hosts


@given(
    st.lists(
        st.tuples(st.sampled_from(["gpu-", "a", "rack[1-2]n"]), st.integers(0, 120), st.integers(0, 12)), max_size=3
    ),
    st.sampled_from(["", "-ib"]),
    st.sampled_from(["gpu-", "a", "rack1n", "rack2n"]),
    st.integers(0, 140),
    st.integers(1, 4),
)
def test_whether_a_hostlist_names_a_node_is_known_without_its_hosts(
    items: list[tuple[str, int, int]], tail: str, head: str, number: int, width: int
) -> None:
    """As by its hosts, zeros before a number and a tail behind it included."""
    text = ",".join(f"{name}[{first:0{width}d}-{first + more:0{width}d},7]{tail}" for name, first, more in items)
    node = f"{head}{number:0{width}d}{tail}"
    assert is_named(node, text) == (node in expand(text))
    assert is_named(node, f"{text},{node}" if text else node)
    assert not is_named(node, f"{text},{node}[")


@pytest.mark.parametrize("text", ["", "  ", "(null)", "None assigned", "N/A", "Unknown"])
def test_no_hosts_yet_is_an_empty_list(text: str) -> None:
    """What Slurm prints of a pending job."""
    assert expand(text) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu-[1-3", "not closed"),
        ("gpu-1-3]", "do not match"),
        ("gpu-[1-[2-3]]", "do not match"),
        ("gpu-[3-1]", "backwards"),
        ("gpu-[a-c]", "no number"),
        ("gpu-[]", "no number"),
        ("gpu-[0-999999999]", "more than"),
        ("a[1-1000]b[1-1000]", "more than"),
        ("a[1-150000],b[1-150000]", "more than"),
    ],
)
def test_a_broken_hostlist_says_what_is_wrong(text: str, why: str) -> None:
    """It is refused in one sentence, and never expanded into all memory."""
    with pytest.raises(RecordError, match=why):
        expand(text)


@given(st.text(alphabet="ab01239-[],", max_size=40))
def test_any_text_gives_bounded_hosts_or_a_record_error(text: str) -> None:
    """No other exception, whatever the text."""
    try:
        assert len(expand(text)) <= MAX_HOSTS
    except RecordError as error:
        assert "hostlist" in str(error)


@given(st.integers(0, 500), st.integers(0, 50), st.integers(1, 5))
def test_a_range_written_out_reads_back(first: int, count: int, width: int) -> None:
    """As many hosts as the range is long, each as wide as its first."""
    hosts = expand(f"n[{first:0{width}d}-{first + count:0{width}d}]")
    assert len(hosts) == count + 1
    assert hosts[0] == f"n{first:0{width}d}"
    assert hosts[-1] == f"n{first + count:0{width}d}"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["gpu-001"], "gpu-001"),
        (["gpu-003", "gpu-001", "gpu-002", "gpu-007", "login1"], "gpu-[001-003,007],login1"),
        (["n9", "n10", "n11"], "n9,n[10-11]"),
        (["n09", "n10", "n09"], "n[09-10]"),
        (["a1b", "7", "8"], "[7-8],a1b"),
        (["good1", "bad,name", "bad[1]", "bad name", "b\n", ""], "good1"),
        (["gpu-001", "-rf", "--all", "ALL", "all", "All", "DEFAULT", "none", "-1", "GPU-001"], "GPU-001,gpu-001"),
        (["a.b", "a..b", ".a", "a.", "a-", "-a-1", "/etc/passwd", "$(id)", "`id`", "a;b", "a\x00b"], "a.b"),
    ],
)
def test_names_are_written_the_short_way(names: list[str], text: str) -> None:
    """By prefix and width; what a list cannot hold is left out."""
    assert compress(names) == text


@given(st.sets(st.from_regex(r"[a-c]{0,2}-?[0-9]{1,4}|[a-z]{1,3}", fullmatch=True), max_size=40))
def test_what_is_written_reads_back(names: set[str]) -> None:
    """Exactly those names that may be a node's."""
    assert set(expand(compress(names))) == {name for name in names if is_node_name(name)}


@given(
    st.sets(st.one_of(st.text(max_size=12), st.from_regex(r"-{0,2}(all|ALL|Default|none|rf)[0-9]?", fullmatch=True)))
)
def test_nothing_in_a_written_list_is_an_option_or_a_keyword(names: set[str]) -> None:
    """Whatever the names are: Slurm reads the list as names of nodes, or not at all."""
    written = compress(names)
    assert not written.startswith("-")
    assert all(is_node_name(name) for name in expand(written))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("gpu-017", ["gpu-017"], ["gpu-0170", "gpu-01", "GPU-017", "gpu-017\n"]),
        ("gpu-[001-003], login1", ["gpu-001", "gpu-003", "login1"], ["gpu-004", "gpu-[001-003]", "login"]),
        ("gpu-*", ["gpu-1", "gpu-"], ["xgpu-1", "gpu"]),
        ("r?-n1,r9-*", ["r1-n1", "r9-anything"], ["r-n1", "r10-n1"]),
        ("*.example", ["a.example"], ["aXexample", "a.example.org"]),
    ],
)
def test_a_node_pattern_names_its_nodes_and_no_others(text: str, inside: list[str], outside: list[str]) -> None:
    """Names, hostlists, and names with * and ?; a point is a point."""
    pattern = NodePattern.of(text)
    assert [node for node in inside if not pattern.matches(node)] == []
    assert [node for node in outside if pattern.matches(node)] == []
    assert not pattern.is_every


@pytest.mark.parametrize("text", ["", " , ", "gpu-[1-", "gpu-[1-3]*", "gpu-[3-1]"])
def test_a_broken_node_pattern_is_refused(text: str) -> None:
    """It would be read as more, or less, than was meant."""
    with pytest.raises(RecordError):
        NodePattern.of(text)


@pytest.mark.parametrize("text", ["*", " * ", "**", "gpu-1,*", "***,x"])
def test_every_node_is_every_node_however_it_is_written(text: str) -> None:
    """What asks for one node's word is not got round by a second star."""
    assert NodePattern.of(text).is_every
    assert NodePattern.of(text).only is None


def test_a_pattern_of_one_name_names_one_node() -> None:
    """And of exact names, nothing that is no name of a node."""
    assert NodePattern.of("gpu-017").only == "gpu-017"
    assert NodePattern.of("gpu-[017]").only == "gpu-017"
    assert [NodePattern.of(text).only for text in ("gpu-[1-2]", "gpu-1,gpu-*", "*")] == [None, None, None]
    assert NodePattern.exactly(["gpu-1", "*", "-rf"]).text == "gpu-1"
    assert not NodePattern.exactly([]).is_every
    assert EVERY_NODE.matches("anything")
