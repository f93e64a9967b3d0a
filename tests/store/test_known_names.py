"""Names of nodes: which are none, and which are of one node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.nodes.known_names import KnownNames, NodeAliases
from store.records.event import RecordError
from store.records.hostlist import RESERVED, check_node_name, is_node_name

_LABELS = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,20}[A-Za-z0-9_])?", fullmatch=True)
_NAMES = st.lists(_LABELS, min_size=1, max_size=4).map(".".join).filter(lambda name: name.lower() not in RESERVED)


@pytest.mark.parametrize("name", ["gpu-017", "GPU-017", "gpu_017", "17", "a", "10.0.0.7", "n.cluster.local", "a" * 63])
def test_a_host_name_is_a_node_s_name(name: str) -> None:
    """RFC 1123 in any case, and the underscore."""
    assert check_node_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            " ",
            "-rf",
            "gpu-",
            "gpu 17",
            "gpu,17",
            "gpu[1-2]",
            "a..b",
            ".a",
            "a.",
            "a" * 64,
            ".".join(["a" * 60] * 5),
        ),
        *(
            "ALL",
            "all",
            "Default",
            "none",
            "NULL",
            "unknown",
            "gpu\n",
            "gpu\x00",
            "gpü",
            "../etc",
            "$(reboot)",
            "a/b",
            "a:1",
        ),
    ],
)
def test_what_is_no_host_name_is_refused_by_name(name: str) -> None:
    """Options, lists, paths and keywords of a scheduler; the message shows what came."""
    assert not is_node_name(name)
    with pytest.raises(RecordError, match="'node' is"):
        check_node_name(name)


@given(_NAMES)
def test_every_host_name_passes(name: str) -> None:
    """Whatever the labels."""
    assert check_node_name(name) == name


@given(st.text(max_size=80))
def test_what_passes_can_be_read_as_a_name_alone(text: str) -> None:
    """It begins no option, splits no list, and is no keyword."""
    if is_node_name(text):
        assert text[0] != "-"
        assert not set(text) & set(" ,;[]()$`'\"\\/\n\t\x00*?")
        assert text.lower() not in RESERVED


def test_a_short_name_and_its_fqdn_are_one_node() -> None:
    """By themselves, where exactly one node of the inventory has that short name."""
    short, long = KnownNames(["gpu-001", "gpu-002"]), KnownNames(["gpu-001.a.org", "gpu-002.a.org"])
    assert short.canonical("gpu-001.a.org") == "gpu-001"
    assert short.canonical("gpu-001.a.org.") == "gpu-001"
    assert long.canonical("gpu-002") == "gpu-002.a.org"
    assert long.canonical("gpu-003") == "gpu-003"


def test_two_nodes_with_one_short_name_are_not_mixed_up() -> None:
    """Then only whole names are known."""
    names = KnownNames(["gpu-001.a.org", "gpu-001.b.org"])
    assert names.canonical("gpu-001") == "gpu-001"
    assert names.canonical("gpu-001.b.org") == "gpu-001.b.org"
    assert names.canonical("gpu-001.c.org") == "gpu-001.c.org"


def test_the_domains_of_the_site_are_no_other_s() -> None:
    """A host of another domain that has a node's short name is not that node."""
    names = KnownNames(["gpu-001"], NodeAliases(domains=("cluster.local",)))
    assert names.canonical("gpu-001.Cluster.Local") == "gpu-001"
    assert names.canonical("gpu-009.cluster.local") == "gpu-009"
    assert names.canonical("gpu-001.evil.example") == "gpu-001.evil.example"


def test_an_address_is_no_short_name() -> None:
    """The first number of one names nothing."""
    names = KnownNames(["10", "10.0.0.7"])
    assert names.canonical("10.0.0.8") == "10.0.0.8"
    assert names.canonical("10.0.0.7") == "10.0.0.7"


def test_an_alias_of_the_configuration_wins() -> None:
    """Also over a name that is of the form of another."""
    names = KnownNames(["gpu-001", "gpu-002"], NodeAliases(aliases={"bmc-1": "gpu-001", "gpu-002.old": "gpu-001"}))
    assert names.canonical("bmc-1") == "gpu-001"
    assert names.canonical("gpu-002.old") == "gpu-001"
    assert names.canonical("gpu-002.new") == "gpu-002"


def test_capital_letters_make_another_node_unless_they_are_folded() -> None:
    """Slurm tells gpu-001 and GPU-001 apart."""
    assert KnownNames(["gpu-001"]).canonical("GPU-001") == "GPU-001"
    folded = KnownNames(["gpu-001"], NodeAliases(fold_case=True))
    assert folded.canonical("GPU-001") == "gpu-001"
    assert folded.canonical("GPU-001.Cluster.Local") == "gpu-001"


def test_a_name_that_the_scheduler_has_is_taken_as_it_is() -> None:
    """Though it is no host name."""
    assert KnownNames(["rack/1"]).canonical("rack/1") == "rack/1"
    with pytest.raises(RecordError, match="no host name"):
        KnownNames(["rack/1"]).canonical("rack/2")


@given(st.sets(_NAMES, max_size=6), _NAMES)
def test_a_name_has_one_canonical_name(known: set[str], name: str) -> None:
    """Looked up again it stays, and every name of the inventory is its own."""
    names = KnownNames(known)
    found = names.canonical(name)
    assert names.canonical(found) == found
    assert all(names.canonical(one) == one for one in known)
