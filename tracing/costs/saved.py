"""Which tensors autograd keeps between an operator's forward and backward.

Source: `tools/autograd/derivatives.yaml` of PyTorch states which inputs and outputs each
derivative formula reads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from tracing.costs.vocab import CONVOLUTIONS, words
from tracing.graph.specs import OpNode

SAVES_OUTPUT = words(
    "relu sigmoid tanh exp sqrt rsqrt reciprocal softmax log_softmax _softmax _log_softmax "
    "_safe_softmax expm1 exp2 cumprod sinc polar"
)
SAVES_INPUT = words(
    "gelu silu hardswish hardsigmoid hardtanh relu6 leaky_relu mish softplus logsigmoid elu selu "
    "log_sigmoid log log2 log10 log1p sin cos tan erf erfc abs square clamp clip clamp_min celu "
    "clamp_max pow sinh cosh asin acos atan var glu hardshrink softshrink logit threshold erfinv "
    "angle sgn tanhshrink xlogy cdist"
)
SAVES_BOTH = words("norm linalg_vector_norm logsumexp amax amin prod nan_to_num std var_mean")
DIVISIONS = words("div divide true_divide")
# In place these formulas read the result; all others keep a copy of what they overwrite.
INPLACE_SAVES_OUTPUT = SAVES_OUTPUT | words("leaky_relu elu selu celu rrelu")
SAVES_OPERANDS = words("maximum minimum atan2 addcdiv fmod max min copysign hypot logaddexp")


@dataclass(frozen=True, slots=True)
class Saved:
    """Positions of the saved inputs and outputs, and bytes that exist for the backward only."""

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    extra_bytes: int = 0


def _product_operands(node: OpNode) -> tuple[int, ...]:
    """Operands of a product are kept where another operand needs its gradient."""
    needs = node.needs_grad
    if node.kind in CONVOLUTIONS or node.op in ("bilinear", "_trilinear"):
        # one backward kernel for all gradients: it keeps input and weight whatever is needed
        return tuple(range(min(2 + (node.kind == "matmul"), len(needs))))
    first = 1 if node.op in ("addmm", "baddbmm", "addbmm", "addmv") else 0
    operands = [i for i in range(first, len(needs)) if not _is_bias(node, i)]
    return tuple(i for i in operands if any(needs[j] for j in operands if j != i))


def _is_bias(node: OpNode, position: int) -> bool:
    return node.kind == "linear" and position == 2 and node.op != "addmm"


def saved_by(node: OpNode, device: str = "cuda") -> Saved:
    """Tensors that this call keeps for its backward; nothing where autograd records nothing.

    Args:
        node: The call.
        device: `cuda` or `cpu`; a few kernels keep other things on the CPU.

    Shapes:
        The sizes are those of `node.input_specs` and `node.output_specs`, in bytes.
    """
    if not node.differentiable:
        return Saved()
    if device == "cpu" and node.kind in _CPU_RULES:
        return _CPU_RULES[node.kind](node)
    rule = _RULES.get(node.kind)
    if rule is not None:
        return rule(node)
    return _pointwise(node)


def _products(node: OpNode) -> Saved:
    return Saved(_product_operands(node))


def _attention(node: OpNode, device: str = "cuda") -> Saved:
    if node.attrs.get("backend") == "math":
        return _math_attention(node, mask_bytes=1, finest=4 if device == "cpu" else 1)
    rows = math.prod(node.input_specs[0].shape[:-1])
    return Saved(tuple(range(len(node.input_specs))), (0,), 4 * rows)


def _math_attention(node: OpNode, mask_bytes: int = 0, finest: int = 4) -> Saved:
    """The scaled query and key, the scores after softmax, and the value.

    The CPU converts half-precision operands to float32 first, `finest` bytes each; a GPU with
    half-precision products keeps them as they are.
    """
    query, key, value = node.input_specs[:3]
    item = max(query.item_bytes, finest)
    scores = math.prod(query.shape[:-1]) * key.shape[-2]
    extra = (query.numel + key.numel + scores) * item
    if float(node.attrs.get("dropout_p", 0) or 0) > 0:
        extra += scores * (item + (mask_bytes or item))  # the scores after dropout, and its mask
    if item > query.item_bytes:
        return Saved(extra_bytes=extra + value.numel * item)
    return Saved((2,), extra_bytes=extra)


def _attention_cpu(node: OpNode) -> Saved:
    if float(node.attrs.get("dropout_p", 0) or 0) > 0:  # no fused kernel for this
        return _math_attention(node)  # its mask is the noise that is multiplied with
    return _attention(node, "cpu")


def _statistic_bytes(node: OpNode, device: str = "cuda") -> int:
    """Bytes of a mean or of an inverse deviation.

    Float32 unless the data is finer; kernels of the CPU keep them as the weights are.
    """
    data = node.tensor(1 if device == "cpu" and len(node.input_specs) > 1 else 0)
    return data.item_bytes if device == "cpu" else max(data.item_bytes, 4)


def _instance_norm(node: OpNode, device: str) -> Saved:
    """A batch norm of every sample's channels, with weight and running statistics copied to all."""
    shape = node.tensor(0).shape
    tracked = any(source.kind == "buffer" for source in node.sources)
    weighted = len(node.input_specs) > 1 + 2 * tracked
    copies = weighted + 2 * tracked + 2 * bool(node.attrs.get("use_input_stats", True))
    return Saved((0,), extra_bytes=copies * math.prod(shape[:2]) * _statistic_bytes(node, device))


def _batch_norm(node: OpNode, device: str = "cuda") -> Saved:
    if node.op == "instance_norm":
        return _instance_norm(node, device)
    channels = node.tensor(0).shape[1] if len(node.tensor(0).shape) > 1 else 1
    statistics = 2 * channels if node.attrs.get("training", True) else 0
    return Saved((0,), extra_bytes=statistics * _statistic_bytes(node, device))


def _layer_norm(node: OpNode, device: str = "cuda") -> Saved:
    shape = node.attrs.get("normalized_shape") or [1]
    inner = math.prod(shape) if isinstance(shape, list | tuple) else 1
    rows = node.tensor(0).numel // max(inner, 1)
    return Saved((0,), extra_bytes=2 * _statistic_bytes(node, device) * rows)


def _group_norm(node: OpNode, device: str = "cuda") -> Saved:
    groups = int(node.attrs.get("num_groups", 1) or 1) * (node.tensor(0).shape or (1,))[0]
    return Saved((0,), extra_bytes=2 * _statistic_bytes(node, device) * groups)


def _rms_norm(node: OpNode) -> Saved:
    shape = node.tensor(0).shape
    rows = node.tensor(0).numel // max(shape[-1] if shape else 1, 1)
    return Saved((0,), extra_bytes=_statistic_bytes(node) * rows)


def _pool(node: OpNode) -> Saved:
    if "max_pool" in node.op:
        return Saved((0,), extra_bytes=8 * node.output.numel)  # int64 indices
    if node.op.startswith("adaptive_avg") and math.prod(node.output.shape[2:]) == 1:
        return Saved()  # runs as a mean
    return Saved((0,))


def dropout_active(node: OpNode) -> bool:
    """Whether a dropout call drops anything; otherwise it returns its input itself."""
    return bool(node.attrs.get("train", True)) and float(node.attrs.get("p", 0.5) or 0) > 0


def _dropout(node: OpNode) -> Saved:
    return Saved(extra_bytes=node.output.numel if dropout_active(node) else 0)  # a bool mask


def _dropout_cpu(node: OpNode) -> Saved:
    if not dropout_active(node):
        return Saved()
    spec = node.output
    if node.op.startswith("feature") or node.op in ("dropout1d", "dropout2d", "dropout3d"):
        return Saved(extra_bytes=spec.bytes // max(math.prod(spec.shape[2:]), 1))
    return Saved(extra_bytes=spec.bytes)  # the noise that is multiplied with


def _rms_norm_cpu(node: OpNode) -> Saved:
    """Made of single operators in float32: input, inverse norm, product that meets the weight."""
    own, data = _rms_norm(node), node.tensor(0)
    item = max(data.item_bytes, 4)
    trained = len(node.needs_grad) > 1 and node.needs_grad[1]
    product = node.output.numel * item if trained else 0
    if not node.needs_grad[0]:
        return Saved(extra_bytes=product)
    converted = data.numel * item if item > data.item_bytes else 0
    return Saved(() if converted else (0,), extra_bytes=own.extra_bytes + converted + product)


def _activation_cpu(node: OpNode) -> Saved:
    saved = _pointwise(node)
    if node.op in ("log_sigmoid", "logsigmoid"):  # keeps exp(-|x|) as well
        return Saved(saved.inputs, extra_bytes=node.tensor(0).bytes)
    return saved


def _loss(node: OpNode) -> Saved:
    if node.op == "cross_entropy_loss":
        return Saved((1,), extra_bytes=node.tensor(0).bytes + 4)  # log-softmax, target, weight sum
    return Saved((0, 1), extra_bytes=4 if node.op.startswith("nll_loss") else 0)


def _integer_inputs(node: OpNode) -> Saved:
    kept = tuple(i for i, spec in enumerate(node.input_specs) if not spec.is_floating)
    return Saved(kept)


def _sort(node: OpNode) -> Saved:
    return Saved((), (1,) if len(node.output_specs) > 1 else ())


def _interpolate(node: OpNode) -> Saved:
    return Saved((0, 1) if node.op.startswith("grid_sampler") else ())


def _rnn(node: OpNode) -> Saved:
    # cuDNN keeps gates and cell states in its reserve space: per step and layer, four gates,
    # cell and hidden state for an LSTM
    gates = {"lstm": 6, "gru": 5}.get(node.op, 2)
    layers = int(node.attrs.get("num_layers", 1) or 1)
    state = node.output.bytes
    weights = [spec for spec in node.input_specs[1:] if len(spec.shape) == 2]
    if node.op == "lstm" and len(weights) % 3 == 0 and weights[2:]:
        # a projection makes the output narrower than gates and cells are
        projected, width = weights[2].shape
        if projected * 4 * width == weights[1].numel and projected < width:
            return Saved((0,), (0,), layers * state * (1 + (gates - 1) * width // projected))
    return Saved((0,), (0,), gates * layers * state)


def _reduce(node: OpNode) -> Saved:
    if node.op in ("max", "min", "median", "mode") and len(node.output_specs) > 1:
        return Saved((), (1,))
    if node.op in SAVES_BOTH or node.op in ("max", "min"):
        return Saved((0,), (0,))
    return Saved((0,) if node.op in SAVES_INPUT else ())


def _binary(node: OpNode) -> Saved:
    op, needs = node.op, node.needs_grad
    if op in ("mul", "multiply", "addcmul"):
        first = 1 if op == "addcmul" else 0
        factors = range(first, len(needs))
        return Saved(tuple(i for i in factors if any(needs[j] for j in factors if j != i)))
    if op in DIVISIONS:
        kept = ((0,) if len(needs) > 1 and needs[1] else ()) + ((1,) if len(needs) > 1 else ())
        return Saved(kept)
    if op == "pow":
        return Saved(tuple(range(len(needs))), (0,) if len(needs) > 1 else ())
    if op in ("where", "masked_fill"):
        position = 0 if op == "where" else 1
        return Saved((position,) if len(needs) > position else ())
    if op == "lerp":
        weight = (2,) if len(needs) > 2 else ()
        return Saved(((0, 1) if len(needs) > 2 and needs[2] else ()) + weight)
    if op in SAVES_OPERANDS:
        return Saved(tuple(range(len(needs))))
    return _pointwise(node)


def _pointwise(node: OpNode) -> Saved:
    op = node.op
    if node.inplace and op in INPLACE_SAVES_OUTPUT:
        return Saved((), (0,))
    if node.inplace and op in SAVES_INPUT:
        return Saved(extra_bytes=node.tensor(0).bytes)  # a copy of what is overwritten
    if op in SAVES_OUTPUT:
        return Saved((), (0,))
    if op in ("prelu", "_prelu_kernel"):
        return Saved((0, 1))
    if op in SAVES_INPUT:
        return Saved((0,))
    if op in SAVES_BOTH:
        return Saved((0,), (0,))
    return Saved()


_RULES = {
    "conv": _products, "conv_transpose": _products, "linear": _products, "matmul": _products,
    "attention": _attention, "rnn": _rnn, "batch_norm": _batch_norm,
    "layer_norm": _layer_norm, "group_norm": _group_norm, "rms_norm": _rms_norm, "pool": _pool,
    "dropout": _dropout, "loss": _loss, "embedding": _integer_inputs, "index": _integer_inputs,
    "sort": _sort, "interpolate": _interpolate, "reduce": _reduce, "binary": _binary,
}  # fmt: skip
_CPU_RULES: dict[str, Callable[[OpNode], Saved]] = {
    "dropout": _dropout_cpu,
    "rms_norm": _rms_norm_cpu,
    "batch_norm": functools.partial(_batch_norm, device="cpu"),
    "layer_norm": functools.partial(_layer_norm, device="cpu"),
    "group_norm": functools.partial(_group_norm, device="cpu"),
    "attention": _attention_cpu,
    "activation": _activation_cpu,
}
