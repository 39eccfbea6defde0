"""What one call costs, forward and backward: FLOPs, pointwise arithmetic, memory traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracing.costs.formulas import node_flops
from tracing.costs.traffic import traffic
from tracing.graph.specs import OpNode


@dataclass(frozen=True, slots=True)
class NodeCost:
    """Cost of one call; bytes are what must at least move between memory and the chip."""

    forward_flops: int
    grad_input_flops: int
    grad_weight_flops: int
    elementwise_ops: int
    forward_read_bytes: int
    forward_write_bytes: int
    backward_read_bytes: int
    backward_write_bytes: int

    @property
    def backward_flops(self) -> int:
        """FLOPs of all gradients this call computes."""
        return self.grad_input_flops + self.grad_weight_flops

    @property
    def forward_bytes(self) -> int:
        """Bytes read and written by the forward call."""
        return self.forward_read_bytes + self.forward_write_bytes

    @property
    def backward_bytes(self) -> int:
        """Bytes read and written by the backward call."""
        return self.backward_read_bytes + self.backward_write_bytes


# Arithmetic per output element of the kinds that multiply no matrices: counted by hand from the
# formulas (for example batch norm: mean, variance, normalise and scale take about eight).
ELEMENTWISE_OPS = {
    "batch_norm": 8, "layer_norm": 8, "group_norm": 8, "rms_norm": 5, "softmax": 5,
    "activation": 4, "binary": 1, "unary": 1, "interpolate": 7, "dropout": 2, "loss": 6,
    "random": 4, "sort": 10, "attention": 0,
}  # fmt: skip


def elementwise_ops(node: OpNode) -> int:
    """Pointwise and reduction arithmetic of one forward call."""
    out = sum(spec.numel for spec in node.output_specs)
    if node.kind in ("reduce", "loss", "pool"):
        return max(node.tensor(0).numel, out)
    if node.kind == "fft":
        size = max(node.tensor(0).numel, out)
        length = max((*node.tensor(0).shape[-2:], 2))
        return int(5 * size * math.log2(length))  # Cooley-Tukey
    if node.kind == "attention":
        query, key = node.input_specs[:2]
        return 5 * math.prod(query.shape[:-1]) * key.shape[-2]
    if node.kind == "batch_norm" and not node.attrs.get("training", True):
        return 2 * out
    return ELEMENTWISE_OPS.get(node.kind, 0) * out


def node_cost(node: OpNode) -> NodeCost:
    """Costs one call, forward and backward, from shapes alone.

    Gradients are billed where `node.needs_grad` says so; parameters' gradients are
    `grad_weight_flops`, all others `grad_input_flops`.
    """
    forward, grads = node_flops(node)
    grad_weight = sum(
        flops for source, flops in zip(node.sources, grads, strict=False) if source.kind == "param"
    )
    moved = traffic(node)
    return NodeCost(
        forward,
        sum(grads) - grad_weight,
        grad_weight,
        elementwise_ops(node),
        moved.forward_read,
        moved.forward_write,
        moved.backward_read,
        moved.backward_write,
    )
