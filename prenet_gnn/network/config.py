"""Settings of the network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from prenet_gnn.common.settings import Limits, checked

WIDEST = 4096
_LIMITS: Limits = {
    "hidden": (1, WIDEST),
    "layers": (0, 16),
    "operator_embedding": (1, WIDEST),
    "head_hidden": (1, WIDEST),
    "device_hidden": (1, WIDEST),
    "setting_latents": (0, WIDEST),
    "dropout": (0.0, 0.99),
    "operator_dropout": (0.0, 1.0),
    "device_latents": (1, 1e6),
    "host_latents": (1, 1e6),
    "framework_latents": (1, 1e6),
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Size of the network and which of its parts are on.

    Attributes:
        hidden: Width of node embeddings.
        layers: Message passing steps; at most `encoding.template.ROUNDS`.
        conv: Message passing layer, a key of `message_passing.CONVS`.
        operator_embedding: Width of the embedding of operator names.
        head_hidden: Width of the part that knows how the graph is run.
        device_hidden: Width of the part that sees device-relative numbers.
        dropout: Dropout on node embeddings.
        use_device_head: Let device-relative numbers (waves, cache, balance) correct the times.
        use_host: Model the host's dispatch as a second bound.
        use_prior: Start from the roofline; without it times come from the network alone.
        use_fill: Count partly filled waves of tiles and the share of the traffic that the second
            level cache takes, by a few numbers that all devices share.
        use_issue: Let multiprocessors and clock limit memory traffic beside the bandwidth.
        use_conv_classes: Give 1 x 1 convolutions and 3 x 3 ones of stride 1 rates of their own.
        use_old_fp64: Give float64 the rate of early libraries where the version is unknown.
        use_fusion: Save the traffic between calls that a compiler fuses, where it is used.
        operator_dropout: Share of the calls that hide their operator's name in training, so that
            kind and sizes carry what they can for operators that no row has.
        setting_latents: Width of what a known device, and it under a framework, change in every
            call. Above 0 there are two networks: one without it for all devices, and a copy tuned
            with it for known ones (`network.paired`).
        device_latents: Devices with a latent, plus one for unseen devices.
        host_latents: Pairs of device and framework with a latent, plus one.
        framework_latents: Frameworks with a latent, plus one.
    """

    hidden: int = 64
    layers: int = 2
    conv: str = "operator"
    operator_embedding: int = 8
    head_hidden: int = 32
    device_hidden: int = 24
    dropout: float = 0.0
    use_device_head: bool = True
    use_host: bool = True
    use_prior: bool = True
    use_fill: bool = True
    use_issue: bool = True
    use_conv_classes: bool = True
    use_old_fp64: bool = True
    use_fusion: bool = True
    operator_dropout: float = 0.1
    setting_latents: int = 0
    device_latents: int = 1
    host_latents: int = 1
    framework_latents: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelConfig:
        """Checks names, types and ranges and builds the settings."""
        from prenet_gnn.network.message_passing import CONVS

        return cls(**checked("model", data, asdict(cls()), _LIMITS, {"conv": tuple(CONVS)}))
