"""What a device sustains in a number format: where data-sheet rates hold, and where they do not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prenet_gnn.catalogue.spec import Hardware

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
FLOP_PER_JOULE = {"tf32": 2e11, "half_matrix": 4e11, "fp64": 5e10}
DEFAULT_FLOP_PER_JOULE = 1e11
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
EARLY_FP64_PER_CLOCK, EARLY_FP64_SHARE = 4.5, 0.5
# Half-precision rate over that of float32 from which on matrix units must be at work.
MATRIX_GAIN = 2.5
DEFAULT_CLOCK_HZ = 1.5e9
DEFAULT_TDP_W = 250.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one device in one number format.

    Attributes:
        number_format: Which of `encoding.fields.NUMBER_FORMATS` the precision is there.
        clock_hz: The clock they go with.
        peak_flops_per_s: What arithmetic can reach at most in PyTorch's kernels.
        sustained_flops_per_s: What multiprocessors and clock sustain in large products.
        power_flops_per_s: What the power limit allows.
        early_fp64_flops_per_s: What float64 convolutions reach forward in early libraries.
        issue_bytes_per_s: Memory traffic that multiprocessors and clock can issue.
        has_slow_early_fp64: Whether early libraries were that slow on this chip.
        has_no_half_kernels: Whether its libraries compute half precision by a fallback.
    """

    number_format: str
    clock_hz: float
    peak_flops_per_s: float
    sustained_flops_per_s: float
    power_flops_per_s: float
    early_fp64_flops_per_s: float
    issue_bytes_per_s: float
    has_slow_early_fp64: bool
    has_no_half_kernels: bool


def rates_of(hardware: Hardware, precision: str) -> Rates:
    """The rates of a device under a precision of `Workload`."""
    kind = number_format(hardware, precision)
    clock = hardware.boost_clock_hz or hardware.base_clock_hz or DEFAULT_CLOCK_HZ
    peak = _peak(hardware, precision, kind, clock)
    per_clock = hardware.multiprocessors * clock
    sustained, issue = per_clock * _per_clock(hardware, kind), per_clock * BYTES_PER_CLOCK
    power = (hardware.tdp_w or DEFAULT_TDP_W) * FLOP_PER_JOULE.get(kind, DEFAULT_FLOP_PER_JOULE)
    if hardware.kind != "gpu":
        # what a multiprocessor is differs there
        sustained, issue = min(sustained, peak), hardware.memory_bytes_per_s
    return Rates(
        number_format=kind,
        clock_hz=clock,
        peak_flops_per_s=peak,
        sustained_flops_per_s=sustained,
        power_flops_per_s=peak if kind == "cpu" else power,
        early_fp64_flops_per_s=min(EARLY_FP64_SHARE * peak, per_clock * EARLY_FP64_PER_CLOCK),
        issue_bytes_per_s=issue,
        has_slow_early_fp64=kind == "fp64" and _is_before(hardware, AMPERE),
        has_no_half_kernels=kind == "half_plain" and hardware.compute_capability in FALLBACK_HALF,
    )


def number_format(hardware: Hardware, precision: str) -> str:
    """Which of `encoding.fields.NUMBER_FORMATS` a precision is on a device."""
    if hardware.kind == "cpu":
        return "cpu"
    if precision in ("fp32", "tf32", "fp64"):
        has_tf32 = hardware.stated_peak("tf32") is not None
        return "fp32" if precision == "tf32" and not has_tf32 else precision
    if _architecture(hardware).startswith(RDNA):
        return "half_plain"
    gain = hardware.peak_flops_per_s(precision) / hardware.peak_flops_per_s("fp32")
    matrix_units = gain > MATRIX_GAIN or (hardware.tensor_cores or 0) > 0
    return "half_matrix" if matrix_units else "half_plain"


def _architecture(hardware: Hardware) -> str:
    return hardware.compute_capability or ""


def _is_before(hardware: Hardware, capability: tuple[int, int]) -> bool:
    """Whether this is an NVIDIA chip of a lower compute capability."""
    if hardware.kind != "gpu" or not hardware.vendor.upper().startswith("NVIDIA"):
        return False
    numbers = re.fullmatch(r"(\d+)\.(\d+)", _architecture(hardware))
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < capability


def _peak(hardware: Hardware, precision: str, kind: str, clock_hz: float) -> float:
    """What arithmetic can reach at most in PyTorch's kernels, in FLOP per second."""
    peak = hardware.peak_flops_per_s(precision)
    if kind == "half_plain" and _is_before(hardware, VOLTA):
        return min(peak, hardware.peak_flops_per_s("fp32"))
    if kind == "fp64" and _architecture(hardware).startswith(RDNA3):
        return min(peak, hardware.multiprocessors * clock_hz * RDNA3_FP64_PER_CLOCK)
    return peak


def _per_clock(hardware: Hardware, kind: str) -> float:
    """FLOP per clock and multiprocessor that large products sustain."""
    packed = _architecture(hardware).startswith(RDNA) and kind == "half_plain"
    return SUSTAINED_PER_CLOCK.get(kind, 2.0 * _lanes(hardware) * (PACKED if packed else 1.0))


def _lanes(hardware: Hardware) -> float:
    """float32 lanes of a multiprocessor that products keep busy."""
    architecture = _architecture(hardware)
    if architecture in MATRIX_FP32:
        return MATRIX_LANES
    lanes = DEFAULT_LANES
    if hardware.fp32_cores:
        lanes = min(hardware.fp32_cores / max(hardware.multiprocessors, 1), MOST_LANES)
    return lanes / 2.0 if architecture in SHARED_LANES else lanes
