"""Which tensors autograd keeps between an operator's forward and backward.

Source: `tools/autograd/derivatives.yaml` of PyTorch states which inputs and outputs each
derivative formula reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracing.specs import OpNode
from tracing.vocab import words

SAVES_OUTPUT = words(
    "relu sigmoid tanh exp sqrt rsqrt reciprocal softmax log_softmax _softmax _log_softmax elu "
    "selu celu expm1 exp2 cumprod threshold sinc"
)
SAVES_INPUT = words(
    "gelu silu hardswish hardsigmoid hardtanh relu6 leaky_relu mish softplus prelu logsigmoid "
    "log_sigmoid log log2 log10 log1p sin cos tan erf erfc abs square clamp clip clamp_min "
    "clamp_max pow sinh cosh asin acos atan var std var_mean std_mean glu hardshrink softshrink "
    "logit avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool3d erfinv angle sgn tanhshrink"
)
SAVES_BOTH = words("norm linalg_vector_norm logsumexp amax amin prod nan_to_num")
SAVES_OTHERS = words("mul div multiply divide true_divide")


@dataclass(frozen=True, slots=True)
class Saved:
    """Positions of the saved inputs and outputs, and bytes that exist for the backward only."""

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    extra_bytes: int = 0
    total_bytes: int = 0


def _make(node: OpNode, inputs: tuple[int, ...], outputs: tuple[int, ...], extra: int) -> Saved:
    total = extra + sum(node.input_specs[i].bytes for i in inputs if i < len(node.input_specs))
    total += sum(node.output_specs[i].bytes for i in outputs if i < len(node.output_specs))
    return Saved(inputs, outputs, extra, total)


def _product_operands(node: OpNode) -> tuple[int, ...]:
    """Operands of a product are kept where another operand needs its gradient."""
    needs = node.needs_grad
    first = 1 if node.op in ("addmm", "baddbmm", "addbmm", "addmv") else 0
    operands = [i for i in range(first, len(needs)) if not _is_bias(node, i)]
    return tuple(i for i in operands if any(needs[j] for j in operands if j != i))


def _is_bias(node: OpNode, position: int) -> bool:
    return (
        node.kind in ("conv", "conv_transpose", "linear") and position == 2 and (node.op != "addmm")
    )


def saved_by(node: OpNode) -> Saved:
    """Tensors that this call keeps for its backward; nothing where autograd records nothing.

    Shapes:
        The sizes are those of `node.input_specs` and `node.output_specs`, in bytes.
    """
    if not node.differentiable:
        return Saved()
    rule = _RULES.get(node.kind)
    if rule is not None:
        return rule(node)
    return _pointwise(node)


def _products(node: OpNode) -> Saved:
    return _make(node, _product_operands(node), (), 0)


def _attention(node: OpNode) -> Saved:
    query, key = node.input_specs[:2]
    rows = math.prod(query.shape[:-1])
    positions = tuple(range(min(3, len(node.input_specs))))
    if node.attrs.get("backend") == "math":
        # the score matrix after softmax, and the scaled query and key
        extra = rows * key.shape[-2] * (query.bytes // max(query.numel, 1))
        return _make(node, positions, (), extra)
    return _make(node, tuple(range(len(node.input_specs))), (0,), 4 * rows)


def _batch_norm(node: OpNode) -> Saved:
    channels = node.tensor(0).shape[1] if len(node.tensor(0).shape) > 1 else 1
    return _make(node, (0,), (), 2 * 4 * channels if node.attrs.get("training", True) else 0)


def _layer_norm(node: OpNode) -> Saved:
    shape = node.attrs.get("normalized_shape") or [1]
    inner = math.prod(shape) if isinstance(shape, list | tuple) else 1
    rows = node.tensor(0).numel // max(inner, 1)
    return _make(node, (0,), (), 2 * 4 * rows)


def _group_norm(node: OpNode) -> Saved:
    groups = int(node.attrs.get("num_groups", 1) or 1)
    return _make(node, (0,), (), 2 * 4 * groups * (node.tensor(0).shape or (1,))[0])


def _rms_norm(node: OpNode) -> Saved:
    shape = node.tensor(0).shape
    return _make(node, (0,), (), 4 * node.tensor(0).numel // max(shape[-1] if shape else 1, 1))


def _pool(node: OpNode) -> Saved:
    if "max_pool" in node.op:
        return _make(node, (0,), (), 8 * node.output.numel)  # int64 indices
    if node.op.startswith("adaptive_avg") and math.prod(node.output.shape[2:]) == 1:
        return Saved()  # runs as a mean
    return _make(node, (0,), (), 0)


def _dropout(node: OpNode) -> Saved:
    active = bool(node.attrs.get("train", True)) and float(node.attrs.get("p", 0.5) or 0) > 0
    return _make(node, (), (), node.output.numel if active else 0)  # a bool mask


def _loss(node: OpNode) -> Saved:
    if node.op == "cross_entropy_loss":
        return _make(node, (1,), (), node.tensor(0).bytes + 4)  # log-softmax, target, weight sum
    if node.op.startswith("nll_loss"):
        return _make(node, (1,), (), 4)
    return _make(node, (0, 1), (), 0)


def _integer_inputs(node: OpNode) -> Saved:
    kept = tuple(i for i, spec in enumerate(node.input_specs) if not spec.is_floating)
    return _make(node, kept, (), 0)


def _rnn(node: OpNode) -> Saved:
    # cuDNN keeps gates and cell states in its reserve space: per step and layer, four gates,
    # cell and hidden state for an LSTM
    gates = {"lstm": 6, "gru": 5}.get(node.op, 2)
    layers = int(node.attrs.get("num_layers", 1) or 1)
    return _make(node, (0,), (0,), gates * layers * node.output.bytes)


def _reduce(node: OpNode) -> Saved:
    if node.op in ("max", "min", "median", "mode") and len(node.output_specs) > 1:
        return _make(node, (), (1,), 0)
    if node.op in SAVES_BOTH or node.op in ("max", "min"):
        return _make(node, (0,), (0,), 0)
    return _make(node, (0,) if node.op in SAVES_INPUT else (), (), 0)


def _binary(node: OpNode) -> Saved:
    op, needs = node.op, node.needs_grad
    if op in SAVES_OTHERS:
        kept = [i for i in range(len(needs)) if any(n for j, n in enumerate(needs) if j != i)]
        if op not in ("mul", "multiply") and len(needs) > 1 and needs[0] and 1 not in kept:
            kept.append(1)
        return _make(node, tuple(kept), (), 0)
    if op in ("pow",):
        return _make(node, tuple(range(len(needs))), (0,) if len(needs) > 1 else (), 0)
    if op in ("where", "masked_fill"):
        position = 0 if op == "where" else 1
        return _make(node, (position,) if len(needs) > position else (), (), 0)
    if op in ("maximum", "minimum", "atan2", "lerp", "addcmul", "addcdiv", "fmod", "clamp_min"):
        return _make(node, tuple(range(len(needs))), (), 0)
    return Saved()


def _pointwise(node: OpNode) -> Saved:
    if node.op in SAVES_OUTPUT or (node.inplace and node.kind == "activation"):
        return _make(node, (), (0,), 0)
    if node.op in SAVES_INPUT:
        return _make(node, (0,), (), 0)
    if node.op in SAVES_BOTH:
        return _make(node, (0,), (0,), 0)
    return Saved()


_RULES = {
    "conv": _products, "conv_transpose": _products, "linear": _products, "matmul": _products,
    "attention": _attention, "batch_norm": _batch_norm, "layer_norm": _layer_norm,
    "group_norm": _group_norm, "rms_norm": _rms_norm, "pool": _pool, "dropout": _dropout,
    "loss": _loss, "embedding": _integer_inputs, "index": _integer_inputs, "sort": _integer_inputs,
    "rnn": _rnn, "reduce": _reduce, "binary": _binary,
}  # fmt: skip
