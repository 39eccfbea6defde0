"""How many FLOPs one operator costs, forward and for every gradient.

Convention: one multiply-accumulate is two FLOPs. FLOPs are those of matrix products, convolutions,
attention and recurrent gates (what `torch.utils.flop_counter` counts), without bias; pointwise and
reduction arithmetic is counted apart. Complex products count as the real products they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tracing.costs.einsum import einsum_flops
from tracing.costs.recurrent import is_cell, stacks
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


def node_flops(node: OpNode) -> tuple[int, tuple[int, ...]]:
    """FLOPs of a call, forward and for the gradient of every input that needs one."""
    formula = COSTS.get(_own_name(node.target)) or COSTS.get(node.kind)
    none = (0,) * len(node.input_specs)
    if formula is None or not node.output_specs:
        return 0, none
    result = formula(node)
    if isinstance(result, int):
        result = (result, (result,) * len(node.input_specs))
    forward, grads = result
    if not node.differentiable:
        return forward, none
    each = zip(node.needs_grad, grads, strict=False)
    return forward, tuple([flops if need else 0 for need, flops in each])


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
