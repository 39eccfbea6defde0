"""What a call asks of a device: arithmetic, memory traffic and launches, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.encoding.fields import WORK
from tracing.costs.formulas import node_flops
from tracing.costs.traffic import traffic
from tracing.costs.vocab import CONVOLUTIONS, NORMS, PRODUCTS

if TYPE_CHECKING:
    from prenet_gnn.encoding.precision import Lowered
    from tracing import OpNode

# A recurrent layer waits for each time step: 15 to 30 us forward and about 30 us backward for small
# layers on Pascal and Volta (DeepBench, results/train, LSTM and GRU), in kernels of about 2 us.
RECURRENT_STEP_KERNELS = (8.0, 14.0)


def _cast_bytes(node: OpNode, low: Lowered) -> float:
    return float(
        sum(
            node.input_specs[p].numel * (before + low.item_in[p])
            for p, before in zip(low.casts, low.from_items, strict=True)
        )
    )


def _recurrent_steps(node: OpNode) -> float:
    """Time steps that run one after the other, over all layers and directions."""
    shape = node.tensor(0).shape
    if node.op.endswith("_cell") or len(shape) < 2:
        return 1.0
    steps = shape[1] if node.attrs.get("batch_first") and len(shape) == 3 else shape[0]
    layers = int(node.attrs.get("num_layers", 1) or 1)
    return float(steps * layers * (2 if node.attrs.get("bidirectional") else 1))


def _counts_batches(node: OpNode) -> bool:
    """Whether this is a batch norm that adds one to its count of batches."""
    return node.kind == "batch_norm" and bool(node.attrs.get("training"))


def _kernels(node: OpNode, low: Lowered) -> tuple[float, float]:
    """Kernels launched forward and backward, without fusion."""
    forward = 1.0 + len(low.casts)
    if node.kind in CONVOLUTIONS and len(node.input_specs) > 2:
        forward += 1.0  # the bias is added by a kernel of its own
    if _counts_batches(node):
        forward += 1.0
    if node.kind == "loss":
        forward += 1.0
    if node.kind == "rnn":
        steps = _recurrent_steps(node)
        needed = float(node.differentiable)
        return steps * RECURRENT_STEP_KERNELS[0], steps * RECURRENT_STEP_KERNELS[1] * needed
    if not node.differentiable:
        return forward, 0.0
    needs = sum(node.needs_grad)
    if node.kind in PRODUCTS:
        backward = float(needs)
    elif node.kind in NORMS:
        backward = 1.0 if node.kind == "batch_norm" else 2.0
    elif node.kind == "binary":
        backward = float(needs) if node.op in ("mul", "div", "pow", "where") else 0.5 * needs
    else:
        backward = 1.0
    return forward, backward + len(low.casts)


def strided_extra(node: OpNode, low: Lowered) -> tuple[float, float]:
    """Bytes and kernels that a call adds because its input is not contiguous.

    A linear layer of a parameter copies it and adds its bias in a kernel of its own, under autocast
    too (`should_fold` in PyTorch's LinearAlgebra.cpp); normalisations and softmax copy it.
    """
    read = 2.0 * node.tensor(0).numel * low.item_in[0]
    if node.kind in ("layer_norm", "softmax"):
        return read, 1.0
    if node.op != "linear":
        return 0.0, 0.0
    adds = float(len(node.input_specs) > 2)
    return read + adds * 2.0 * node.output.numel * low.item_out[0], 1.0 + adds


def work_of(node: OpNode, low: Lowered, strided: bool = False) -> np.ndarray:
    """Work of one call under its number formats.

    Args:
        node: The call.
        low: Its number formats.
        strided: Whether its input is not contiguous in the plain layout.

    Returns:
        `(WORK.width,)` float64: FLOPs, bytes, kernels, host calls.
    """
    forward_flops, gradient_flops = node_flops(node)
    moved = traffic(node, low.item_in, low.item_out, by_kernel=True)
    forward_bytes, backward_bytes = float(moved.forward), float(moved.backward)
    cast = _cast_bytes(node, low)
    forward_kernels, backward_kernels = _kernels(node, low)
    if strided:
        more_bytes, more_kernels = strided_extra(node, low)
        forward_bytes, forward_kernels = forward_bytes + more_bytes, forward_kernels + more_kernels
    return WORK.row(
        {
            "forward_flops": forward_flops,
            "backward_flops": sum(gradient_flops),
            "forward_bytes": forward_bytes + cast,
            "backward_bytes": backward_bytes + (cast if node.differentiable else 0.0),
            "forward_kernels": forward_kernels,
            "backward_kernels": backward_kernels,
            "forward_calls": 1.0 + len(low.casts) + float(_counts_batches(node)),
            "backward_calls": 1.0 if node.differentiable else 0.0,
        }
    )
