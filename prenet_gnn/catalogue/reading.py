"""Reads device entries, the catalogue's or a user's, and checks every field."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from prenet_gnn.catalogue.spec import KINDS, PEAK_PRECISIONS, Hardware
from prenet_gnn.common.files import read_json
from prenet_gnn.errors import ConfigError

DEVICE_FILES = ("nvidia.toml", "amd.toml", "others.toml")
TEXTS = (
    "name",
    "vendor",
    "architecture",
    "kind",
    "compute_capability",
    "form_factor",
    "memory_type",
    "interconnect",
    "confidence",
    "notes",
)
LISTS = ("aliases", "sources")
WHOLE = {
    "launch_year": (1990, 2100, ""),
    "multiprocessors": (1, 100_000, ""),
    "fp32_cores": (1, 10_000_000, ""),
    "tensor_cores": (0, 1_000_000, ""),
    "memory_bytes": (2**28, 2**46, "bytes"),
    "l2_bytes": (2**15, 2**36, "bytes"),
}
RATES = {
    "boost_clock_hz": (1e8, 1e10, "Hz"),
    "base_clock_hz": (1e7, 1e10, "Hz"),
    "memory_bytes_per_s": (1e9, 1e15, "bytes/s"),
    "tdp_w": (1.0, 1e5, "W"),
    "pcie_bytes_per_s": (1e8, 1e13, "bytes/s"),
    "interconnect_bytes_per_s": (1e8, 1e14, "bytes/s"),
} | {f"peak_{each}_flops_per_s": (1e9, 1e18, "FLOP/s") for each in PEAK_PRECISIONS}
REQUIRED = ("name", "multiprocessors", "memory_bytes", "memory_bytes_per_s")
KEYS = (*TEXTS, *LISTS, *WHOLE, *RATES)
NOT_STATED = {"vendor": "unknown", "architecture": "unknown", "kind": "gpu"}


def read_catalogue() -> tuple[Hardware, ...]:
    """All devices of the catalogue, in the order of its files."""
    devices: list[Hardware] = []
    for file in DEVICE_FILES:
        entries = tomllib.loads(data_file(file))["device"]
        devices += [device_from(entry, f"{file}: {entry.get('name', '?')}") for entry in entries]
    return tuple(devices)


def read_device_file(path: Path) -> Hardware:
    """Reads a user's device file, TOML or JSON.

    Raises:
        ConfigError: The file is not readable or a field is wrong; one line per field.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = read_json(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"Device file '{path}' cannot be read: {reason}") from error
    if isinstance(values, dict) and isinstance(values.get("device"), list):
        if len(values["device"]) != 1:
            raise ConfigError(f"Device file '{path}' must hold exactly one device.")
        values = values["device"][0]
    if not isinstance(values, dict):
        raise ConfigError(f"Device file '{path}' must hold the fields of one device.")
    return device_from(values, f"Device file '{path}'")


def device_from(values: Mapping[str, Any], where: str) -> Hardware:
    """Makes a device from its fields.

    Args:
        values: The fields.
        where: Where they were written, for error messages.

    Raises:
        ConfigError: A field is wrong; one line per field.
    """
    problems = _problems(values)
    if problems:
        raise ConfigError("\n".join(f"{where}: {each}" for each in problems))
    peaks = tuple(
        (each, float(values[f"peak_{each}_flops_per_s"]))
        for each in PEAK_PRECISIONS
        if f"peak_{each}_flops_per_s" in values
    )
    fields: dict[str, Any] = dict(NOT_STATED)
    for key, value in values.items():
        if key in LISTS:
            fields[key] = tuple(value)
        elif key in WHOLE:
            fields[key] = int(value)
        elif key in RATES and not key.startswith("peak_"):
            fields[key] = float(value)
        elif key in TEXTS:
            fields[key] = value
    return Hardware(peaks=peaks, **fields)


def data_file(file: str) -> str:
    """The text of one of the catalogue's files."""
    return resources.files("prenet_gnn.catalogue").joinpath(file).read_text(encoding="utf-8")


def _problems(values: Mapping[str, Any]) -> list[str]:
    found = [_unknown_key(str(key)) for key in values if key not in KEYS]
    found += [f"field '{key}' is missing." for key in REQUIRED if key not in values]
    if not any(f"peak_{each}_flops_per_s" in values for each in PEAK_PRECISIONS):
        found.append("no peak rate is given; write at least 'peak_fp32_flops_per_s'.")
    found += _text_problems(values)
    for key in LISTS:
        if not _is_text_list(values.get(key, [])):
            found.append(f"field '{key}' must be a list of texts.")
    if not str(values.get("name", "?")).strip():
        found.append("field 'name' is empty.")
    if values.get("kind", "gpu") not in KINDS:
        found.append(f"kind '{values['kind']}' is not known. Allowed: {', '.join(KINDS)}.")
    for key, (low, high, unit) in (WHOLE | RATES).items():
        if key in values:
            found += _number_problems(key, values[key], low, high, unit)
    return found


def _text_problems(values: Mapping[str, Any]) -> list[str]:
    found = []
    for key in TEXTS:
        value = values.get(key, "")
        if not isinstance(value, str):
            found.append(f"field '{key}' must be text, not {value!r}.")
        elif key != "notes" and not value.isprintable():
            found.append(f"field '{key}' must be one line of plain text, not {value!r}.")
    return found


def _unknown_key(key: str) -> str:
    near = difflib.get_close_matches(key, KEYS, n=1)
    return f"field '{key}' is not known." + (f" Did you mean '{near[0]}'?" if near else "")


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _number_problems(key: str, value: Any, low: float, high: float, unit: str) -> list[str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return [f"field '{key}' must be a number, not {value!r}."]
    if not math.isfinite(value):
        return [f"field '{key}' must be a finite number, not {value}."]
    if key in WHOLE and value != int(value):
        return [f"field '{key}' must be a whole number, not {value}."]
    if not low <= value <= high:
        hint = f" {unit}; is the unit right?" if unit else "."
        return [f"field '{key}' is {value:g}, outside the range {low:g} to {high:g}{hint}"]
    return []
