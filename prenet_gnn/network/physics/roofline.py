"""Seconds of every call before any correction: terms that add up, and effects on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.encoding.fields import DEVICE
from prenet_gnn.network.latents import DEVICE_LATENTS, FRAMEWORK_LATENTS, RowLatents
from prenet_gnn.network.physics import compiler_fusion, upsampling, wide_depthwise
from prenet_gnn.network.physics.arithmetic import FP64, Rates
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.effects import EFFECTS, Effect
from prenet_gnn.network.physics.launches import KERNEL_S, Launches
from prenet_gnn.network.physics.traffic import Traffic

__all__ = [
    "EFFECTS",
    "PHYSICS",
    "Constant",
    "PhysicsConfig",
    "Roofline",
    "Seconds",
    "Specifications",
]

# Modules that register effects when they are loaded.
REGISTERED = (compiler_fusion, upsampling, wide_depthwise)
# What a call takes where no physics is known.
CONSTANT_S = 1e-4
SPECIFICATIONS = ("balance", "power", "year", "is_amd")
TERMS = ("arithmetic", "traffic", "launches")


@dataclass(frozen=True, slots=True)
class PhysicsConfig:
    """Which physics times start from.

    Attributes:
        kind: A key of `PHYSICS`: `roofline`, or `constant` for none.
        effects: Keys of `effects.EFFECTS` that act on it.
    """

    kind: str = "roofline"
    effects: tuple[str, ...] = tuple(EFFECTS)


@dataclass(frozen=True)
class Seconds:
    """What every call takes, forward and backward, each `(M, 2)`; `extra` is not corrected."""

    arithmetic: Tensor
    traffic: Tensor
    launches: Tensor
    extra: Tensor


class Specifications(nn.Module):
    """How far specifications shift a device's terms: slopes that are kept small."""

    def __init__(self) -> None:
        """Starts without slopes."""
        super().__init__()
        self.slopes = nn.Parameter(torch.zeros(len(TERMS), len(SPECIFICATIONS)))

    def forward(self, batch: GraphBatch) -> list[Tensor]:
        """Logarithms of what each of `TERMS` takes longer, each `(G,)`."""
        device = batch.device
        peak = DEVICE.of(device, "log_peak")
        balance = (peak - DEVICE.of(device, "log_bandwidth") - 4.0) / 4.0
        power = (DEVICE.of(device, "log_power") - peak) / 4.0 * (batch.number_format != FP64)
        year, amd = DEVICE.of(device, "year") / 8.0, DEVICE.of(device, "is_amd")
        table = torch.stack([balance, power, year, amd], dim=-1)
        return [table @ slopes for slopes in self.slopes]


class Roofline(nn.Module):
    """Arithmetic, memory traffic and launches of a call, added up.

    Shapes:
        `Calls` of M calls, `RowLatents` of G rows -> `Seconds` of `(M, 2)`
    """

    def __init__(self, config: PhysicsConfig) -> None:
        """Starts as the data sheets say."""
        super().__init__()
        self.rates, self.traffic, self.launches = Rates(), Traffic(), Launches()
        self.specifications = Specifications()
        chosen = {name: kind() for name, kind in EFFECTS.items() if name in config.effects}
        self.effects = nn.ModuleDict(chosen)

    def forward(self, calls: Calls, latents: RowLatents) -> Seconds:
        """Seconds of every call."""
        shifts = dict(zip(TERMS, self.specifications(calls.batch), strict=True))
        return Seconds(
            self._arithmetic(calls, latents, shifts["arithmetic"]),
            self._traffic(calls, latents, shifts["traffic"]),
            self._launches(calls, latents, shifts["launches"]),
            self._extra(calls, latents),
        )

    def _effects(self) -> list[Effect]:
        return [effect for effect in self.effects.values() if isinstance(effect, Effect)]

    def kernel_s(self, batch: GraphBatch, latents: RowLatents) -> Tensor:
        """A kernel's fixed time beside single calls, such as the optimizer's: `(G,)`."""
        return KERNEL_S * self._log_kernel(batch, latents).exp()

    def _log_kernel(self, batch: GraphBatch, latents: RowLatents) -> Tensor:
        log: Tensor = self.launches(batch) + DEVICE_LATENTS.of(latents.device, "kernels")
        return log

    def _arithmetic(self, calls: Calls, latents: RowLatents, shift: Tensor) -> Tensor:
        rate_class = self.rates.rate_class(calls)
        for effect in self._effects():
            rate_class = effect.rate_class(calls, rate_class)
        inverse = self.rates(calls, rate_class)
        for effect in self._effects():
            inverse = effect.inverse_rate(calls, rate_class, inverse)
        log = DEVICE_LATENTS.of(latents.device, "arithmetic")
        log = log + FRAMEWORK_LATENTS.of(latents.framework, "arithmetic") + shift
        seconds: Tensor = calls.flops * inverse * calls.of_row(log)[:, None].exp()
        for effect in self._effects():
            seconds = effect.arithmetic(calls, rate_class, seconds)
        return seconds

    def _traffic(self, calls: Calls, latents: RowLatents, shift: Tensor) -> Tensor:
        per_byte = self.traffic.bandwidth(calls)
        for effect in self._effects():
            per_byte = effect.per_byte(calls, per_byte)
        log = self.traffic(calls) + per_byte.log()
        log = log + DEVICE_LATENTS.of(latents.device, "traffic") + shift
        log = log + FRAMEWORK_LATENTS.of(latents.framework, "traffic")
        seconds: Tensor = calls.moved_bytes * calls.of_row(log)[:, None].exp()
        for effect in self._effects():
            seconds = effect.traffic(calls, seconds)
        return seconds

    def _launches(self, calls: Calls, latents: RowLatents, shift: Tensor) -> Tensor:
        log = self._log_kernel(calls.batch, latents) + shift
        seconds: Tensor = KERNEL_S * calls.kernels * calls.of_row(log)[:, None].exp()
        for effect in self._effects():
            seconds = effect.launches(calls, seconds)
        return seconds

    def _extra(self, calls: Calls, latents: RowLatents) -> Tensor:
        found = [effect.extra(calls, latents) for effect in self._effects()]
        forward = torch.zeros(len(calls.kind))
        for seconds in found:
            forward = forward if seconds is None else forward + seconds
        return torch.stack([forward, torch.zeros_like(forward)], dim=-1)


class Constant(Roofline):
    """No physics but launches: the same time for every call, for the network to correct."""

    def forward(self, calls: Calls, latents: RowLatents) -> Seconds:
        """Seconds of every call."""
        same = torch.full_like(calls.flops, CONSTANT_S)
        shift = self.specifications(calls.batch)[TERMS.index("launches")]
        launches = self._launches(calls, latents, shift)
        return Seconds(same, same, launches, torch.zeros_like(same))


PHYSICS: dict[str, type[Roofline]] = {"roofline": Roofline, "constant": Constant}
