"""Which memory traffic a compiler saves by fusing neighbours into one kernel.

TorchInductor joins pointwise calls, and reductions with what surrounds them, into one kernel (Ansel
et al. 2024, doi:10.1145/3620665.3640366); products, and what gathers or sorts, run on their own.
A tensor between two calls of one kernel is neither written nor read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prenet_gnn.precision import Lowered
    from tracing import OpNode

# Kinds that can be computed in the kernel that made their input.
CONSUMERS = frozenset({
    "activation", "binary", "unary", "dropout", "batch_norm", "layer_norm", "group_norm",
    "rms_norm", "softmax", "reduce", "copy", "loss",
})  # fmt: skip
# Kinds whose output can stay in the kernel; reading the neighbourhood of a position is one way.
PRODUCERS = CONSUMERS | {"pool", "interpolate", "create", "random", "embedding", "index"}

Fusion = tuple[tuple[bool, ...], bool]


def fusion_of(
    node: OpNode, producers: Sequence[Sequence[OpNode]], users: Sequence[OpNode]
) -> Fusion:
    """Which inputs come from the same kernel, and whether the output stays in it.

    Args:
        node: The call.
        producers: For every input the working calls it comes from, through views.
        users: Working calls that read the output.
    """
    reads = tuple(
        node.kind in CONSUMERS and bool(found) and all(p.kind in PRODUCERS for p in found)
        for found in producers
    )
    stays = node.kind in PRODUCERS and bool(users) and all(u.kind in CONSUMERS for u in users)
    return reads, stays


def fused_traffic(
    node: OpNode, low: Lowered, fusion: Fusion, forward_bytes: float
) -> tuple[float, float]:
    """Whether the call reads within a kernel, and the share of its forward traffic that is saved.

    Args:
        node: The call at its batch size.
        low: Its number formats.
        fusion: From `fusion_of`.
        forward_bytes: All of its forward traffic.
    """
    reads, stays = fusion
    saved = sum(
        spec.numel * item
        for spec, item, free in zip(node.input_specs, low.item_in, reads, strict=False)
        if free
    )
    if stays:
        saved += sum(s.numel * i for s, i in zip(node.output_specs, low.item_out, strict=True))
    return float(any(reads)), min(float(saved) / max(forward_bytes, 1.0), 1.0)
