"""GPU-hours by the price of one: exact decimals in answers, whole coins for people, nothing where no price is set."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.money.price import MoneyJson, parse_price, per_day, price_of, shown, with_money

PRICE = parse_price("2.50 EUR")


@given(st.floats(allow_nan=False, allow_infinity=False), st.decimals("0.000000001", "999999999", places=9))
def test_an_amount_is_the_told_hours_times_the_price_exactly(hours: float, rate: Decimal) -> None:
    """Whatever float: no digit is lost, so that whoever multiplies what was told gets the same."""
    found = parse_price(f"{rate:f} EUR").of(hours)
    assert found is not None
    assert Fraction(found.amount) == Fraction(repr(hours)) * Fraction(rate)


def test_what_is_no_number_costs_nothing_that_is_known() -> None:
    """None, not 0: of hours that nobody knows, of what is not finite, of texts that came by the way."""
    for hours in (None, float("nan"), float("inf"), True, "12"):
        assert PRICE.of(hours) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "2.50", "EUR", "EUR 2.50", "-1 EUR", "0 EUR", "0.0 EUR", "1e3 EUR", "2,50 EUR",
                                  "2.50 eur", "2.50 EURO", "2.50 EUR\n", "١ EUR", "9999999999 EUR"])  # fmt: skip
def test_what_is_no_price_is_refused(text: str) -> None:
    """The message says how one is written."""
    with pytest.raises(ValueError, match=r"write 2\.50 EUR"):
        parse_price(text)


@pytest.mark.parametrize(
    ("currency", "amount", "says"),
    [
        ("EUR", "1234.565", "EUR 1,234.56"),  # half to even
        ("EUR", "1234.575", "EUR 1,234.58"),
        ("JPY", "1234.5", "JPY 1,234"),
        ("KWD", "0.0005", "under KWD 0.001"),
        ("EUR", "0", "EUR 0.00"),
        ("EUR", "0.004", "under EUR 0.01"),
        ("EUR", "-3.5", "EUR -3.50"),
        ("EUR", "NaN", ""),
        ("EUR", "lots", ""),
    ],
)
def test_people_read_whole_coins(currency: str, amount: str, says: str) -> None:
    """By the currency's own smallest unit; what is less than one is not told as nothing."""
    assert shown(MoneyJson(currency=currency, amount=amount)) == says


def test_every_amount_of_gpu_hours_of_an_object_has_its_money_beside_it() -> None:
    """By its name; what is told of nothing else stays alone, and without a price all does."""
    told = {"lost_gpu_hours": 12.3, "gpu_hours": {"idle": 1, "out": None}, "held_gpu_h": None, "gpus": 8, "lost_s": 5.0}
    found = with_money(told, PRICE)
    assert found == told | {
        "lost_money": {"currency": "EUR", "amount": "30.750"},
        "money": {"idle": {"currency": "EUR", "amount": "2.50"}, "out": None},
        "held_money": None,
    }
    assert with_money(told, None) == told


def test_a_gain_is_worth_its_share_of_a_day_of_the_run() -> None:
    """0.01 of 16 GPUs is 3.84 GPU-hours a day."""
    assert per_day(0.01, 16, PRICE) == {"currency": "EUR", "amount": "9.6000"}
    assert per_day(None, 16, PRICE) is per_day(0.1, None, PRICE) is per_day(0.1, 16, None) is None


def test_a_price_comes_through_the_api_as_it_is() -> None:
    """What cannot be read is none."""
    assert price_of(MoneyJson(**PRICE.to_json())) == PRICE
    assert price_of(None) is price_of(MoneyJson(currency="Euro", amount="x")) is None
