"""A rules file that is followed."""

import logging
import os
from pathlib import Path

import pytest

from parsers.site_rules.rules import CHECK_S, RulesError, RulesFile

ONE, OTHER, BROKEN = (f"faults: [{{kind: xid, severity: {word}}}]\n" for word in ("info", "error", "bad"))


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def followed(path: Path) -> tuple[RulesFile, Clock]:
    """A file that is followed, and its clock."""
    clock = Clock()
    return RulesFile(path, clock), clock


def version_after(file: RulesFile, clock: Clock) -> str:
    """The version in force a moment later."""
    clock.now += CHECK_S
    return file.current().version


def test_a_changed_file_is_read_again_but_not_at_every_question(tmp_path: Path) -> None:
    """At most once a second."""
    path = tmp_path / "rules.yaml"
    path.write_text(ONE)
    file, clock = followed(path)
    before = file.current().version
    path.write_text(OTHER)
    assert file.current().version == before
    assert version_after(file, clock) != before


def test_a_change_that_does_not_hold_leaves_the_rules_of_before_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the next good one is taken."""
    path = tmp_path / "rules.yaml"
    path.write_text(ONE)
    file, clock = followed(path)
    before = file.current().version
    path.write_text(BROKEN)
    with caplog.at_level(logging.ERROR):
        assert {version_after(file, clock) for _ in range(3)} == {before}
    assert file.errors == len(caplog.records) == 1
    assert "line 1" in caplog.text
    path.write_text(OTHER + "# well\n")
    assert version_after(file, clock) != before


def test_a_file_that_vanishes_and_returns_is_followed_on(tmp_path: Path) -> None:
    """As it does while a deployment swaps it."""
    path = tmp_path / "rules.yaml"
    path.write_text(ONE)
    file, clock = followed(path)
    before = file.current().version
    path.unlink()
    assert version_after(file, clock) == version_after(file, clock) == before
    assert file.errors == 1
    path.write_text(OTHER)
    assert version_after(file, clock) != before


def test_a_link_that_points_elsewhere_is_a_change(tmp_path: Path) -> None:
    """A ConfigMap is swapped so."""
    for name, text in (("a", ONE), ("b", OTHER)):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1, 1))
    link = tmp_path / "rules.yaml"
    link.symlink_to("a")
    file, clock = followed(link)
    before = file.current().version
    link.unlink()
    link.symlink_to("b")
    assert version_after(file, clock) != before


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", BROKEN.encode()])
def test_a_file_that_is_bad_at_the_start_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """Absent, no text, or not holding."""
    path = tmp_path / "rules.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RulesError, match=r"rules\.yaml"):
        RulesFile(path)
