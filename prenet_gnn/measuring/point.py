"""What is measured, and how much time that may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prenet_gnn.measuring.errors import MeasureError
from prenet_gnn.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to measure.

    Attributes:
        model: Zoo spec, or `layer:...` / `net:...`.
        batch_size: Samples per iteration.
        image_size: Height and width; None takes the model's default.
        seq_len: Tokens per sample; None takes the model's default.
        workload: How to run it; its `framework` and `timed` are replaced by what really runs.
    """

    model: str
    batch_size: int
    image_size: int | None = None
    seq_len: int | None = None
    workload: Workload = field(default_factory=Workload)

    def identity(self, device_type: str, threads: int) -> dict[str, Any]:
        """The fields by which a record is found again."""
        train = self.workload.mode == "train"
        return {
            "model": self.model,
            "batch_size": self.batch_size,
            "image_size": self.image_size,
            "seq_len": self.seq_len,
            "mode": self.workload.mode,
            "precision": self.workload.precision,
            "optimizer": self.workload.optimizer if train else "none",
            "channels_last": self.workload.channels_last,
            "compiled": self.workload.compiled,
            "cudnn_benchmark": self.workload.cudnn_benchmark,
            "device_type": device_type,
            "threads": threads,
        }

    @property
    def series(self) -> tuple[Any, ...]:
        """What points that differ only in their batch size share."""
        return (self.model, self.image_size, self.seq_len, self.workload)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time a measurement may take.

    Attributes:
        iterations: Samples to take, at most 200; None lets `sample_s` decide.
        sample_s: Time to spend on samples.
        min_samples: Lower bound on the samples when `sample_s` decides.
        warmup_s: Time after which warm-up ends even if it is not yet stable.
        threads: CPU threads; None leaves PyTorch's setting.
        memory: Count peak bytes too (on the CPU one more iteration, under the profiler).
        profile: Add the operators of one profiled iteration.
    """

    iterations: int | None = None
    sample_s: float = 2.0
    min_samples: int = 5
    warmup_s: float = 5.0
    threads: int | None = None
    memory: bool = True
    profile: bool = False

    def __post_init__(self) -> None:
        """At least one sample is needed for a median."""
        if self.iterations is not None and self.iterations < 1:
            raise MeasureError(f"iterations must be at least 1, not {self.iterations}.")
