"""What a plan is asked for: the work, what to make smallest, the limits and what may be tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prenet_gnn.common.numbers import is_number, is_whole
from prenet_gnn.errors import ConfigError
from prenet_gnn.planning.limits import Limits
from prenet_gnn.planning.parallel import check_devices
from prenet_gnn.workload.workload import PRECISIONS

OBJECTIVES = ("time", "cost", "energy")
SAMPLERS = ("auto", "grid", "nsga2", "none")
# More samples would take years on every device and overflow what is computed from them.
LARGEST = {"samples": 10**15, "epochs": 10**6, "seed": 2**32 - 1}
BATCH_SIZES = tuple(2**power for power in range(13))


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What has to be done and within which limits.

    Attributes:
        samples: Samples of one epoch.
        epochs: How often the samples are passed.
        objective: `time`, `cost` or `energy`; what is made smallest.
        budget_usd: Highest cost of the run.
        deadline_s: Longest time of the run.
        global_batch: Samples per optimizer step, kept by accumulating gradients.
        batch_sizes: Batch sizes to try; powers of two if empty.
        precisions: Precisions to try; those safe for the mode if empty.
        compiled: Whether to try eager runs, compiled ones or both.
        devices: Names of devices; all GPUs and CPUs of the catalogue if empty.
        prices: US dollars per hour by device name, in place of the catalogue's.
        checkpointing: Whether to try activation checkpointing, runs without it, or both.
        devices_per_node: Devices that run data parallel; costs count all of them.
        sampler: `grid` tries everything, `nsga2` searches with Optuna from the best settings of
            each device, `none` leaves it at those; `auto` takes the grid where it is small.
        trials: How many tries `nsga2` has.
        seed: Seed of the sampler.
    """

    samples: int
    epochs: int = 1
    objective: str = "time"
    budget_usd: float | None = None
    deadline_s: float | None = None
    global_batch: int | None = None
    batch_sizes: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    compiled: tuple[bool, ...] = (False, True)
    devices: tuple[str, ...] = ()
    prices: Mapping[str, float] | None = None
    checkpointing: tuple[bool, ...] = (False, True)
    devices_per_node: int = 1
    sampler: str = "auto"
    trials: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field against the values that are allowed."""
        if self.objective not in OBJECTIVES:
            allowed = ", ".join(OBJECTIVES)
            raise ConfigError(f"objective '{self.objective}' is not known. Allowed: {allowed}.")
        if self.sampler not in SAMPLERS:
            allowed = ", ".join(SAMPLERS)
            raise ConfigError(f"sampler '{self.sampler}' is not known. Allowed: {allowed}.")
        self._check_types()
        check_devices(self.devices_per_node)
        for name in ("samples", "epochs", "global_batch", "budget_usd", "deadline_s", "trials"):
            value = getattr(self, name)
            # `not (value > 0)` also refuses NaN
            if value is not None and not (value > 0):
                raise ConfigError(f"{name} must be above zero, not {value}.")
        for name, most in LARGEST.items():
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise ConfigError(f"{name} must be between 0 and {most:,}, not {value:,}.")
        for batch_size in self.batch_sizes:
            if batch_size < 1:
                raise ConfigError(f"batch sizes must be one or more, not {batch_size}.")
        unknown = [each for each in self.precisions if each not in PRECISIONS]
        if unknown:
            allowed = ", ".join(PRECISIONS)
            raise ConfigError(f"precision '{unknown[0]}' is not known. Allowed: {allowed}.")

    def _check_types(self) -> None:
        for name in ("precisions", "devices", "batch_sizes"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} must be a tuple, not the text {getattr(self, name)!r}.")
        counts = {n: getattr(self, n) for n in ("samples", "epochs", "seed", "devices_per_node")}
        counts |= {"global_batch": self.global_batch or 1, "trials": self.trials}
        counts |= {f"batch_sizes[{i}]": size for i, size in enumerate(self.batch_sizes)}
        wrong = [name for name, value in counts.items() if not is_whole(value)]
        if wrong:
            raise ConfigError(f"{wrong[0]} must be a whole number, not {counts[wrong[0]]!r}.")
        for name in ("budget_usd", "deadline_s"):
            value = getattr(self, name)
            if value is not None and not is_number(value):
                raise ConfigError(f"{name} must be a number, not {value!r}.")
        for name in ("compiled", "checkpointing"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty: allow True, False or both.")

    @property
    def limits(self) -> Limits:
        """The limits alone."""
        return Limits(self.budget_usd, self.deadline_s)

    def candidates(self) -> list[int]:
        """Batch sizes of one device to try, ascending; only divisors of a global batch."""
        nodes = self.devices_per_node
        if self.global_batch is not None and self.global_batch % nodes:
            raise ConfigError(
                f"the global batch {self.global_batch} does not divide among {nodes} devices."
            )
        largest = (self.global_batch or self.samples) // nodes
        sizes = sorted(
            set(self.batch_sizes or (*BATCH_SIZES, (self.global_batch and largest) or 1))
        )
        sizes = [size for size in sizes if size <= largest]
        if self.global_batch is not None:
            sizes = [size for size in sizes if largest % size == 0]
        if not sizes:
            share = f" ({largest} per device)" if nodes > 1 else ""
            raise ConfigError(
                f"no batch size is left to try: they must divide the global batch "
                f"{self.global_batch}{share}."
                if self.global_batch is not None
                else f"every batch size is above the {self.samples} samples of an epoch."
            )
        return sizes
