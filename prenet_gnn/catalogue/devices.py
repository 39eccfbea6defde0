"""Devices by name: the catalogue, and a user's own device file."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable
from pathlib import Path

from prenet_gnn.catalogue.reading import read_catalogue, read_device_file
from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.errors import UnknownHardwareError

__all__ = ["Hardware", "get_hardware", "list_hardware"]

# More of an unknown name is not repeated.
LONGEST_NAME = 80
# Words that people leave out of a device name: makers, then lines of products.
_MAKERS = ("nvidia", "amd", "intel", "google", "apple", "aws")
_LINES = ("geforce", "quadro", "radeon", "instinct")
_BRANDS = re.compile(rf"\b({'|'.join((*_MAKERS, *_LINES, 'tesla'))})\b")
_SERIES = re.compile(r"\b(?:geforce (?:rtx|gtx)|radeon rx) (?=\d)")
# Words that tell nothing about a device; a memory size with its unit, however it is written.
_FILLERS = re.compile(r"\b(?:gpu|cpu|graphics|generation|edition|processor)\b")
_SIZE = re.compile(r"\b(\d+)\s*g(?:i?b)?\b")
# Words that make another model of a name: never left out.
_MODELS = ("ti", "super", "xt", "xtx", "gre", "max", "ultra", "laptop", "mobile")
# Words that many devices share: sizes, slots, kinds of memory, small numbers, those above.
_SHARED = re.compile(
    rf"\d{{1,2}}|\d+gb|(?:sxm|hbm|gddr|pcie|nvl)\d*[a-z]?|rtx|gtx|rx|pro|{'|'.join(_MODELS)}"
)


@functools.cache
def list_hardware() -> tuple[Hardware, ...]:
    """All devices of the catalogue."""
    return read_catalogue()


def get_hardware(name: str | Path) -> Hardware:
    """Finds a device.

    Case and punctuation do not matter. A name matches, in this order, as the canonical name or
    an alias, as one of them without the brand (`RTX 4090`, `V100-SXM2-32GB`) or the series
    (`2080 Ti`), or as whole words that belong to one device only (`H100 SXM`); a part of a word
    is never a match.

    Args:
        name: The device's name, or the path of a `.toml` or `.json` device file.

    Raises:
        UnknownHardwareError: No device or several devices match.
        ConfigError: The device file is wrong.
    """
    if not isinstance(name, (str, Path)):
        raise UnknownHardwareError(f"a device is a name or a file, not {name!r}.")
    text = str(name).strip()
    if Path(text).suffix in (".toml", ".json"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise UnknownHardwareError(f"Device file '{text}' does not exist.")
        return read_device_file(path)
    if not _plain(text):
        raise UnknownHardwareError("The device name is empty. `prenet hardware` lists all devices.")
    found = _exact().get(_plain(text)) or _without_brand(text)
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
    shown = text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "..."
    raise UnknownHardwareError(f"Device '{shown}' is not in the catalogue.{_nearest(text)}")


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _short(text: str) -> str:
    return _BRANDS.sub(" ", text.lower())


@functools.cache
def _exact() -> dict[str, tuple[Hardware, ...]]:
    return _index(str)


@functools.cache
def _brandless() -> dict[str, tuple[Hardware, ...]]:
    return _index(_short)


@functools.cache
def _bare() -> dict[str, tuple[Hardware, ...]]:
    return _index(lambda spelling: _short(_SERIES.sub("", spelling.lower())))


def _index(shorten: Callable[[str], str]) -> dict[str, tuple[Hardware, ...]]:
    """Devices by every way to write one of their names; a name beats an alias."""
    by_name: dict[str, dict[str, Hardware]] = {}
    by_alias: dict[str, dict[str, Hardware]] = {}
    for device in list_hardware():
        for table, spellings in ((by_name, (device.name,)), (by_alias, device.aliases)):
            for spelling in spellings:
                key = _plain(shorten(spelling))
                table.setdefault(key, {})[device.name] = device
    merged = by_alias | by_name
    return {key: tuple(devices.values()) for key, devices in merged.items()}


def _without_brand(text: str) -> tuple[Hardware, ...] | None:
    """Devices called so without a brand or series, none of another maker than the text names."""
    found = _brandless().get(_plain(_short(text))) or _bare().get(_plain(_short(text)))
    return tuple(each for each in found if _is_by_maker(each, text)) if found else None


def _is_by_maker(device: Hardware, text: str) -> bool:
    makers = set(re.findall(r"[a-z]+", text.lower())) & set(_MAKERS)
    return makers <= {device.vendor.lower()}


def _partial(text: str) -> tuple[Hardware, ...]:
    """Devices with a name that holds every word of the text."""
    words = _words(_FILLERS.sub(" ", _short(text)))
    telling = [each for each in words if not _SHARED.fullmatch(each)]
    if not telling or (len(words) == 1 and not re.search(r"\d", words[0])):
        return ()
    lines = [each for each in _LINES if each in _words(text)]
    found = []
    for device, spellings in _spellings():
        if (
            _is_by_maker(device, text)
            and all(any(line in runs for runs, _ in spellings) for line in lines)
            and any(_names(words, *each) for each in spellings)
        ):
            found.append(device)
    return tuple(found)


def _names(words: list[str], runs: frozenset[str], models: tuple[str, ...]) -> bool:
    """Whether the words are whole ones of a spelling and leave out no word for a model."""
    text = "".join(words)
    return (text in runs or runs.issuperset(words)) and all(each in text for each in models)


@functools.cache
def _spellings() -> list[tuple[Hardware, list[tuple[frozenset[str], tuple[str, ...]]]]]:
    """Every device with the runs of words and the words for a model in each of its spellings."""
    found = []
    for device in list_hardware():
        split = [_words(each) for each in (device.name, *device.aliases)]
        found.append(
            (device, [(_runs(each), tuple(w for w in each if w in _MODELS)) for each in split])
        )
    return found


def _words(text: str) -> list[str]:
    plain = re.sub(r"\((r|tm)\)", " ", text.lower())
    return re.findall(r"[a-z0-9]+", _SIZE.sub(r"\1gb", plain))


def _runs(words: list[str]) -> frozenset[str]:
    """Neighbouring words written as one (`rtx3090`), a last one without its number (`sxm`)."""
    found = set()
    for first in range(len(words)):
        run = ""
        for word in words[first:]:
            if run and run[-1].isdigit() and word[0].isdigit():
                break
            stem = re.fullmatch(r"([a-z]{3,})\d+[a-z]?", word)
            if stem:
                found.add(run + stem[1])
            run += word
            found.add(run)
    return frozenset(found)


def _nearest(text: str) -> str:
    known = {}
    for device in list_hardware():
        for spelling in (device.name, *device.aliases):
            known[_plain(_short(spelling))] = device.name
    near = difflib.get_close_matches(_plain(_short(text)), known, n=3, cutoff=0.5)
    names = list(dict.fromkeys(known[each] for each in near))
    hint = f" Nearest: {', '.join(names)}." if names else ""
    return f"{hint} `prenet hardware` lists all; the path of a device file works too."
