"""Whether a compiler turns a network's convolutions to the channels-last layout.

TorchInductor decides it once per graph, before it makes kernels (`GraphLowering.decide_layout_opt`
in PyTorch's torch/_inductor/graph.py, on by default since PyTorch 2.1). So a compiled network runs
the convolution kernels of that layout although its images come in the plain one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracing.costs.node import node_cost

if TYPE_CHECKING:
    from tracing import OpGraph, OpNode

# Time of channels-last over plain convolutions as TorchInductor has it (same function), by kind.
GROUPED, SMALL, NARROWING, OTHER = 1.358, 0.783, 0.725, 0.823
# Convolutions to and from at most this many channels count as small there.
SMALL_CHANNELS = 64
# With more calls than this for every convolution it leaves the layout alone. Its calls are finer
# than ours: about three for one of ours (2.4 to 4.4 over ViT, VOLO, MobileViT, Twins, CoaT, LeViT,
# Mixer, ConvNeXt and MaxViT, decomposed by PyTorch 2.14), and one more for each parameter.
CALLS_PER_CONVOLUTION, FINER = 300, 3


def _weight(node: OpNode) -> tuple[int, ...]:
    return node.tensor(1).shape


def _is_grouped(node: OpNode) -> bool:
    """Whether this is a grouped convolution, but no depthwise one."""
    return int(node.attrs.get("groups", 1) or 1) > 1 and _weight(node)[1] > 1


def _is_small(node: OpNode) -> bool:
    return max(_weight(node)[:2]) <= SMALL_CHANNELS


def _is_narrowing(node: OpNode) -> bool:
    """Whether it has at least twice as many channels in as out, and looks at neighbours."""
    shape = _weight(node)
    return shape[0] * 2 <= shape[1] and math.prod(shape[2:]) > 1


def _gain(node: OpNode) -> float:
    if _is_grouped(node):
        return GROUPED
    if _is_small(node):
        return SMALL
    return NARROWING if _is_narrowing(node) else OTHER


def compiles_to_channels_last(graph: OpGraph) -> bool:
    """Whether TorchInductor runs the convolutions of a graph in the channels-last layout on a GPU.

    Args:
        graph: At any batch size; only the ratio of its convolutions' FLOPs counts.
    """
    found = [n for n in graph.nodes if n.kind == "conv" and len(n.input_specs) > 1]
    calls = FINER * len(graph.nodes) + len(graph.parameters)
    if not found or calls >= CALLS_PER_CONVOLUTION * len(found):
        return False
    if graph.mode == "train":
        if any(_is_grouped(n) or _is_narrowing(n) for n in found):
            return False
        return not all(_is_small(n) for n in found)
    flops = [node_cost(n).forward_flops for n in found]
    weighted = sum(f * _gain(n) for f, n in zip(flops, found, strict=True))
    return weighted <= sum(flops)
