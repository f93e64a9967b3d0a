"""Schedulers that are read back, in the server's configuration."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.config.server import load_settings
from cli.console.errors import Failure
from schedulers.registry import ACTUATORS, ActuatorKind


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """Of a scheduler that lies on a desk."""

    name: str
    drawers: int = 3
    label: str | None = None

    def __post_init__(self) -> None:
        """A desk has drawers."""
        if self.drawers == 0:
            raise ValueError("drawers: at least 1, or nothing is kept")


@pytest.fixture(autouse=True)
def desk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind that is known for the length of a test."""
    monkeypatch.setitem(ACTUATORS, "desk", ActuatorKind(DeskSettings, pytest.fail))


def load(tmp_path: Path, text: str) -> object:
    """The actuators of a file."""
    file = tmp_path / "f.yaml"
    file.write_text(text)
    return load_settings(file, {}).actuators


def test_each_kind_fills_its_own_record(tmp_path: Path) -> None:
    """Beside a webhook; nothing is connected to."""
    secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    hook = f"{{kind: webhook, name: ops, url: 'http://x', secret: {secret}}}"
    text = f"schedulers: [{{kind: desk, name: a, drawers: 5, label: gpu}}, {hook}, {{kind: desk, name: b}}]"
    assert load(tmp_path, text) == (DeskSettings("a", 5, "gpu"), DeskSettings("b"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{kind: desk}", ["schedulers[0]", "name"]),
        ("{kind: desk, name: a, drawer: 5}", ["schedulers[0]", "did you mean 'drawers'"]),
        ("{kind: desk, name: a, drawers: five}", ["schedulers[0], drawers", "whole number"]),
        ("{kind: desk, name: a, label: 5}", ["schedulers[0], label", "text"]),
        ("{kind: desk, name: a, drawers: 0}", ["schedulers[0]", "at least 1"]),
        ("{kind: smoke}", ["schedulers[0], kind", "webhook", "desk"]),
        ("{kind: desk, name: a}, {kind: desk, name: a}", ["'a' is there twice"]),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(tmp_path: Path, text: str, words: list[str]) -> None:
    """One sentence: file, key and remedy."""
    with pytest.raises(Failure) as caught:
        load(tmp_path, f"schedulers: [{text}]")
    assert all(word in caught.value.message for word in words), caught.value.message
