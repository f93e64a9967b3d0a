"""What GPU-hours cost in a site's currency: the one place that turns hours into money.

    price = parse_price("2.50 EUR")
    price.of(12.3)                          # MoneyJson(currency="EUR", amount="30.750")
    with_money({"lost_gpu_hours": 12.3}, price)   # {"lost_gpu_hours": 12.3, "lost_money": {...}}
    shown(price.of(12.3))                   # "EUR 30.75"

An amount is the GPU-hours as the same answer tells them, times the price, as an exact decimal: whoever multiplies the
two gets that very number. Only `shown`, for people, rounds: to the currency's smallest unit, half to even.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation
from typing import Annotated, Any

from wire.message import JsonObject, example

_PRICE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([A-Z]{3})", re.ASCII)
# A float has at most 17 digits, a price 18; what would be rounded raises.
_EXACT = Context(prec=64, traps=[Inexact, InvalidOperation])
_ROUNDED = Context(prec=400, rounding=ROUND_HALF_EVEN)
# Decimal places of a currency's smallest unit, where they are not two (ISO 4217, list one).
_PLACES: dict[str, int] = {
    **dict.fromkeys(re.findall("...", "BIFCLPDJFGNFISKJPYKMFKRWPYGRWFUGXUYIVNDVUVXAFXOFXPF"), 0),
    **dict.fromkeys(re.findall("...", "BHDIQDJODKWDLYDOMRTND"), 3),
    "CLF": 4,
    "UYW": 4,
}
# The name of an amount of GPU-hours; its money's name has `money` there: `lost_gpu_hours`, `lost_money`.
_GPU_HOURS = re.compile(r"(?<![a-z])gpu_h(?:ours)?(?![a-z])")


class MoneyJson(JsonObject, frozen=True, kw_only=True):
    """An amount of money: an exact decimal as text, and the ISO 4217 code of its currency."""

    currency: Annotated[str, example("EUR")]
    amount: Annotated[str, example("30.75")]


@dataclass(frozen=True, slots=True)
class GpuHourPrice:
    """What one GPU costs an hour, in a currency by its ISO 4217 code."""

    amount: Decimal
    currency: str

    def of(self, gpu_hours: float | None) -> MoneyJson | None:
        """What GPU-hours cost; None where they are not known."""
        if gpu_hours is None or isinstance(gpu_hours, bool) or not isinstance(gpu_hours, int | float):
            return None
        try:
            worth = _EXACT.multiply(Decimal(repr(gpu_hours)), self.amount)
        except (Inexact, InvalidOperation):  # infinite, or no number
            return None
        return MoneyJson(currency=self.currency, amount=f"{worth:f}") if worth.is_finite() else None

    def to_json(self) -> dict[str, str]:
        """As the API tells the price itself."""
        return {"currency": self.currency, "amount": f"{self.amount:f}"}


def parse_price(text: str) -> GpuHourPrice:
    """The price that a configuration writes, `2.50 EUR`.

    Raises:
        ValueError: it is none; the message says how one is written.
    """
    found = _PRICE.fullmatch(text)
    if found is None or not Decimal(found[1]):
        raise ValueError(f"{text[:40]!r} is no price of a GPU-hour: write 2.50 EUR, with the currency's ISO 4217 code")
    return GpuHourPrice(Decimal(found[1]), found[2])


def price_of(money: MoneyJson | None) -> GpuHourPrice | None:
    """The price that an API told; None where it told none, or none that can be read."""
    try:
        return None if money is None else parse_price(f"{money.amount} {money.currency}")
    except ValueError:
        return None


def with_money(told: Mapping[str, Any], price: GpuHourPrice | None) -> dict[str, Any]:
    """An object of an answer with the money of each of its GPU-hours beside them; without a price as it was."""
    if price is None:
        return dict(told)
    hours = {name: found for name in told if (found := _GPU_HOURS.sub("money", name)) != name}
    return {**told, **{money: _worth(told[name], price) for name, money in hours.items()}}


def _worth(hours: Any, price: GpuHourPrice) -> Any:
    if isinstance(hours, Mapping):
        return {name: _worth(one, price) for name, one in hours.items()}
    found = price.of(hours)
    return None if found is None else {"currency": found.currency, "amount": found.amount}


def per_day(gain: float | None, gpus: int | None, price: GpuHourPrice | None) -> dict[str, str] | None:
    """What a gain in goodput (0-1) is worth in a day of a run that holds so many GPUs."""
    if price is None or gpus is None:
        return None
    day = GpuHourPrice(_EXACT.multiply(price.amount, Decimal(gpus * 24)), price.currency).of(gain)
    return None if day is None else {"currency": day.currency, "amount": day.amount}


def shown(money: MoneyJson | Mapping[str, str] | None) -> str:
    """An amount for people, `EUR 1,234.57`; nothing where there is none. Of too little for a coin it says so."""
    if money is None:
        return ""
    currency, text = (
        (money.currency, money.amount) if isinstance(money, MoneyJson) else (money["currency"], money["amount"])
    )
    try:
        amount, unit = Decimal(text), Decimal(1).scaleb(-_PLACES.get(currency, 2))
        coins = amount.quantize(unit, context=_ROUNDED)
    except InvalidOperation:
        return ""
    if not amount.is_finite():
        return ""
    if amount and not coins:
        return f"under {currency} {unit:f}" if amount > 0 else f"{currency} 0"
    return f"{currency} {coins:,f}"


def aside(money: MoneyJson | Mapping[str, str] | None) -> str:
    """The same in brackets behind its GPU-hours: ` (EUR 1,234.57)`; nothing where there is none."""
    text = shown(money)
    return f" ({text})" if text else ""
