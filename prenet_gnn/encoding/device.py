"""A device and a way to run on it, as numbers for the network."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from prenet_gnn.catalogue.spec import Hardware
    from prenet_gnn.workload.workload import Workload

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
# Chips before these have no matrix units for half precision, nor kernels that add up in it: PyTorch
# asks cuDNN and cuBLAS for sums in float32, so half precision multiplies at float32's rate there.
VOLTA, AMPERE = (7, 0), (8, 0)
# AMD's gaming chips: its libraries use packed half precision on plain lanes, twice float32's rate.
# RX 7800 XT and 7900 XTX reach 190 to 230 FLOP per clock and unit in VGG, as RX 6700 XT and 6800
# do, and not the 512 of their data sheets (`python -m experiments.rates`).
RDNA, PACKED = ("gfx10", "gfx11"), 2.0
# AMD's libraries have no kernels of their own for half precision on these (ROCm supports none of
# them): VGG on RX 5700 reaches 2.6 times less than in float32 forward and 8 times less backward
# (`python -m experiments.rates`).
FALLBACK_HALF = ("gfx1010", "gfx1011", "gfx1012")
# float64 FLOP per clock and unit of RDNA 3. TechPowerUp lists twice, Wikipedia's tables of cards
# list this, and VGG reaches 80 to 91% of it (`python -m experiments.rates`).
RDNA3, RDNA3_FP64_PER_CLOCK = "gfx11", 4.0
# float64 FLOP per clock and multiprocessor in the forward pass of convolutions in PyTorch's early
# years on chips before Ampere: half the rate of the backward pass on GeForce cards, and no more on
# V100 and P100, which reach 30 or more backward (`python -m experiments.rates`).
OLD_FP64_PER_CLOCK, OLD_FP64_SHARE = 4.5, 0.5
DEFAULT_CLOCK_HZ = 1.5e9
DEFAULT_TDP_W = 250.0
DEFAULT_L2_BYTES = 4 * 2**20
DEFAULT_PCIE_BYTES_PER_S = 16e9
# Versions of PyTorch at which host cost or kernels changed: cuDNN 8 API (1.8), cuDNN 8.3 with
# other channels-last kernels (1.12), foreach optimizers and fused attention (2.0), later compilers
# (2.4, 2.8).
ERAS = ((1, 8), (1, 12), (2, 0), (2, 4), (2, 8))

DEVICE = (
    "log_peak", "log_sustained", "log_power", "log_bandwidth", "log_multiprocessors", "log_l2",
    "log_clock", "year", "has_matrix_units", "is_cpu", "is_amd", "log_pcie", "log_tdp", "format",
    "log_issue", "early_fp64",
)  # fmt: skip
RUN = (
    "channels_last", "compiled", "fp32", "tf32", "half", "fp64", "train",
    "cudnn_benchmark", "since_1_8", "since_1_12", "since_2_0", "since_2_4", "since_2_8",
    "unknown_version", "is_cpu", "is_amd", "half_plain", "half_fallback",
)  # fmt: skip


def format_of(hardware: Hardware, precision: str) -> str:
    """Which of `FORMATS` a precision is on a device."""
    if hardware.kind == "cpu":
        return "cpu"
    if precision in ("fp32", "tf32", "fp64"):
        has_tf32 = hardware.stated_peak("tf32") is not None
        return "fp32" if precision == "tf32" and not has_tf32 else precision
    if (hardware.compute_capability or "").startswith(RDNA):
        return "half_plain"
    half = hardware.peak_flops_per_s(precision)
    return "half_matrix" if half > 2.5 * hardware.peak_flops_per_s("fp32") or (
        hardware.tensor_cores or 0
    ) > 0 else "half_plain"  # fmt: skip


def _is_before(hardware: Hardware, capability: tuple[int, int]) -> bool:
    """Whether this is an NVIDIA chip of a lower compute capability."""
    if hardware.kind != "gpu" or not hardware.vendor.upper().startswith("NVIDIA"):
        return False
    numbers = re.fullmatch(r"(\d+)\.(\d+)", hardware.compute_capability or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < capability


def _peak(hardware: Hardware, precision: str, kind: str, clock: float) -> float:
    """What arithmetic can reach at most in PyTorch's kernels, in FLOP per second."""
    peak = hardware.peak_flops_per_s(precision)
    architecture = hardware.compute_capability or ""
    if kind == "half_plain" and _is_before(hardware, VOLTA):
        return min(peak, hardware.peak_flops_per_s("fp32"))
    if kind == "fp64" and architecture.startswith(RDNA3):
        return min(peak, hardware.multiprocessors * clock * RDNA3_FP64_PER_CLOCK)
    return peak


def _per_clock(hardware: Hardware, kind: str) -> float:
    """FLOP per clock and multiprocessor that large products sustain."""
    packed = (hardware.compute_capability or "").startswith(RDNA) and kind == "half_plain"
    return SUSTAINED_PER_CLOCK.get(kind, 2.0 * _lanes(hardware) * (PACKED if packed else 1.0))


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
        by_clock = hardware.multiprocessors * clock * OLD_FP64_PER_CLOCK
        return math.log(min(OLD_FP64_SHARE * peak, by_clock))
    return math.log(by_power)


def device_vector(hardware: Hardware, precision: str) -> np.ndarray:
    """`(16,)` float64: natural logarithms of SI figures, flags, and the number format."""
    kind = format_of(hardware, precision)
    clock = hardware.boost_clock_hz or hardware.base_clock_hz or DEFAULT_CLOCK_HZ
    peak = _peak(hardware, precision, kind, clock)
    sustained = hardware.multiprocessors * clock * _per_clock(hardware, kind)
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
            float(kind == "fp64" and _is_before(hardware, AMPERE)),
        ]
    )


def run_vector(workload: Workload, hardware: Hardware) -> np.ndarray:
    """`(18,)` float32 flags of how a graph is run, in the order of `RUN`.

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
            float(p in ("fp16", "bf16") or p.startswith("amp")),
            float(p == "fp64"),
            float(workload.mode == "train"),
            float(workload.cudnn_benchmark),
            *since,
            float(version is None),
            float(kind == "cpu"),
            float(hardware.vendor.upper().startswith("AMD")),
            float(kind == "half_plain"),
            float(kind == "half_plain" and hardware.compute_capability in FALLBACK_HALF),
        ],
        dtype=np.float32,
    )
