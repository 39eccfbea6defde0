"""Which number format every operator computes and stores in, under a precision.

Autocast's own lists decide (PyTorch documentation, "Automatic Mixed Precision", op reference):
matrix products and convolutions in half precision, listed reductions and norms in float32, all else
in the widest format of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracing.costs.vocab import PRODUCTS

if TYPE_CHECKING:
    from tracing import OpNode, ParamSpec, TensorSpec

HALF = 2
SINGLE = 4
FULL_BYTES = {"fp32": 4, "tf32": 4, "fp64": 8, "fp16": 2, "bf16": 2}
AUTOCAST_SINGLE_KINDS = frozenset({"layer_norm", "group_norm", "softmax", "loss"})
AUTOCAST_SINGLE_OPS = frozenset(
    "acos asin cosh cosine_similarity cdist cumprod cumsum dist erfinv exp expm1 log log10 log1p "
    "log2 norm linalg_vector_norm pow prod reciprocal renorm rsqrt sinh softplus sum tan logsumexp "
    "rms_norm instance_norm".split()
)


def policy(precision: str) -> str:
    """`amp` for autocast, otherwise the precision itself."""
    return "amp" if precision.startswith("amp") else precision


@dataclass(frozen=True, slots=True)
class Lowered:
    """Number formats of one call, as bytes per element.

    Attributes:
        item_in: Of every input as the kernel reads it.
        item_out: Of every output.
        casts: Positions of inputs that are converted first by a kernel of their own.
        from_items: Bytes per element before the conversion, parallel to `casts`.
    """

    item_in: tuple[int, ...]
    item_out: tuple[int, ...]
    casts: tuple[int, ...] = ()
    from_items: tuple[int, ...] = ()


def _item(spec: TensorSpec, single: int) -> int:
    """Bytes per element when float32 is stored in `single` bytes."""
    if not spec.is_floating:
        return spec.bytes // max(spec.numel, 1) if spec.numel else 1
    own = spec.bytes // spec.numel if spec.numel else SINGLE
    return own * single // SINGLE if spec.dtype in ("float32", "complex64") else own


def lower(nodes: Sequence[OpNode], precision: str) -> list[Lowered]:
    """Number formats of every call of a graph traced in float32.

    Tensors that are traced in another floating format keep it, except under a precision that casts
    the whole model.
    """
    if policy(precision) != "amp":
        single = FULL_BYTES[precision]
        return [
            _in_single(node, nodes)
            if node.autocast == "single" and single == HALF
            else Lowered(
                tuple(_item(s, single) for s in node.input_specs),
                tuple(_item(s, single) for s in node.output_specs),
            )
            for node in nodes
        ]
    stored: list[tuple[int, ...]] = []
    result = []
    cast_params: set[str] = set()
    for node in nodes:
        low = _autocast(node, stored, cast_params)
        stored.append(low.item_out)
        result.append(low)
    return result


def _in_single(node: OpNode, nodes: Sequence[OpNode]) -> Lowered:
    """A call in float32 within a network in half precision; its inputs are converted for it."""
    outside = tuple(
        position
        for position, (source, spec) in enumerate(zip(node.sources, node.input_specs, strict=True))
        if spec.is_floating
        and not (source.kind == "node" and nodes[source.node].autocast == "single")
    )
    return Lowered(
        tuple(_item(s, SINGLE) for s in node.input_specs),
        tuple(_item(s, SINGLE) for s in node.output_specs),
        outside,
        tuple(_item(node.input_specs[position], HALF) for position in outside),
    )


def _autocast(node: OpNode, stored: list[tuple[int, ...]], cast_params: set[str]) -> Lowered:
    given = [
        stored[source.node][source.slot] if source.kind == "node" else _item(spec, SINGLE)
        for source, spec in zip(node.sources, node.input_specs, strict=True)
    ]
    floating = [spec.is_floating for spec in node.input_specs]
    if node.autocast == "off":
        wanted = 0
    elif node.autocast == "single":
        wanted = SINGLE
    elif node.kind in PRODUCTS:
        wanted = HALF
    elif node.kind in AUTOCAST_SINGLE_KINDS or node.op in AUTOCAST_SINGLE_OPS:
        wanted = SINGLE
    else:
        wanted = 0
    if not wanted:
        activations = [
            size
            for size, is_float, source in zip(given, floating, node.sources, strict=True)
            if is_float and not (source.kind in ("param", "buffer") and node.kind == "batch_norm")
        ]
        widest = max(activations, default=SINGLE)
        outs = tuple(widest if s.is_floating else _item(s, SINGLE) for s in node.output_specs)
        return Lowered(tuple(given), outs)
    casts, before, items = [], [], []
    for position, (size, is_float) in enumerate(zip(given, floating, strict=True)):
        items.append(wanted if is_float else size)
        if not is_float or size == wanted:
            continue
        source = node.sources[position]
        if source.kind == "param":
            # autocast keeps the converted weight until the region ends
            if wanted != HALF or source.name in cast_params:
                continue
            cast_params.add(source.name)
        casts.append(position)
        before.append(size)
    outs = tuple(wanted if s.is_floating else _item(s, SINGLE) for s in node.output_specs)
    return Lowered(tuple(items), outs, tuple(casts), tuple(before))


def parameter_bytes(parameters: Sequence[ParamSpec], precision: str) -> int:
    """Bytes of all weights as they are stored; autocast keeps them in float32."""
    single = SINGLE if policy(precision) == "amp" else FULL_BYTES[precision]
    return sum(
        p.spec.numel * _item(p.spec, single) for p in parameters if p.unique and not p.is_buffer
    )
