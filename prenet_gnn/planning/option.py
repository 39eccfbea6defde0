"""One way to do a whole run, and what it takes and costs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from prenet_gnn.catalogue.prices import HourlyPrice
    from prenet_gnn.catalogue.spec import Hardware
    from prenet_gnn.predictor.prediction import Prediction
    from prenet_gnn.workload.workload import Workload

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Option:
    """One way to do the whole run on one device, or on several of one node.

    Attributes:
        hardware: Name of the device.
        devices: How many of it run data parallel.
        batch_size: Samples in one forward pass of one device.
        accumulation: Forward passes per optimizer step.
        precision: As in `Workload`.
        channels_last: As in `Workload`.
        compiled: As in `Workload`.
        checkpointing: Whether repeated blocks recompute their activations.
        step_s: Time of one optimizer step.
        total_s: Time of the whole run, with the ends of its 90% interval beside it.
        cost_usd: Price of the whole run, None where no price is known.
        energy_kwh: Energy at the device's rated power, an upper bound; None where not known.
        peak_memory_bytes: Peak memory of one device.
    """

    hardware: str
    batch_size: int
    accumulation: int
    precision: str
    channels_last: bool
    compiled: bool
    step_s: float
    total_s: float
    total_low_s: float
    total_high_s: float
    cost_usd: float | None
    cost_low_usd: float | None
    cost_high_usd: float | None
    energy_kwh: float | None
    peak_memory_bytes: int
    checkpointing: bool = False
    devices: int = 1

    @property
    def settings(self) -> str:
        """How it runs, in words."""
        words = [self.precision]
        words += ["channels_last"] if self.channels_last else []
        words += ["compiled"] if self.compiled else []
        words += ["checkpointing"] if self.checkpointing else []
        return " ".join(words)

    @property
    def batch_text(self) -> str:
        """The batch of one forward pass, and how often it runs per step."""
        times = f" x {self.accumulation}" if self.accumulation > 1 else ""
        return f"{self.batch_size}{times}"

    @property
    def device_text(self) -> str:
        """Number and name of the devices."""
        return f"{self.devices} x {self.hardware}" if self.devices > 1 else self.hardware

    def to_dict(self) -> dict[str, Any]:
        """Gives plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Times:
    """What one forward and backward pass takes, and what its settings add to it.

    Attributes:
        prediction: One iteration of one device without checkpointing or communication.
        recompute_s: Forward passes that checkpointing repeats.
        exposed_s: Communication per optimizer step that the backward pass does not hide.
        checkpointing: Whether there is checkpointing.
        extra_bytes: Memory that accumulation and communication need.
    """

    prediction: Prediction
    recompute_s: float = 0.0
    exposed_s: float = 0.0
    checkpointing: bool = False
    extra_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """How much has to be done: samples over all epochs, and the batch of one optimizer step."""

    samples: int
    epochs: int
    global_batch: int | None = None
    devices: int = 1

    def accumulation(self, batch_size: int) -> int:
        """Forward passes of one device per optimizer step."""
        return 1 if self.global_batch is None else self.global_batch // (batch_size * self.devices)

    def option(
        self,
        device: Hardware,
        workload: Workload,
        batch_size: int,
        times: Times,
        price: HourlyPrice | None,
    ) -> Option:
        """Scales one iteration up to the whole run; the last batch of an epoch counts whole."""
        p, passes = times.prediction, self.accumulation(batch_size)
        once = p.seconds - p.optimizer_s + times.recompute_s
        step_s = passes * once + p.optimizer_s + times.exposed_s
        steps = self.epochs * math.ceil(self.samples / (batch_size * passes * self.devices))
        total_s = steps * step_s
        low_s, high_s = total_s * p.low_s / p.seconds, total_s * p.high_s / p.seconds
        usd_per_s = None if price is None else self.devices * price.usd_per_hour / SECONDS_PER_HOUR
        watts = self.devices * device.tdp_w if device.tdp_w else None
        return Option(
            hardware=device.name,
            batch_size=batch_size,
            accumulation=passes,
            precision=workload.precision,
            channels_last=workload.channels_last,
            compiled=workload.compiled,
            step_s=step_s,
            total_s=total_s,
            total_low_s=low_s,
            total_high_s=high_s,
            cost_usd=None if usd_per_s is None else total_s * usd_per_s,
            cost_low_usd=None if usd_per_s is None else low_s * usd_per_s,
            cost_high_usd=None if usd_per_s is None else high_s * usd_per_s,
            energy_kwh=None if not watts else total_s * watts / JOULES_PER_KWH,
            peak_memory_bytes=p.peak_memory_bytes + times.extra_bytes,
            checkpointing=times.checkpointing,
            devices=self.devices,
        )
