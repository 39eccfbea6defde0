"""Describes this machine's device as the hardware catalogue does, from its own facts and two tests.

A GPU tells most through NVML and PyTorch; its memory bandwidth and its product rates are measured.
A CPU's sustained bandwidth and product rate depend on threads, so both are always measured.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prenet_gnn.measuring import facts, timing

if TYPE_CHECKING:
    import torch

# Best of several short runs: interference only ever slows a run down
REPEATS = 5
# float32 lanes that multiply and add in one clock: two fused units of AVX2 or AVX-512 width
FMA_LANES = {"AVX512": 32, "AVX2": 16, "DEFAULT": 4}


def _best_s(work: Callable[[], object], clock: timing.Clock) -> float:
    work()
    times = []
    for _ in range(REPEATS):
        clock.synchronize()
        start = clock.now()
        work()
        clock.synchronize()
        times.append(clock.now() - start)
    return max(min(times), 1e-9)


def measure_bandwidth_bytes_per_s(device: torch.device, megabytes: int | None = None) -> float:
    """Sustained read plus write rate of a copy much larger than the caches."""
    import torch

    count = (megabytes or (1024 if device.type == "cuda" else 256)) * 2**20 // 4
    source = torch.ones(count, device=device)
    target = torch.empty_like(source)
    seconds = _best_s(lambda: target.copy_(source), timing.clock_for(device))
    return 2 * 4 * count / seconds


def measure_flops_per_s(
    device: torch.device, dtype: torch.dtype | None = None, size: int | None = None
) -> float:
    """Sustained rate of a square matrix product."""
    import torch

    size = size or (8192 if device.type == "cuda" else 1024)
    left = torch.randn(size, size, device=device).to(dtype or torch.float32)
    right = torch.randn(size, size, device=device).to(dtype or torch.float32)
    seconds = _best_s(lambda: left @ right, timing.clock_for(device))
    return 2 * size**3 / seconds


def _nvml(index: int) -> dict[str, Any]:
    """Clock and power limit of a GPU; empty where NVML is not there."""
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    found: dict[str, Any] = {}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        readings: dict[str, Callable[[], Any]] = {
            "boost_clock_hz": lambda: (
                1e6 * pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
            ),
            "tdp_w": lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3,
        }
        for name, read in readings.items():
            with contextlib.suppress(pynvml.NVMLError):
                found[name] = read()
    except pynvml.NVMLError:
        pass
    finally:
        pynvml.nvmlShutdown()
    return found


def _cuda_entry(device: torch.device) -> dict[str, Any]:
    import torch

    index = device.index if device.index is not None else torch.cuda.current_device()
    props = torch.cuda.get_device_properties(index)
    formats = {"fp32": torch.float32}
    if props.major >= 7:
        formats["fp16"] = torch.float16
    if props.major >= 8:
        formats["bf16"] = torch.bfloat16
    rates = {f"peak_{k}_flops_per_s": measure_flops_per_s(device, v) for k, v in formats.items()}
    entry: dict[str, Any] = {
        "name": props.name,
        "vendor": "AMD" if torch.version.hip else "NVIDIA",
        "kind": "gpu",
        "compute_capability": f"{props.major}.{props.minor}",
        "multiprocessors": props.multi_processor_count,
        "memory_bytes": props.total_memory,
        "l2_bytes": props.L2_cache_size,
        "memory_bytes_per_s": measure_bandwidth_bytes_per_s(device),
        **rates,
    }
    return entry | _nvml(index)


def _cpu_entry(device: torch.device) -> dict[str, Any]:
    import torch

    info = facts.cpu_info()
    hertz = info.get("hz_advertised") or info.get("hz_actual") or (None,)
    cores = facts.cores()
    lanes = FMA_LANES.get(torch.backends.cpu.get_cpu_capability(), FMA_LANES["DEFAULT"])
    vendor = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}
    l2_bytes = info.get("l2_cache_size")
    return {
        "name": facts.cpu_name(),
        "vendor": vendor.get(str(info.get("vendor_id_raw")), "unknown"),
        "kind": "cpu",
        "multiprocessors": cores,
        "fp32_cores": cores * lanes,
        "boost_clock_hz": hertz[0],
        "memory_bytes": facts.memory_bytes(),
        "l2_bytes": l2_bytes if isinstance(l2_bytes, int) else None,
        "memory_bytes_per_s": measure_bandwidth_bytes_per_s(device),
        "peak_fp32_flops_per_s": measure_flops_per_s(device),
    }


def detect(device: str | torch.device | None = None) -> dict[str, Any]:
    """Entry of a device with the catalogue's keys, in SI units; takes a second or two.

    The rates are sustained ones measured here, with PyTorch's present thread count, and not those
    of a data sheet; figures that are not known are left out.
    """
    import torch

    from prenet_gnn.measuring.devices import resolve_device

    place = resolve_device(device)
    if place.type == "cuda":
        entry = _cuda_entry(place)
    else:
        entry = _cpu_entry(place)
        if place.type == "mps":
            entry |= {"name": facts.device_name(place), "vendor": "Apple", "kind": "gpu"}
    rates = {k: float(f"{v:.4g}") for k, v in entry.items() if k.endswith("per_s") and v}
    day = time.strftime("%Y-%m-%d", time.gmtime())
    threads = "" if place.type == "cuda" else f" on {torch.get_num_threads()} threads"
    notes = f"Rates measured{threads} with PyTorch {torch.__version__}, {day}."
    known = {k: v for k, v in entry.items() if v not in (None, 0, "")}
    return known | rates | {"confidence": "low", "notes": notes}
