"""What a prediction says: seconds with an interval, where they go, memory and warnings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any

from prenet_gnn.common.numbers import is_whole
from prenet_gnn.common.units import bytes_text, rate_text, time_text
from prenet_gnn.errors import ConfigError
from prenet_gnn.memory.iteration import MemoryMoment
from prenet_gnn.workload.workload import Workload

# Fields of a prediction that are seconds
TIMES = (
    "seconds", "low_s", "high_s", "forward_s", "backward_s", "optimizer_s", "device_s", "host_s",
)  # fmt: skip
# Modules that a notebook shows.
SHOWN_MODULES = 5


@dataclass(frozen=True)
class CallShare:
    """The seconds that one operator call takes; `node` is its index in the graph."""

    module: str
    operator: str
    forward_s: float
    backward_s: float
    node: int = -1

    @property
    def seconds(self) -> float:
        """Forward and backward together."""
        return self.forward_s + self.backward_s

    def scaled_by(self, factor: float) -> CallShare:
        """The same call with its seconds multiplied."""
        return replace(self, forward_s=self.forward_s * factor, backward_s=self.backward_s * factor)


@dataclass(frozen=True)
class Prediction:
    """A predicted iteration.

    Attributes:
        seconds: The phases asked for, together.
        low_s: Lower end of the 90% interval.
        high_s: Upper end of the 90% interval.
        forward_s: Forward pass with the loss, and the copy to the device where it is timed.
        backward_s: Backward pass.
        optimizer_s: Optimizer step and zero_grad.
        peak_memory_bytes: Highest sum of allocated tensors, `torch.cuda.max_memory_allocated`.
        fits: Whether the device's memory holds that, its context and allocator losses.
        hardware: Name of the device.
        workload: How the graph is run.
        model: Name of the model.
        batch_size: Samples per iteration.
        device_s: What the device alone would need.
        host_s: What the host needs to issue all operators.
        warnings: What makes this prediction less certain.
        memory: Parts of the memory, by name.
        memory_moments: Tensors that live during every call, in order.
        call_source: Computes `calls` when they are first asked for.
    """

    seconds: float
    low_s: float
    high_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float
    peak_memory_bytes: int
    fits: bool
    hardware: str
    workload: Workload
    model: str = ""
    batch_size: int = 0
    device_s: float = 0.0
    host_s: float = 0.0
    warnings: tuple[str, ...] = ()
    memory: dict[str, int] = field(default_factory=dict, repr=False)
    memory_moments: tuple[MemoryMoment, ...] = field(default=(), repr=False, compare=False)
    call_source: Callable[[], tuple[CallShare, ...]] = field(default=tuple, repr=False)

    @cached_property
    def calls(self) -> tuple[CallShare, ...]:
        """Seconds of every operator call that takes any."""
        return self.call_source()

    @property
    def samples_per_s(self) -> float:
        """Throughput at this batch size."""
        return self.batch_size / self.seconds if self.seconds > 0 else 0.0

    def scaled_by(self, factor: float) -> Prediction:
        """The same prediction with all its times multiplied."""
        calls = tuple(call.scaled_by(factor) for call in self.calls)
        times = {name: getattr(self, name) * factor for name in TIMES}
        return replace(self, call_source=lambda: calls, **times)

    def by_module(self, depth: int = 2) -> dict[str, float]:
        """Seconds per module path cut to `depth` names, costliest first; they sum to `seconds`."""
        if not is_whole(depth) or depth < 0:
            raise ConfigError(f"depth must be a whole number of at least 0, not {depth!r}.")
        return self._grouped(lambda call: ".".join(call.module.split(".")[:depth]) or "(root)")

    def by_operator(self) -> dict[str, float]:
        """Seconds per operator, costliest first; they sum to `seconds`."""
        return self._grouped(lambda call: call.operator)

    def _grouped(self, key: Any) -> dict[str, float]:
        sums: dict[str, float] = {}
        for call in self.calls:
            name = key(call)
            sums[name] = sums.get(name, 0.0) + call.seconds
        rest = self.seconds - sum(sums.values())
        if self.optimizer_s > 0:
            sums["(optimizer)"] = sums.get("(optimizer)", 0.0) + self.optimizer_s
            rest -= self.optimizer_s
        if abs(rest) > 1e-6 * self.seconds:  # what rounding leaves is no part
            sums["(other)"] = sums.get("(other)", 0.0) + rest
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def to_dict(self) -> dict[str, Any]:
        """The prediction as plain data, ready for JSON."""
        names = (
            "model", "hardware", "batch_size", "seconds", "low_s", "high_s", "forward_s",
            "backward_s", "optimizer_s", "device_s", "host_s", "samples_per_s",
            "peak_memory_bytes", "fits",
        )  # fmt: skip
        data: dict[str, Any] = {name: getattr(self, name) for name in names}
        flags = Workload.__dataclass_fields__
        data["workload"] = {name: getattr(self.workload, name) for name in flags}
        data["memory"] = dict(self.memory)
        data["warnings"] = list(self.warnings)
        data["by_module"] = self.by_module()
        data["by_operator"] = self.by_operator()
        return data

    def _repr_html_(self) -> str:
        """What a notebook shows: the figures, the warnings and the costliest modules."""
        head = f"{self.model or 'model'}, batch {self.batch_size}, on {self.hardware}"
        fits = "fits" if self.fits else "does not fit"
        rows = [
            ("iteration", f"{time_text(self.seconds)} ({time_text(self.low_s)} to "
                          f"{time_text(self.high_s)}, 90%)"),
            ("throughput", f"{rate_text(self.samples_per_s)} samples/s"),
        ]  # fmt: skip
        if self.workload.mode == "train":
            rows += [
                (name, time_text(getattr(self, f"{name}_s")))
                for name in ("forward", "backward", "optimizer")
            ]
        rows.append(("peak memory", f"{bytes_text(self.peak_memory_bytes)}, {fits}"))
        rows += [
            (f"module {name}", f"{time_text(value)} ({value / self.seconds:.0%})")
            for name, value in list(self.by_module(depth=2).items())[:SHOWN_MODULES]
        ]
        cells = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in rows
        )
        notes = "".join(f"<br><i>{escape(text)}</i>" for text in self.warnings)
        return f"<b>{escape(head)}</b>{notes}<table>{cells}</table>"
