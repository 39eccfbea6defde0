"""What an hour on a device costs: the catalogue's cheapest offer, or what the user says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prenet_gnn.errors import ConfigError
from prenet_gnn.predictor.questions import is_number

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware


@dataclass(frozen=True, slots=True)
class Rate:
    """What one device costs for one hour, and who said so when."""

    usd_per_hour: float
    source: str


def hourly_rates(
    devices: Iterable[Hardware], overrides: Mapping[str, float] | None = None
) -> dict[str, Rate]:
    """Gives the lowest known price of each device; devices without one are left out.

    Args:
        devices: Devices to look up.
        overrides: US dollars per hour by device name or alias, in place of the catalogue's.
    """
    from prenet_gnn.catalogue.devices import get_hardware, prices

    given: dict[str, Rate] = {}
    if not isinstance(overrides or {}, Mapping):
        raise ConfigError(f"prices must be a dict of dollars per hour by name, not {overrides!r}.")
    for name, usd_per_hour in (overrides or {}).items():
        if not is_number(usd_per_hour) or not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
            raise ConfigError(f"the price of {name} must be zero or more, not {usd_per_hour}.")
        given[get_hardware(name).name] = Rate(usd_per_hour, "given by the user")
    found: dict[str, Rate] = {}
    for device in devices:
        if device.name in given:
            found[device.name] = given[device.name]
        # A device file of the user's own has no offers, and its name may be no catalogue name.
        elif device.confidence != "user" and (offers := prices(device.name)):
            best = offers[0]
            found[device.name] = Rate(best.usd_per_hour, f"{best.provider}, {best.as_of}")
    return found


def parse_prices(texts: list[str]) -> dict[str, float]:
    """Reads prices written as NAME=USD_PER_HOUR."""
    prices: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        name = name.strip()
        try:
            price = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ConfigError(
                f"price '{text}' is not understood. Write NAME=USD_PER_HOUR, as 'Tesla T4=0.35'."
            )
        if name in prices:
            raise ConfigError(f"the price of {name} is given twice.")
        prices[name] = price
    return prices
