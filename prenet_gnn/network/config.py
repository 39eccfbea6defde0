"""Settings of the network: one small table for each of its blocks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from prenet_gnn.common.settings import Limits, checked
from prenet_gnn.encoding.template import ROUNDS
from prenet_gnn.network.encoder import EncoderConfig
from prenet_gnn.network.head import HeadConfig
from prenet_gnn.network.host import HOSTS, HostConfig
from prenet_gnn.network.message_passing import CONVS
from prenet_gnn.network.physics.roofline import EFFECTS, PHYSICS, PhysicsConfig

WIDEST = 4096
_LIMITS: Limits = {
    "hidden": (1, WIDEST),
    "layers": (0, ROUNDS),
    "operator_embedding": (1, WIDEST),
    "settings": (0, WIDEST),
    "dropout": (0.0, 0.99),
    "operator_dropout": (0.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """What is learned of single devices.

    Attributes:
        settings: Width of what a known device, and it under a framework, change in every call.
            Above 0 there are two networks: one without it for all devices, and a copy tuned with
            it for known ones (`network.paired`).
    """

    settings: int = 0


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Size of the network and which blocks it is made of."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    latents: LatentConfig = field(default_factory=LatentConfig)
    physics: PhysicsConfig = field(default_factory=PhysicsConfig)
    host: HostConfig = field(default_factory=HostConfig)

    def to_dict(self) -> dict[str, Any]:
        """The settings by block and name, ready for JSON."""
        found: dict[str, Any] = asdict(self)
        found["physics"]["effects"] = list(self.physics.effects)
        return found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NetworkConfig:
        """Checks names, types and ranges and builds the settings.

        Raises:
            ConfigError: A name, a type or a value is not allowed.
        """
        blocks = {each.name: getattr(cls(), each.name) for each in fields(cls)}
        tables = checked("model", data, {name: {} for name in blocks}, {}, {})
        made = {
            name: type(blocks[name])(
                **checked(f"model.{name}", table, asdict(blocks[name]), _LIMITS, _choices(name))
            )
            for name, table in tables.items()
        }
        return cls(**made)


def _choices(block: str) -> dict[str, tuple[str, ...]]:
    kinds: dict[str, tuple[str, ...]] = {"physics": tuple(PHYSICS), "host": tuple(HOSTS)}
    return {"kind": kinds.get(block, ()), "conv": tuple(CONVS), "effects": tuple(EFFECTS)}
