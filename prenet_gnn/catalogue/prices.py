"""What an hour on a device costs: the catalogue's cheapest offer, or what the user says."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.catalogue.reading import data_file
from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.common.numbers import is_number
from prenet_gnn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Offer:
    """One rental offer.

    Attributes:
        usd_per_hour: Price of one device for one hour.
        provider: Who rents it out.
        as_of: The day the source gave the price.
        source: Where the price comes from.
        instance_type: The provider's name of the machine.
        devices_per_instance: Devices that are rented together.
        notes: Region and conditions.
    """

    usd_per_hour: float
    provider: str
    as_of: date
    source: str
    instance_type: str = ""
    devices_per_instance: int = 1
    notes: str = ""


@functools.cache
def read_offers() -> dict[str, tuple[Offer, ...]]:
    """All rental offers by device name, cheapest first."""
    found: dict[str, list[Offer]] = {}
    for entry in tomllib.loads(data_file("prices.toml"))["price"]:
        day = entry["as_of"]
        assert isinstance(day, date)
        values = {key: value for key, value in entry.items() if key != "device"}
        found.setdefault(str(entry["device"]), []).append(Offer(**values))
    return {
        name: tuple(sorted(offers, key=lambda each: each.usd_per_hour))
        for name, offers in found.items()
    }


def offers_of(device: Hardware) -> tuple[Offer, ...]:
    """Rental offers for a device, cheapest first; empty where none is known.

    A device file of the user's own has no offers, and neither has a name it shares by chance.
    """
    return read_offers().get(device.name, ()) if device.confidence != "user" else ()


@dataclass(frozen=True, slots=True)
class HourlyPrice:
    """What one device costs for one hour, and who said so when."""

    usd_per_hour: float
    source: str


def hourly_prices(
    devices: Iterable[Hardware], overrides: Mapping[str, float] | None = None
) -> dict[str, HourlyPrice]:
    """Gives the lowest known price of each device; devices without one are left out.

    Args:
        devices: Devices to look up.
        overrides: US dollars per hour by device name or alias, in place of the catalogue's.
    """
    given: dict[str, HourlyPrice] = {}
    if not isinstance(overrides or {}, Mapping):
        raise ConfigError(f"prices must be a dict of dollars per hour by name, not {overrides!r}.")
    for name, usd_per_hour in (overrides or {}).items():
        if not is_number(usd_per_hour) or not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
            raise ConfigError(f"the price of {name} must be zero or more, not {usd_per_hour}.")
        given[get_hardware(name).name] = HourlyPrice(usd_per_hour, "given by the user")
    found: dict[str, HourlyPrice] = {}
    for device in devices:
        if device.name in given:
            found[device.name] = given[device.name]
        elif offers := offers_of(device):
            best = offers[0]
            found[device.name] = HourlyPrice(best.usd_per_hour, f"{best.provider}, {best.as_of}")
    return found
