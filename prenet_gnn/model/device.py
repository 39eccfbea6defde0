"""A device and a way to run on it, as numbers for the network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from prenet_gnn.catalogue.spec import Hardware
    from prenet_gnn.workload import Workload

# Number formats that behave alike: half precision with and without matrix units differ.
FORMATS = ("fp32", "tf32", "half_matrix", "half_plain", "fp64", "cpu")
# FLOP per clock and multiprocessor that half-precision convolutions sustain on Ampere, Ada and
# Blackwell alike (fitted to measured steps; the data sheet's rate on GeForce cards).
SUSTAINED_PER_CLOCK = {"half_matrix": 512.0, "tf32": 256.0}
# float32 lanes of a multiprocessor where a device does not state them, and the most that a kernel
# keeps busy (Kepler's 192 need two instructions a clock).
DEFAULT_LANES, MOST_LANES = 64.0, 128.0
# Half or all of the lanes of these take integer instructions in turn (NVIDIA's white papers on
# GA102, AD102 and GB202), so products do not sustain the data sheet's rate.
SHARED_LANES = ("8.6", "8.7", "8.9", "12.0", "12.1")
# AMD's CDNA multiplies float32 on matrix cores, 256 FLOP per clock and compute unit (data sheets of
# MI100, MI210, MI300X and MI355X), as many as 128 lanes.
MATRIX_FP32, MATRIX_LANES = ("gfx908", "gfx90a", "gfx942", "gfx950"), 128.0
# Bytes per clock and multiprocessor that serve as unit of the issue rate: near the bandwidth of the
# catalogue's GPUs, whose median is 6.8.
BYTES_PER_CLOCK = 8.0
# FLOP per joule that serve as unit of the power term.
FLOP_PER_JOULE = {"fp32": 1e11, "tf32": 2e11, "half_matrix": 4e11, "half_plain": 1e11, "fp64": 5e10}
# FLOP per clock and multiprocessor in float64 convolutions of PyTorch's early years: GeForce's rate
# on Pascal, and no more on V100 and P100, which could do 64 (FLOPs of VGG over the float64 times of
# pytorch-gpu-benchmark under an unknown version).
OLD_FP64_PER_CLOCK = 8.0
DEFAULT_CLOCK_HZ = 1.5e9
DEFAULT_TDP_W = 250.0
DEFAULT_L2_BYTES = 4 * 2**20
DEFAULT_PCIE_BYTES_PER_S = 16e9
# Versions of PyTorch at which host cost or kernels changed: cuDNN 8 API (1.8), foreach optimizers
# and fused attention (2.0), later compilers (2.4, 2.8).
ERAS = ((1, 8), (2, 0), (2, 4), (2, 8))

DEVICE = (
    "log_peak", "log_sustained", "log_power", "log_bandwidth", "log_multiprocessors", "log_l2",
    "log_clock", "year", "has_matrix_units", "is_cpu", "is_amd", "log_pcie", "log_tdp", "format",
    "log_issue",
)  # fmt: skip
RUN = (
    "channels_last", "compiled", "fp32", "tf32", "half", "amp", "fp64", "train",
    "cudnn_benchmark", "since_1_8", "since_2_0", "since_2_4", "since_2_8", "unknown_version",
    "is_cpu", "is_amd", "half_plain",
)  # fmt: skip


def format_of(hardware: Hardware, precision: str) -> str:
    """Which of `FORMATS` a precision is on a device."""
    if hardware.kind == "cpu":
        return "cpu"
    if precision in ("fp32", "tf32", "fp64"):
        has_tf32 = hardware.stated_peak("tf32") is not None
        return "fp32" if precision == "tf32" and not has_tf32 else precision
    half = hardware.peak_flops_per_s(precision)
    return "half_matrix" if half > 2.5 * hardware.peak_flops_per_s("fp32") or (
        hardware.tensor_cores or 0
    ) > 0 else "half_plain"  # fmt: skip


def _log(value: float | None, default: float) -> float:
    return math.log(value if value and value > 0 else default)


def _lanes(hardware: Hardware) -> float:
    """float32 lanes of a multiprocessor that products keep busy."""
    architecture = hardware.compute_capability or ""
    if architecture in MATRIX_FP32:
        return MATRIX_LANES
    lanes = DEFAULT_LANES
    if hardware.fp32_cores:
        lanes = min(hardware.fp32_cores / max(hardware.multiprocessors, 1), MOST_LANES)
    return lanes / 2.0 if architecture in SHARED_LANES else lanes


def _third_rate(hardware: Hardware, kind: str, by_power: float, peak: float, clock: float) -> float:
    """Logarithm of what the power allows; in float64 of what early libraries reached."""
    if kind == "cpu":
        return math.log(peak)
    if kind == "fp64":
        return math.log(min(peak, hardware.multiprocessors * clock * OLD_FP64_PER_CLOCK))
    return math.log(by_power)


def device_vector(hardware: Hardware, precision: str) -> np.ndarray:
    """`(15,)` float64: natural logarithms of SI figures, flags, and the number format."""
    kind = format_of(hardware, precision)
    clock = hardware.boost_clock_hz or hardware.base_clock_hz or DEFAULT_CLOCK_HZ
    peak = hardware.peak_flops_per_s(precision)
    per_clock = SUSTAINED_PER_CLOCK.get(kind, 2.0 * _lanes(hardware))
    sustained = hardware.multiprocessors * clock * per_clock
    issue = hardware.multiprocessors * clock * BYTES_PER_CLOCK
    if hardware.kind != "gpu":
        # what a multiprocessor is differs there
        sustained, issue = min(sustained, peak), hardware.memory_bytes_per_s
    joule = FLOP_PER_JOULE.get(kind, 1e11)
    tdp = hardware.tdp_w or DEFAULT_TDP_W
    return np.array(
        [
            math.log(peak),
            math.log(sustained),
            _third_rate(hardware, kind, tdp * joule, peak, clock),
            math.log(hardware.memory_bytes_per_s),
            math.log(max(hardware.multiprocessors, 1)),
            _log(hardware.l2_bytes, DEFAULT_L2_BYTES),
            math.log(clock),
            (hardware.launch_year or 2020) - 2019.0,
            float(kind in ("half_matrix", "tf32")),
            float(kind == "cpu"),
            float(hardware.vendor.upper().startswith("AMD")),
            _log(hardware.pcie_bytes_per_s, DEFAULT_PCIE_BYTES_PER_S),
            math.log(tdp),
            float(FORMATS.index(kind)),
            math.log(issue),
        ]
    )


def run_vector(workload: Workload, hardware: Hardware) -> np.ndarray:
    """`(17,)` float32 flags of how a graph is run, in the order of `RUN`.

    bfloat16 and float16 move and multiply at the same rates, so no flag tells them apart.
    """
    version, p = workload.framework_version, workload.precision
    kind = format_of(hardware, p)
    since = [float(version is not None and version >= era) for era in ERAS]
    return np.array(
        [
            float(workload.channels_last),
            float(workload.compiled),
            float(p == "fp32" or (p == "tf32" and kind == "fp32")),
            float(kind == "tf32"),
            float(p in ("fp16", "bf16")),
            float(p.startswith("amp")),
            float(p == "fp64"),
            float(workload.mode == "train"),
            float(workload.cudnn_benchmark),
            *since,
            float(version is None),
            float(kind == "cpu"),
            float(hardware.vendor.upper().startswith("AMD")),
            float(kind == "half_plain"),
        ],
        dtype=np.float32,
    )
