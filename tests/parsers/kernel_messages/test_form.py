"""Forms: a pattern's named groups are the record."""

import re
from pathlib import Path

import pytest
from registries import defined

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages import families
from parsers.kernel_messages.family import FLAGS, INTEGERS, PCI_DEVICE, MessageFamily, MessageForm, decoder, signs
from parsers.kernel_messages.registry import FAMILIES
from parsers.text.parser import Context, parse
from store.records.fault_catalog import kind_meanings

FORMS = defined(families, MessageForm)
LINK = MessageForm(
    "Link",
    rf"{PCI_DEVICE}(?P<name>\w+) port (?P<port>\d+): Link (?P<state>\w+)(?P<multiple> again)?(?: (?P<count>\d+))?",
    "net_link",
    device="",
    by="state",
    words={"gone": "down"},
)


def test_groups_become_device_and_attributes() -> None:
    """Numbers are numbers, flags are true, states are in the record's words; what is not there is no attribute."""
    event = decoder([LINK])("mlx5_core 0000:AB:00.1: mlx5_3 port 2: Link GONE again 7")
    assert event is not None
    assert (event.device.type, event.device.pci, event.device.port) == ("hca", "0000:ab:00.1", 2)
    assert event.attributes == {
        "driver": "mlx5_core",
        "name": "mlx5_3",
        "state": "down",
        "multiple": True,
        "count": 7,
    }
    assert (event.source, event.severity) == ("kernel", "error")
    bare = decoder([LINK])("mlx5_core 0000:ab:00.1: mlx5_3 port 2: Link up")
    assert bare is not None
    assert bare.attributes == {"driver": "mlx5_core", "name": "mlx5_3", "state": "up"}
    assert bare.severity == "info"


def test_a_value_without_a_row_of_its_own_is_judged_as_the_kind() -> None:
    """`by` names a row where the table has it."""
    event = decoder([LINK])("bnxt_en 0000:ab:00.1: eth0 port 1: Link odd")
    assert event is not None
    assert (event.device.type, event.severity) == ("nic", "warning")


def test_a_driver_that_nobody_knows_drives_a_pci_device() -> None:
    """`pci` is any device of the bus."""
    event = decoder([LINK])("foo 0000:ab:00.1: eth0 port 1: Link up")
    assert event is not None
    assert event.device.type == "pci"


def test_the_first_form_wins_and_one_without_a_kind_says_nothing() -> None:
    """An exception stands before the rule."""
    decode = decoder([MessageForm("Link", r".*Link down for a test", ""), LINK])
    assert decode("mlx5_core 0000:ab:00.1: a port 2: Link down for a test") is None
    assert decode("mlx5_core 0000:ab:00.1: a port 2: Link down") is not None


def test_a_message_without_the_sign_is_not_tried() -> None:
    """The sign is what the log was searched for."""
    assert decoder([MessageForm("absent", r".*", "net_link")])("Link") is None


def test_signs_are_named_once() -> None:
    """Two forms may share one."""
    assert signs([LINK, LINK, MessageForm("Other", "x", "")]) == ("Link", "Other")


def test_every_form_can_be_judged() -> None:
    """Its variant has a row; where a value decides, every word that it can be has one, or the kind has."""
    rows = kind_meanings()
    for form in FORMS:
        if not form.kind:
            continue
        if not form.by:
            assert (form.kind, form.variant) in rows, form
            continue
        choice = re.search(rf"\(\?P<{form.by}>([^()]*)", form.text)
        assert choice, form
        words = set(form.words.values()) or {word.lower() for word in choice[1].split("|")}
        assert (form.kind, "") in rows or all((form.kind, word) in rows for word in words), form


def test_no_form_runs_away() -> None:
    """Whatever can be repeated is repeated a bounded number of times, blanks aside."""
    repeated = re.compile(r"(?:\.|\\[wdsWDS]|\]|\))[*+]")
    assert [form.text for form in FORMS if repeated.search(form.text.replace("\\.", ""))] == []


def test_names_of_numbers_and_flags_are_used() -> None:
    """Nothing is listed that no form reads."""
    used = {name for form in FORMS for name in re.compile(form.text).groupindex}
    assert used >= INTEGERS | FLAGS


BOOT = (Path(__file__).parents[3] / "fixtures" / "kernel" / "host_boot.log").read_text().splitlines()


@pytest.mark.parametrize("line", BOOT, ids=lambda line: line[41:91])
def test_a_line_of_a_healthy_host_is_no_event(line: str) -> None:
    """Whatever stood before it."""
    assert list(parse(KernelParser(Context()), [line])) == []


def test_healthy_lines_that_come_close_are_among_them() -> None:
    """Without a sign a line proves nothing of the patterns; with one in each line the signs would be too broad."""
    own = {form.sign for form in FORMS}
    close = [line for line in BOOT if any(sign in line for sign in own)]
    assert len(BOOT) >= 60
    assert 20 <= len(close) <= len(BOOT) / 4


@pytest.mark.parametrize("family", [one for one in FAMILIES if one.heads], ids=lambda family: family.name)
def test_only_kinds_that_details_may_follow_are_held(family: MessageFamily) -> None:
    """A panic must not wait: the node may not live to say more."""
    seen: set[str] = set()
    fixture = Path(__file__).parents[3] / "fixtures" / "kernel" / f"{family.name}.log"
    for line in fixture.read_text().splitlines():
        parser = KernelParser(Context())
        at_once = {event.kind for event in parser.feed(line, 1)}
        held = {event.kind for event in parser.flush()}
        assert held <= family.heads
        assert not at_once & family.heads
        seen |= held
    assert seen == family.heads
