"""Which memory traffic a compiler saves by fusing neighbours into one kernel.

TorchInductor joins pointwise calls, and reductions with what surrounds them, into one kernel (Ansel
et al. 2024, doi:10.1145/3620665.3640366); products, and what gathers or sorts, run on their own.
A tensor between two calls of one kernel is neither written nor read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prenet_gnn.encoding.precision import Lowered
    from tracing import OpNode

# Kinds that can be computed in the kernel that made their input.
CONSUMERS = frozenset({
    "activation", "binary", "unary", "dropout", "batch_norm", "layer_norm", "group_norm",
    "rms_norm", "softmax", "reduce", "copy", "loss",
})  # fmt: skip
# Kinds whose output can stay in the kernel; reading the neighbourhood of a position is one way.
PRODUCERS = CONSUMERS | {"pool", "interpolate", "create", "random", "embedding", "index"}

# A sum over positions is complete only when its kernel is: what reads it runs in a later one.
LAST = frozenset({"reduce"})

Fusion = tuple[tuple[bool, ...], bool]


def stages(nodes: Sequence[OpNode], producers: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    """In how many steps, one kernel after the other, every call can run at the earliest.

    Args:
        nodes: Calls in the order they run.
        producers: For every call and each of its inputs the calls it comes from; only earlier ones.
    """
    found: list[int] = []
    for node, inputs in zip(nodes, producers, strict=True):
        starts = node.kind not in CONSUMERS
        stage = 0
        for place in {place for sources in inputs for place in sources}:
            joins = not starts and nodes[place].kind in PRODUCERS - LAST
            stage = max(stage, found[place] + (0 if joins else 1))
        found.append(stage)
    return found


def fusions(nodes: Sequence[OpNode], producers: Sequence[Sequence[Sequence[int]]]) -> list[Fusion]:
    """For every call which inputs come from the same kernel, and whether its output stays there.

    A skip connection waits for a product beside it, so it is written and read again: only calls of
    one stage share a kernel.
    """
    stage = stages(nodes, producers)

    def joined(place: int, index: int) -> bool:
        return (
            nodes[index].kind in CONSUMERS
            and nodes[place].kind in PRODUCERS - LAST
            and stage[place] == stage[index]
        )

    users: list[list[int]] = [[] for _ in nodes]
    for index, inputs in enumerate(producers):
        for place in {place for sources in inputs for place in sources}:
            users[place].append(index)
    return [
        (
            tuple(bool(sources) and all(joined(p, index) for p in sources) for sources in inputs),
            bool(users[index]) and all(joined(index, user) for user in users[index]),
        )
        for index, inputs in enumerate(producers)
    ]


def _saved_casts(node: OpNode, low: Lowered, reads: tuple[bool, ...]) -> float:
    """Traffic of conversions between number formats that need no kernel of their own.

    A call that is fused with what feeds it converts what it has read; what feeds a product writes
    it in the product's format. Weights are converted as without a compiler.
    """
    saved = 0
    for position, before in zip(low.casts, low.from_items, strict=True):
        if node.sources[position].kind != "node":
            continue
        after = low.item_in[position]
        # reading the converted tensor is saved too, and counted by whoever finds it free
        own = node.kind in CONSUMERS and not reads[position]
        moved = 2 * after if own else before + after
        saved += node.input_specs[position].numel * moved
    return float(saved)


def fused_traffic(
    node: OpNode, low: Lowered, fusion: Fusion, forward_bytes: float, copied_bytes: float = 0.0
) -> tuple[float, float]:
    """Whether the call reads within a kernel, and the share of its forward traffic that is saved.

    Args:
        node: The call at its batch size.
        low: Its number formats.
        fusion: From `fusions`.
        forward_bytes: All of its forward traffic.
        copied_bytes: What it copies before it computes, which the kernel before it writes as it
            should lie.
    """
    reads, stays = fusion
    saved = sum(
        spec.numel * item
        for spec, item, free in zip(node.input_specs, low.item_in, reads, strict=False)
        if free
    )
    if stays:
        saved += sum(s.numel * i for s, i in zip(node.output_specs, low.item_out, strict=True))
    total = saved + copied_bytes + _saved_casts(node, low, reads)
    return float(any(reads)), min(total / max(forward_bytes, 1.0), 1.0)
