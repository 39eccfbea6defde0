"""A device and a way to run on it, as numbers for the network."""

from __future__ import annotations

import functools
import math

import numpy as np

from prenet_gnn.catalogue.rates import rates_of
from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.encoding.fields import DEVICE, ERAS, RUN
from prenet_gnn.workload.workload import Workload

DEFAULT_L2_BYTES = 4 * 2**20
DEFAULT_PCIE_BYTES_PER_S = 16e9
# Years are counted from here.
YEAR, DEFAULT_YEAR = 2019, 2020


@functools.lru_cache(maxsize=4096)
def device_vector(hardware: Hardware, precision: str) -> np.ndarray:
    """`(DEVICE.width,)` float64, read-only: natural logarithms of SI figures, and flags."""
    rates = rates_of(hardware, precision)
    row = DEVICE.row(
        {
            "log_peak": math.log(rates.peak_flops_per_s),
            "log_sustained": math.log(rates.sustained_flops_per_s),
            "log_power": math.log(rates.power_flops_per_s),
            "log_bandwidth": math.log(hardware.memory_bytes_per_s),
            "log_multiprocessors": math.log(max(hardware.multiprocessors, 1)),
            "log_l2": _log(hardware.l2_bytes, DEFAULT_L2_BYTES),
            "log_clock": math.log(rates.clock_hz),
            "year": (hardware.launch_year or DEFAULT_YEAR) - YEAR,
            "is_cpu": rates.number_format == "cpu",
            "is_amd": _is_amd(hardware),
            "log_pcie": _log(hardware.pcie_bytes_per_s, DEFAULT_PCIE_BYTES_PER_S),
            "log_issue": math.log(rates.issue_bytes_per_s),
            "log_early_fp64": math.log(rates.early_fp64_flops_per_s),
            "early_fp64": rates.has_slow_early_fp64,
        }
    )
    row.flags.writeable = False
    return row


@functools.lru_cache(maxsize=4096)
def run_vector(workload: Workload, hardware: Hardware) -> np.ndarray:
    """`(RUN.width,)` float32 flags of how a graph is run, read-only.

    bfloat16 and float16 move and multiply at the same rates, so no flag tells them apart.
    """
    version, precision = workload.framework_version, workload.precision
    rates = rates_of(hardware, precision)
    kind = rates.number_format
    row = RUN.row(
        {
            "channels_last": workload.channels_last,
            "compiled": workload.compiled,
            "fp32": precision == "fp32" or (precision == "tf32" and kind == "fp32"),
            "tf32": kind == "tf32",
            "half": precision in ("fp16", "bf16") or precision.startswith("amp"),
            "fp64": precision == "fp64",
            "train": workload.mode == "train",
            "cudnn_benchmark": workload.cudnn_benchmark,
            **{f"since_{a}_{b}": version is not None and version >= (a, b) for a, b in ERAS},
            "unknown_version": version is None,
            "is_cpu": kind == "cpu",
            "is_amd": _is_amd(hardware),
            "half_plain": kind == "half_plain",
            "half_fallback": rates.has_no_half_kernels,
        },
        dtype=np.float32,
    )
    row.flags.writeable = False
    return row


def _is_amd(hardware: Hardware) -> bool:
    return hardware.vendor.upper().startswith("AMD")


def _log(value: float | None, default: float) -> float:
    return math.log(value if value and value > 0 else default)
