"""Devices by name: the catalogue, a user's own device file, and rental prices."""

from __future__ import annotations

import difflib
import functools
import re
from pathlib import Path

from prenet_gnn.catalogue.reading import read_catalogue, read_device_file, read_prices
from prenet_gnn.catalogue.spec import Hardware, Price
from prenet_gnn.errors import UnknownHardwareError

__all__ = ["Hardware", "Price", "get_hardware", "list_hardware", "prices"]

# Words that people leave out of a device name.
_BRANDS = re.compile(r"\b(nvidia|amd|intel|google|apple|geforce|tesla|instinct|radeon|quadro)\b")


@functools.cache
def list_hardware() -> tuple[Hardware, ...]:
    """All devices of the catalogue."""
    return read_catalogue()


def get_hardware(name: str | Path) -> Hardware:
    """Finds a device.

    Case and punctuation do not matter. A name matches, in this order, as the canonical name or
    an alias, as one of them without the brand (`RTX 4090`, `V100-SXM2-32GB`), or as a part that
    belongs to one device only.

    Args:
        name: The device's name, or the path of a `.toml` or `.json` device file.

    Raises:
        UnknownHardwareError: No device or several devices match.
        ConfigError: The device file is wrong.
    """
    text = str(name).strip()
    if Path(text).suffix in (".toml", ".json"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise UnknownHardwareError(f"Device file '{text}' does not exist.")
        return read_device_file(path)
    if not _plain(text):
        raise UnknownHardwareError("The device name is empty. `prenet hardware` lists all devices.")
    found = _exact().get(_plain(text)) or _brandless().get(_plain(_short(text)))
    if found is not None and len(found) == 1:
        return found[0]
    found = found or _partial(text)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(sorted(each.name for each in found))
        raise UnknownHardwareError(
            f"'{text}' is the name of several devices: {names}. Write one in full."
        )
    raise UnknownHardwareError(f"Device '{text}' is not in the catalogue.{_nearest(text)}")


def prices(name: str | Path) -> tuple[Price, ...]:
    """Rental offers for a device, cheapest first; empty where none is known.

    A device file of the user's own has no prices, and neither has a name it shares by chance.
    """
    device = get_hardware(name)
    return _prices().get(device.name, ()) if device.confidence != "user" else ()


@functools.cache
def _prices() -> dict[str, tuple[Price, ...]]:
    return read_prices()


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _short(text: str) -> str:
    return _BRANDS.sub(" ", text.lower())


@functools.cache
def _exact() -> dict[str, tuple[Hardware, ...]]:
    return _index(short=False)


@functools.cache
def _brandless() -> dict[str, tuple[Hardware, ...]]:
    return _index(short=True)


def _index(short: bool) -> dict[str, tuple[Hardware, ...]]:
    """Devices by every way to write one of their names; a name beats an alias."""
    by_name: dict[str, dict[str, Hardware]] = {}
    by_alias: dict[str, dict[str, Hardware]] = {}
    for device in list_hardware():
        for table, spellings in ((by_name, (device.name,)), (by_alias, device.aliases)):
            for spelling in spellings:
                key = _plain(_short(spelling) if short else spelling)
                table.setdefault(key, {})[device.name] = device
    merged = by_alias | by_name
    return {key: tuple(devices.values()) for key, devices in merged.items()}


def _partial(text: str) -> tuple[Hardware, ...]:
    """Devices with a name that holds the text, or every word of it."""
    words = re.findall(r"[a-z]+\d*[a-z]*|\d+[a-z]*", _short(text)) or [_plain(text)]
    found = []
    for device in list_hardware():
        spellings = [_plain(each) for each in (device.name, *device.aliases)]
        if any(_plain(text) in each or all(word in each for word in words) for each in spellings):
            found.append(device)
    return tuple(found)


def _nearest(text: str) -> str:
    known = {}
    for device in list_hardware():
        for spelling in (device.name, *device.aliases):
            known[_plain(_short(spelling))] = device.name
    near = difflib.get_close_matches(_plain(_short(text)), known, n=3, cutoff=0.5)
    names = list(dict.fromkeys(known[each] for each in near))
    hint = f" Nearest: {', '.join(names)}." if names else ""
    return f"{hint} `prenet hardware` lists all; the path of a device file works too."
