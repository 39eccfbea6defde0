"""How much arithmetic and memory traffic one operator costs, forward and backward.

Convention: one multiply-accumulate is two FLOPs. FLOPs are those of matrix products, convolutions,
attention and recurrent gates (what `torch.utils.flop_counter` counts), without bias; pointwise and
reduction arithmetic is `elementwise_ops`. Complex products count as the real products they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tracing.costs.einsum import einsum_flops
from tracing.costs.recurrent import is_cell, stacks
from tracing.costs.vocab import LOOKUPS
from tracing.graph.specs import OpNode

# node -> FLOPs forward and FLOPs of every input's gradient, or FLOPs forward alone
Formula = Callable[[OpNode], "tuple[int, tuple[int, ...]] | int"]
COSTS: dict[str, Formula] = {}

# One complex product is four real products.
COMPLEX_FACTOR = 4
# A flash backward recomputes the scores: five matrix products for the forward's two
# (Dao et al. 2022, "FlashAttention", algorithm 4); the math kernel needs four.
FLASH_BACKWARD_PRODUCTS = 5
MATH_BACKWARD_PRODUCTS = 4


def register_cost(*names: str) -> Callable[[Formula], Formula]:
    """Registers the FLOP formula of operators or kinds of operators.

    Args:
        names: Kinds (`"linear"`) or, for single operators, overloads without the overload name
            (`"mylib::my_op"`). A name that is registered already is an error.

    The formula takes an `OpNode` and returns its forward FLOPs and, for every input tensor, the
    FLOPs that its gradient would cost. A formula that returns one number says that every gradient
    costs as much as the forward pass, which holds for products.
    """

    def keep(formula: Formula) -> Formula:
        for name in names:
            if name in COSTS:
                raise ValueError(f"a cost for '{name}' is registered already")
            COSTS[name] = formula
        return formula

    return keep


def has_formula(target: str) -> bool:
    """Whether a FLOP formula is registered for just this operator."""
    return _own_name(target) in COSTS


def _own_name(target: str) -> str:
    return target.rsplit(".", 1)[0].replace(".", "::")


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


def _complex(node: OpNode) -> int:
    return COMPLEX_FACTOR if any(s.dtype.startswith("complex") for s in node.input_specs) else 1


@register_cost("conv")
def _conv(node: OpNode) -> tuple[int, tuple[int, ...]]:
    weight = node.tensor(1)  # (out, in / groups, *kernel)
    # a transposed convolution spreads every input element, another gathers every output element
    spread = node.tensor(0) if node.attrs.get("transposed") else node.output
    flops = 2 * spread.numel * math.prod(weight.shape[1:]) * _complex(node)
    return flops, (flops, flops, 0)


@register_cost("conv_transpose")
def _conv_transpose(node: OpNode) -> tuple[int, tuple[int, ...]]:
    weight = node.tensor(1)  # (in, out / groups, *kernel)
    flops = 2 * node.tensor(0).numel * math.prod(weight.shape[1:]) * _complex(node)
    return flops, (flops, flops, 0)


@register_cost("linear")
def _linear(node: OpNode) -> tuple[int, tuple[int, ...]]:
    if node.op == "addmm":
        flops = 2 * node.output.numel * node.tensor(1).shape[-1] * _complex(node)
        return flops, (0, flops, flops)
    inputs = node.tensor(0)
    flops = 2 * node.output.numel * (inputs.shape[-1] if inputs.shape else 1) * _complex(node)
    return flops, (flops, flops, 0)


@register_cost("matmul")
def _matmul(node: OpNode) -> tuple[int, tuple[int, ...]]:
    op, specs = node.op, node.input_specs
    if op == "einsum":
        equation = str(node.attrs.get("equation", ""))
        flops = einsum_flops(equation, [spec.shape for spec in specs]) * _complex(node)
        return flops, (flops,) * len(specs)
    if op == "bilinear":
        # x1 W x2: one product of size out * in1 for each x2 element, then a pointwise sum
        flops = 2 * node.output.numel * specs[0].shape[-1] * specs[1].shape[-1]
        return flops, (flops,) * 3
    if op in ("cdist", "_cdist_forward", "_euclidean_dist", "addr", "outer", "ger", "kron"):
        return 0, (0,) * len(specs)
    first = 1 if op in ("addmv", "baddbmm", "addbmm") else 0
    left = specs[first]
    flops = 2 * node.output.numel * (left.shape[-1] if left.shape else 1) * _complex(node)
    if op == "addbmm":
        flops *= left.shape[0]
    return flops, (0,) * first + (flops, flops) + (0,) * len(specs)


@register_cost("attention")
def _attention(node: OpNode) -> tuple[int, tuple[int, ...]]:
    query, key, value = node.input_specs[:3]  # (..., heads, sequence, head size)
    scores = math.prod(query.shape[:-1]) * key.shape[-2]
    flops = 2 * scores * (query.shape[-1] + value.shape[-1])
    products = (
        MATH_BACKWARD_PRODUCTS if node.attrs.get("backend") == "math" else FLASH_BACKWARD_PRODUCTS
    )
    grads = [0] * len(node.input_specs)
    # one kernel computes all gradients together; bill it to the first input that needs one
    grads[node.needs_grad.index(True) if any(node.needs_grad) else 0] = flops * products // 2
    return flops, tuple(grads)


@register_cost("rnn")
def _rnn(node: OpNode) -> tuple[int, tuple[int, ...]]:
    data = node.tensor(0)
    cell, rows, steps = is_cell(node), data.numel // max(data.shape[-1], 1), 1
    if not cell:
        batch_first = bool(node.attrs.get("batch_first"))
        steps = data.shape[-2 if batch_first else 0] if len(data.shape) == 3 else data.shape[0]
    flops, grads = 0, [0] * len(node.input_specs)
    asking = node.needs_grad.index(True) if any(node.needs_grad) else 0
    for stack in stacks(node):
        for place, i in enumerate(stack.matrices):
            part = 2 * rows * node.input_specs[i].numel
            flops += part
            grads[i] += part  # gradient of the weight
            # what flows between steps and layers is billed to the weight, or to what asks for it
            bearer = i if node.needs_grad and node.needs_grad[i] else asking
            if place == 1 and cell:
                grads[1] += part  # the hidden state handed in
            elif place == 1 and stack.state_flows:
                # the hidden state's gradient: not needed before the first step
                grads[bearer] += part * (steps - 1) // max(steps, 1)
            elif place == 0 and stack.layer == 0:
                grads[0] += part
            elif (place == 0 and stack.input_flows) or (place > 1 and stack.state_flows):
                grads[bearer] += part
    return flops, tuple(grads)


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


def forward_bytes(node: OpNode) -> tuple[int, int]:
    """Bytes a forward call reads and writes at least; views move nothing."""
    if node.kind == "view" and not node.attrs.get("copies"):
        return 0, 0
    written = sum(spec.bytes for spec in node.output_specs)
    if node.kind == "create":
        return 0, written
    if node.kind in LOOKUPS and len(node.input_specs) > 1 and not node.inplace:
        table = max(range(len(node.input_specs)), key=lambda i: node.input_specs[i].bytes)
        others = sum(s.bytes for i, s in enumerate(node.input_specs) if i != table)
        return others + min(written, node.input_specs[table].bytes), written
    seen: set[object] = set()
    read = 0
    for source, spec in zip(node.sources, node.input_specs, strict=True):
        key = (source.kind, source.node, source.slot, source.name)
        if source.kind == "const" or key not in seen:
            read += spec.bytes
            seen.add(key)
    if node.kind == "view":
        return written, written
    return read, written


def backward_bytes(node: OpNode) -> tuple[int, int]:
    """Bytes the backward of a call reads (gradient and saved tensors) and writes."""
    if not node.differentiable or (node.kind == "view" and not node.attrs.get("copies")):
        return 0, 0
    grad_out = sum(spec.bytes for spec in node.output_specs if spec.is_floating)
    written = sum(
        spec.bytes for spec, need in zip(node.input_specs, node.needs_grad, strict=True) if need
    )
    from tracing.costs.saved import saved_by

    read_saved = saved_by(node).total_bytes
    return grad_out + read_saved, written


def node_cost(node: OpNode) -> NodeCost:
    """Costs one call, forward and backward, from shapes alone.

    Gradients are billed where `node.needs_grad` says so; parameters' gradients are
    `grad_weight_flops`, all others `grad_input_flops`.
    """
    formula = COSTS.get(_own_name(node.target)) or COSTS.get(node.kind)
    forward, grad_input, grad_weight = 0, 0, 0
    if formula is not None and node.output_specs:
        result = formula(node)
        if isinstance(result, int):
            result = (result, (result,) * len(node.input_specs))
        forward, grads = result
        if node.differentiable:
            for need, source, flops in zip(node.needs_grad, node.sources, grads, strict=False):
                if need and source.kind == "param":
                    grad_weight += flops
                elif need:
                    grad_input += flops
    read, write = forward_bytes(node)
    back_read, back_write = backward_bytes(node)
    return NodeCost(
        forward, grad_input, grad_weight, elementwise_ops(node), read, write, back_read, back_write
    )
