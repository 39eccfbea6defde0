"""The table of variants: every ablation is a named change of the shipped configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prenet_gnn.network.physics.roofline import EFFECTS

FULL = "full"


@dataclass(frozen=True, slots=True)
class Variant:
    """One line of the table: other settings, what is taken from the rows, operators beside them."""

    settings: dict[str, Any] = field(default_factory=dict)
    rows: str = ""
    operators: bool = False


def _without(*effects: str) -> Variant:
    """Without some effects of the physics."""
    return Variant({"model.physics.effects": [name for name in EFFECTS if name not in effects]})


VARIANTS: dict[str, Variant] = {
    FULL: Variant(),
    "without FLOPs (CO)": Variant(rows="flops"),
    "without memory traffic (CM)": Variant(rows="memory"),
    "without device rates (CT)": Variant(rows="rates"),
    "without edges": Variant(rows="edges"),
    "without tensor sizes on edges": Variant(rows="tensor sizes"),
    "without message passing": Variant({"model.encoder.conv": "none"}),
    "one-hot device, no specifications": Variant({"train.latent_penalty": 0.0}, "device"),
    "without roofline prior": Variant({"model.physics.kind": "constant"}),
    "without host-bound term": Variant({"model.host.kind": "none"}),
    "without source terms": Variant(rows="source"),
    "with operator rows": Variant(operators=True),
    "mean readout": Variant(rows="mean"),
    "without partly filled waves": _without("part_waves", "cache"),
    "without issue rate of memory traffic": _without("issue_rate"),
    "without rates for 1x1 and 3x3 convolutions": _without("convolution_shapes"),
    "without tiles and image rows": Variant(rows="tiles"),
    "without fused kernels": Variant(rows="fusion"),
    "without hidden operator names": Variant({"model.encoder.operator_dropout": 0.0}),
    "layer: GraphSAGE": Variant({"model.encoder.conv": "sage"}),
    "layer: GATv2": Variant({"model.encoder.conv": "gatv2"}),
    "layer: GINE": Variant({"model.encoder.conv": "gine"}),
}
QUICK_VARIANTS = (FULL, "without message passing", "without FLOPs (CO)")
