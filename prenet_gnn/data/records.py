"""What one measurement found, as one line of JSON."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from prenet_gnn.errors import DataError
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from prenet_gnn.catalogue.spec import Hardware

SCHEMA = 1
STATUSES = ("ok", "oom", "error", "crash")
# These say which point was measured; everything else says what came out.
IDENTITY = (
    "model",
    "batch_size",
    "image_size",
    "seq_len",
    "mode",
    "precision",
    "optimizer",
    "channels_last",
    "compiled",
    "cudnn_benchmark",
    "device_type",
    "threads",
)


@dataclass(frozen=True, slots=True)
class MeasuredRecord:
    """One measured point, flat, with SI units; `None` means not known on this device.

    Attributes:
        model: Zoo or layer spec.
        hardware: Catalogue name where the catalogue knows the device, else the device's own name.
        device_type: `cpu`, `cuda` or `mps`.
        timed: Phases that `seconds` covers, joined by `+`.
        status: `ok`, `oom` (did not fit), `error` (see `error`) or `crash` (killed the process).
        seconds: Median of one iteration in steady state.
        samples_s: The iterations that were timed, at most 200.
        forward_s: Median of the phase (as `zero_grad_s`, `loss_s`, `backward_s`, `optimizer_s`),
            from iterations of their own with marks between the phases.
        synced_s: Median of an iteration that starts and ends with an idle device.
        host_s: Median time the host needs to issue one iteration; `None` where host and device
            are the same.
        cpu_s: Median processor time of one iteration, where the CPU is the device. On one thread,
            `seconds` above it means that other work held the core.
        first_iteration_s: The first iteration, compilation and kernel search included.
        peak_memory_bytes: Peak of allocated tensors, weights and optimizer state included.
        reserved_memory_bytes: Peak that the caching allocator held.
        device_memory_bytes: What the driver reports as used at the end, other processes included.
        saved_bytes: Storages that the forward pass keeps for backward, parameters left out.
        param_bytes: Unique parameters.
        input_grad: The gradient of the floating-point inputs is computed as well (single layers).
        drift: The last third of the samples is slower or faster than the first third by more
            than 5% and more than the spread.
        outliers: Samples far above the rest (more than five robust deviations).
        hardware_entry: Measured specifications where the catalogue does not know the device.
        machine: Software and host facts.
        operators: Largest operators of a profiled iteration: name, own seconds, calls.
        measured_at: UTC time, ISO 8601.
    """

    model: str
    batch_size: int
    image_size: int | None = None
    seq_len: int | None = None
    mode: str = "train"
    precision: str = "fp32"
    optimizer: str = "none"
    channels_last: bool = False
    compiled: bool = False
    cudnn_benchmark: bool = False
    framework: str = ""
    timed: str = ""
    hardware: str = ""
    device_type: str = "cpu"
    threads: int = 1
    status: str = "ok"
    error: str = ""
    seconds: float | None = None
    mean_s: float | None = None
    std_s: float | None = None
    p10_s: float | None = None
    p90_s: float | None = None
    samples_s: tuple[float, ...] = ()
    zero_grad_s: float | None = None
    forward_s: float | None = None
    loss_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    synced_s: float | None = None
    host_s: float | None = None
    cpu_s: float | None = None
    first_iteration_s: float | None = None
    warmup_iterations: int = 0
    peak_memory_bytes: int | None = None
    reserved_memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    saved_bytes: int | None = None
    param_bytes: int | None = None
    input_grad: bool = False
    drift: bool = False
    outliers: int = 0
    hardware_entry: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    operators: tuple[tuple[str, float, int], ...] = ()
    measured_at: str = ""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Turns JSON's lists back into tuples and checks the status."""
        if self.status not in STATUSES:
            raise DataError(f"status '{self.status}' is not known. Allowed: {', '.join(STATUSES)}.")
        object.__setattr__(self, "samples_s", tuple(self.samples_s))
        _check_values(self)
        operators = tuple((str(n), float(s), int(c)) for n, s, c in self.operators)
        object.__setattr__(self, "operators", operators)

    @property
    def oom(self) -> bool:
        """The point did not fit in memory."""
        return self.status == "oom"

    @property
    def device(self) -> str | Hardware:
        """The catalogue's name, or the entry that was measured where the catalogue has none."""
        if self.hardware_entry is None:
            return self.hardware
        from prenet_gnn.catalogue.reading import device_from

        return device_from(self.hardware_entry, f"record of {self.hardware}")

    @property
    def workload(self) -> Workload:
        """How the graph was run, as a predictor takes it."""
        return Workload(
            mode=self.mode,
            precision=self.precision,
            optimizer=self.optimizer,
            channels_last=self.channels_last,
            compiled=self.compiled,
            cudnn_benchmark=self.cudnn_benchmark,
            framework=self.framework,
            timed=self.timed,
        )

    @property
    def key(self) -> str:
        """Short digest of the point; two records of one point share it."""
        return point_key({name: getattr(self, name) for name in IDENTITY})

    def to_json(self) -> str:
        """One line without the fields that say nothing."""
        empty = (None, "", (), 0, False)
        kept = {k: v for k, v in asdict(self).items() if not any(v is e or v == e for e in empty)}
        kept["batch_size"] = self.batch_size
        return json.dumps(_rounded(kept), separators=(",", ":"))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MeasuredRecord:
        """Reads one JSON object; a newer schema or an unknown field is an error."""
        if not isinstance(values, dict):
            raise DataError("a record is a JSON object.")
        if int(values.get("schema", SCHEMA)) > SCHEMA:
            raise DataError(f"record schema {values['schema']} is newer than {SCHEMA}; update.")
        unknown = sorted(set(values) - {f.name for f in fields(cls)})
        if unknown:
            raise DataError(f"unknown record fields: {', '.join(unknown)}.")
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise DataError(f"record cannot be used: {error}") from None


def _check_values(record: MeasuredRecord) -> None:
    """Refuses what no measurement can give; a file may have been written by hand."""
    if not isinstance(record.model, str) or not record.model:
        raise DataError("model must be a text.")
    if type(record.batch_size) is not int or record.batch_size < 1:
        raise DataError(f"batch_size must be a whole number above zero, not {record.batch_size!r}.")
    for name in ("seconds", "forward_s", "backward_s", "optimizer_s"):
        value = getattr(record, name)
        # A phase may be shorter than the clock's tick, a whole iteration may not.
        lowest = 0.0 if name != "seconds" else 1e-12
        known = type(value) in (int, float) and lowest <= value < math.inf
        if value is not None and not known:
            raise DataError(f"{name} must be a positive number of seconds, not {value!r}.")


def _rounded(value: Any) -> Any:
    """Six digits are below any timer's noise and keep files small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def point_key(identity: dict[str, Any]) -> str:
    """Digest of the fields that identify a point, the same on every machine and run."""
    text = json.dumps([identity.get(name) for name in IDENTITY])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
