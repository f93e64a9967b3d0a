"""A policy that is followed: in the server's file, in its own, and when it breaks."""

from collections.abc import Callable
from pathlib import Path

import click
import pytest

from cli.config.policy_source import PolicyFiles
from cli.config.server import load_settings, read_policy
from schedulers.policy.settings import Policy


class Ticks:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def followed(tmp_path: Path, **environ: str) -> tuple[PolicyFiles, Callable[[], Policy]]:
    """The policy of `server.yaml`, and what it is a while later."""
    ticks = Ticks()
    source = PolicyFiles(lambda: read_policy(tmp_path / "server.yaml", environ), ticks)

    def later() -> Policy:
        ticks.now += 1.0
        return source.current()

    return source, later


def write(path: Path, text: str) -> None:
    """Write a file as a careful tool does: whole, then renamed, with another time."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_a_policy_may_stand_in_the_servers_file_or_in_its_own(tmp_path: Path) -> None:
    """The name is taken from the server's folder; what the environment says wins over both."""
    write(tmp_path / "server.yaml", "mode: approve\n")
    assert load_settings(tmp_path / "server.yaml", {}).policy == Policy(mode="approve")
    write(tmp_path / "server.yaml", "policy: p.yaml\n")
    write(tmp_path / "p.yaml", "version: 1\nmode: act\n")
    settings = load_settings(tmp_path / "server.yaml", {})
    assert settings.policy == Policy(mode="act")
    assert settings.policy_source is not None
    assert settings.policy_source.place == str(tmp_path / "p.yaml")
    assert load_settings(tmp_path / "server.yaml", {"FORESHOCK_MODE": "shadow"}).policy == Policy()


def test_a_change_of_either_file_comes_into_force(tmp_path: Path) -> None:
    """Of the server's file; to a file of its own; of that one."""
    write(tmp_path / "server.yaml", "mode: shadow\n")
    source, later = followed(tmp_path)
    write(tmp_path / "server.yaml", "mode: approve\nbudgets: {nodes: 3}\n")
    assert (later().mode, later().budgets.nodes) == ("approve", 3)
    write(tmp_path / "p.yaml", "version: 1\nmode: act\n")
    write(tmp_path / "server.yaml", "policy: p.yaml\n")
    assert later().mode == "act"
    write(tmp_path / "p.yaml", "version: 1\nmode: approve\n")
    assert later().mode == "approve"
    assert (source.errors, source.problem) == (0, None)


def test_the_file_is_looked_at_once_a_second_at_most(tmp_path: Path) -> None:
    """Every request asks for the policy."""
    write(tmp_path / "server.yaml", "mode: shadow\n")
    source, later = followed(tmp_path)
    write(tmp_path / "server.yaml", "mode: act\n")
    assert source.current().mode == "shadow"
    assert later().mode == "act"


@pytest.mark.parametrize("broken", ["mode: bold\n", "mode: [", "budget: {}\n", "thresholds: {avoid: 2}\n", None])
def test_what_does_not_hold_leaves_the_last_good_policy_in_force(
    tmp_path: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted and said once, with the file; and over once the file is right again."""
    path = tmp_path / "server.yaml"
    write(path, "mode: act\n")
    source, later = followed(tmp_path)
    if broken is None:
        path.unlink()
    else:
        write(path, broken)
    assert [later().mode, later().mode] == ["act", "act"]
    assert source.errors == 1
    assert source.problem is not None and str(path) in source.problem
    assert [str(path) in record.getMessage() for record in caplog.records] == [True]
    write(path, "mode: approve\n")
    assert later().mode == "approve"
    assert source.errors == 1
    assert source.problem is None


def test_the_environment_stays_on_top_of_a_changed_file(tmp_path: Path) -> None:
    """As at the start."""
    write(tmp_path / "server.yaml", "mode: shadow\n")
    _, later = followed(tmp_path, FORESHOCK_BUDGETS__NODES="5")
    write(tmp_path / "server.yaml", "mode: act\nbudgets: {nodes: 2}\n")
    assert (later().mode, later().budgets.nodes) == ("act", 5)


@pytest.mark.parametrize(
    ("server", "own", "words"),
    [
        ("policy: p.yaml\nmode: act\n", "version: 1\n", ["server.yaml:2, mode", "move it into that file"]),
        ("policy: p.yaml\n", "mode: act\n", ["p.yaml", "version: 1"]),
        ("policy: p.yaml\n", "version: 2\n", ["p.yaml:1, version", "form 1"]),
        ("policy: p.yaml\n", "version: 1\ntokens: []\n", ["p.yaml", "'tokens'"]),
        ("policy: p.yaml\n", "version: 1\nmode: x: y\n", ["p.yaml:2 is no YAML"]),
        ("policy: p.yaml\n", None, ["cannot read", "p.yaml"]),
        ("policy: 7\n", None, ["server.yaml:1, policy", "text"]),
    ],
)
def test_a_policy_that_does_not_hold_stops_the_start(
    tmp_path: Path, server: str, own: str | None, words: list[str]
) -> None:
    """One sentence that names the file and the key."""
    write(tmp_path / "server.yaml", server)
    if own is not None:
        write(tmp_path / "p.yaml", own)
    with pytest.raises(click.ClickException) as caught:
        load_settings(tmp_path / "server.yaml", {})
    assert all(word in caught.value.message for word in words), caught.value.message
