"""The table of variants: every ablation is a named change of the shipped configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FULL = "full"


@dataclass(frozen=True, slots=True)
class Variant:
    """One line of the table: other settings, what is taken from the rows, operators beside them."""

    settings: dict[str, Any] = field(default_factory=dict)
    rows: str = ""
    operators: bool = False


VARIANTS: dict[str, Variant] = {
    FULL: Variant(),
    "without FLOPs (CO)": Variant(rows="flops"),
    "without memory traffic (CM)": Variant(rows="memory"),
    "without device rates (CT)": Variant(rows="rates"),
    "without edges": Variant(rows="edges"),
    "without tensor sizes on edges": Variant(rows="tensor sizes"),
    "without message passing": Variant({"model.conv": "none"}),
    "one-hot device, no specifications": Variant({"train.latent_penalty": 0.0}, "device"),
    "without roofline prior": Variant({"model.use_prior": False}),
    "without host-bound term": Variant({"model.use_host": False}),
    "without source terms": Variant(rows="source"),
    "with operator rows": Variant(operators=True),
    "mean readout": Variant(rows="mean"),
    "without partly filled waves": Variant({"model.use_fill": False}),
    "without issue rate of memory traffic": Variant({"model.use_issue": False}),
    "without rates for 1x1 and 3x3 convolutions": Variant({"model.use_conv_classes": False}),
    "without tiles and image rows": Variant(rows="tiles"),
    "without fused kernels": Variant(rows="fusion"),
    "without hidden operator names": Variant({"model.operator_dropout": 0.0}),
    "with device-relative correction": Variant({"model.use_device_head": True}),
    "layer: GraphSAGE": Variant({"model.conv": "sage"}),
    "layer: GATv2": Variant({"model.conv": "gatv2"}),
    "layer: GINE": Variant({"model.conv": "gine"}),
}
QUICK_VARIANTS = (FULL, "without message passing", "without FLOPs (CO)")
