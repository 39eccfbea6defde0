"""What the catalogue holds of a device."""

from __future__ import annotations

from dataclasses import dataclass, field

PEAK_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
KINDS = ("gpu", "cpu", "tpu", "other")
# Which stated rate serves a precision, best first.
_FALLBACKS: dict[str, tuple[str, ...]] = {
    "fp64": ("fp64",),
    "fp32": ("fp32", "tf32", "bf16", "fp16"),
    "tf32": ("tf32", "fp32", "bf16", "fp16"),
    "fp16": ("fp16", "fp32", "bf16"),
    "bf16": ("bf16", "fp32", "fp16"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
}
# Rate of float64 where no source states it: the ratio that consumer GPUs have.
_EMULATED_FP64 = 1 / 32
# Workload precisions by the number format their matrix products use.
_MATRIX_FORMAT = {"amp_fp16": "fp16", "amp_bf16": "bf16", "amp_fp8": "fp8"}


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device in SI units; None where no source states a figure.

    Attributes:
        name: Canonical name.
        vendor: Maker.
        architecture: The maker's name of the chip generation.
        kind: `gpu`, `cpu`, `tpu` or `other`.
        compute_capability: CUDA compute capability or AMD gfx target; empty for others.
        launch_year: Year of the launch; 0 where unknown.
        form_factor: Board or module.
        multiprocessors: SMs, compute units or cores.
        fp32_cores: Float32 lanes.
        tensor_cores: Matrix units.
        boost_clock_hz: Boost clock.
        base_clock_hz: Base clock.
        memory_bytes: Size of the device memory.
        memory_type: Kind of memory.
        memory_bytes_per_s: Peak memory bandwidth.
        l2_bytes: Size of the last cache level before memory.
        peaks: Dense peak rates in FLOP/s by precision, as stated; see `peak_flops_per_s`.
        tdp_w: Power limit.
        pcie_bytes_per_s: Link to the host, one direction.
        interconnect_bytes_per_s: Link to other devices, both directions together.
        interconnect: The links in words.
        aliases: Other names.
        sources: Where the figures come from.
        confidence: `high`, `medium`, `low` or `user`.
        notes: Conflicts and remarks.
    """

    name: str
    vendor: str
    architecture: str
    kind: str
    multiprocessors: int
    memory_bytes: int
    memory_bytes_per_s: float
    peaks: tuple[tuple[str, float], ...]
    compute_capability: str = ""
    launch_year: int = 0
    form_factor: str = ""
    fp32_cores: int | None = None
    tensor_cores: int | None = None
    boost_clock_hz: float | None = None
    base_clock_hz: float | None = None
    memory_type: str = ""
    l2_bytes: int | None = None
    tdp_w: float | None = None
    pcie_bytes_per_s: float | None = None
    interconnect_bytes_per_s: float | None = None
    interconnect: str = ""
    aliases: tuple[str, ...] = field(default=())
    sources: tuple[str, ...] = field(default=())
    confidence: str = "user"
    notes: str = ""

    def stated_peak(self, precision: str) -> float | None:
        """The dense peak rate in FLOP/s that the sources state, or None."""
        return dict(self.peaks).get(precision)

    def peak_flops_per_s(self, precision: str) -> float:
        """The dense peak rate in FLOP/s that matrix products of a precision can reach.

        Where no rate is stated, the next format that the device would compute in stands in
        (tf32 -> fp32; fp16 and bf16 -> fp32). Half precision is never slower than float32, because
        frameworks compute in float32 where the native half rate is lower.

        Args:
            precision: fp64, fp32, tf32, fp16, bf16 or fp8, or a workload's `amp_*`.

        Raises:
            ValueError: The precision is not known.
        """
        precision = _MATRIX_FORMAT.get(precision, precision)
        if precision not in _FALLBACKS:
            allowed = ", ".join((*PEAK_PRECISIONS, *_MATRIX_FORMAT))
            raise ValueError(f"precision '{precision}' is not known. Allowed: {allowed}.")
        stated = dict(self.peaks)
        rate = next((stated[each] for each in _FALLBACKS[precision] if each in stated), None)
        if rate is None and precision == "fp64":
            return self.peak_flops_per_s("fp32") * _EMULATED_FP64
        if rate is None:
            return max(stated.values())
        return rate if precision == "fp64" else max(rate, stated.get("fp32", 0.0))
