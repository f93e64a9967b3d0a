"""The registry of receivers: what a configuration's record is made into."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass

import pytest

from schedulers.reconcile.actuator import Hold, JobOrder, Order, OrderReport
from schedulers.registry import ACTUATORS, SCHEDULERS, ActuatorKind, make_actuator


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """Of a scheduler that lies on a desk."""

    name: str


@dataclass(frozen=True, slots=True)
class Desk:
    """It holds nothing."""

    settings: DeskSettings

    @property
    def name(self) -> str:
        """As configured."""
        return self.settings.name

    @property
    def address(self) -> str:
        """Nowhere."""
        return "desk"

    @property
    def avoid_takes(self) -> bool:
        """It does nothing."""
        return False

    def started(self) -> None:
        """It forgets nothing."""

    def observe(self) -> Sequence[Hold]:
        """No node."""
        return ()

    def carry_out(self, _orders: Sequence[Order]) -> Sequence[OrderReport]:
        """Nothing."""
        return ()

    def ask_jobs(self, _orders: Sequence[JobOrder]) -> Sequence[OrderReport]:
        """Nothing."""
        return ()

    def close(self) -> None:
        """It holds nothing open."""


def test_a_record_of_settings_makes_its_own_kind() -> None:
    """By its type."""
    other = ActuatorKind(str, lambda _settings: pytest.fail("another kind's"))
    made = make_actuator(DeskSettings("a"), {"text": other, "desk": ActuatorKind(DeskSettings, Desk)})
    assert (made.name, made.address) == ("a", "desk")


def test_settings_of_no_kind_are_refused() -> None:
    """It would be a fault in our own wiring."""
    with pytest.raises(TypeError, match="DeskSettings is the settings of no kind"):
        make_actuator(DeskSettings("a"), {})


def test_every_kind_has_a_name_of_its_own_and_settings_with_a_name() -> None:
    """A configuration's `kind` leads to one registry alone."""
    assert not set(SCHEDULERS) & set(ACTUATORS)
    for kind in ACTUATORS.values():
        assert is_dataclass(kind.settings)
        assert "name" in {field.name for field in fields(kind.settings)}
