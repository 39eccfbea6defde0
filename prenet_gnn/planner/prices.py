"""What an hour on a device costs: the catalogue's cheapest offer, or what the user says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from prenet_gnn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one device for one hour, with where and when it was asked."""

    usd_per_hour: float
    source: str


def cheapest_prices(overrides: Mapping[str, float] | None = None) -> dict[str, Price]:
    """Gives the lowest known price per device; an override replaces it.

    Args:
        overrides: US dollars per hour by device name or alias.
    """
    from prenet_gnn.hardware import get_hardware, list_prices

    found: dict[str, Price] = {}
    for offer in list_prices():
        price = Price(offer.usd_per_hour, f"{offer.provider}, {offer.as_of}")
        if offer.device not in found or price.usd_per_hour < found[offer.device].usd_per_hour:
            found[offer.device] = price
    for name, usd_per_hour in (overrides or {}).items():
        if not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
            raise ConfigError(f"the price of {name} must be zero or more, not {usd_per_hour}.")
        found[get_hardware(name).name] = Price(usd_per_hour, "given by the user")
    return found


def parse_prices(texts: list[str]) -> dict[str, float]:
    """Reads prices written as NAME=USD_PER_HOUR."""
    prices: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            prices[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise ConfigError(
                f"price '{text}' is not understood. Write NAME=USD_PER_HOUR, as 'Tesla T4=0.35'."
            )
    return prices
