"""Which software and which machine a measurement ran on."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
from typing import TYPE_CHECKING, Any

from prenet_gnn.errors import UnknownHardwareError

if TYPE_CHECKING:
    import torch

LIBRARIES = ("timm", "torchvision", "transformers", "torch_geometric", "triton")


@functools.lru_cache(maxsize=1)
def cpu_info() -> dict[str, Any]:
    """What py-cpuinfo knows; empty where it is not installed."""
    try:
        import cpuinfo
    except ImportError:
        return {}
    return dict(cpuinfo.get_cpu_info())


def cpu_name() -> str:
    """The processor's brand name."""
    return str(cpu_info().get("brand_raw") or platform.processor() or platform.machine())


def memory_bytes() -> int | None:
    """Installed memory of the host."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def device_name(device: torch.device) -> str:
    """The device's own name for itself."""
    import torch

    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return "Apple " + platform.machine() if device.type == "mps" else cpu_name()


def catalogue_name(name: str, device_type: str) -> str | None:
    """The catalogue's name for a device, or None where the catalogue does not know it.

    A CPU counts as known under its full name alone: machines with a part of a chip call it alike.
    Where processor and GPU share a name (`Apple M1`), only the entry of the right kind counts.
    """
    from prenet_gnn.catalogue.devices import get_hardware

    try:
        found = get_hardware(name)
    except UnknownHardwareError:
        return None
    if (found.kind == "cpu") != (device_type == "cpu"):
        return None
    if found.kind == "cpu" and name not in (found.name, *found.aliases):
        return None
    return str(found.name)


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.lru_cache(maxsize=1)
def _fixed_facts() -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": bool(torch.backends.mkldnn.is_available()),  # type: ignore[no-untyped-call]
    }
    versions = {library: _version(library) for library in LIBRARIES}
    return facts | {name: version for name, version in versions.items() if version}


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Software versions, host and load; no host or user name."""
    import torch

    facts = dict(_fixed_facts())
    facts["device"] = device_name(device)
    if hasattr(os, "getloadavg"):
        facts["load_1min"] = round(os.getloadavg()[0], 2)
    if device.type == "cuda":
        facts["cuda"] = torch.version.cuda or torch.version.hip
        facts["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return facts
