"""Activation checkpointing as a rewrite of a traced graph: blocks keep their inputs alone.

Approximation: every repeated block runs its forward pass once more in the backward pass, and
nothing else changes. Which blocks: those that a user would wrap, modules whose path ends in a
number (`layers.3`, `layer1.0`). Where these nest, the level with the lowest memory is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prenet_gnn.predictor.prediction import Prediction
    from tracing import OpGraph

# A region of fewer calls keeps about as much as it saves.
SMALLEST_BLOCK = 4
# Levels of nested numbered modules that are tried, as in `layers.0.blocks.1`.
LEVELS = 3
_NUMBERED = re.compile(r"[A-Za-z_]*\d+")


def checkpoint_regions(graph: OpGraph) -> tuple[int, ...]:
    """The checkpoint region of every call, 0 for none; the same at every batch size.

    Returns:
        Nothing where no module repeats, where the model checkpoints already, or where it saves no
        memory.
    """
    if graph.mode != "train" or any(node.region for node in graph.nodes):
        return ()
    from tracing.costs.timeline import activation_timeline

    best: tuple[int, ...] = ()
    lowest = activation_timeline(graph).peak.bytes
    tried: set[tuple[int, ...]] = set()
    for level in range(LEVELS):
        regions = _regions([node.module for node in graph.nodes], level)
        if not any(regions) or regions in tried:
            continue
        tried.add(regions)
        peak = activation_timeline(with_regions(graph, regions)).peak.bytes
        if peak < lowest:
            lowest, best = peak, regions
    return best


def with_regions(graph: OpGraph, regions: Sequence[int]) -> OpGraph:
    """The graph with its calls in checkpoint regions."""
    pairs = zip(graph.nodes, regions, strict=True)
    return graph.replace(nodes=tuple(replace(n, region=r) for n, r in pairs), probe=None)


def recompute_s(graph: OpGraph, prediction: Prediction) -> float:
    """Seconds of the forward calls that checkpointing runs again; 0 without checkpointing."""
    from tracing.costs.recompute import recomputed

    again = set(recomputed(graph.nodes))
    if not again:
        return 0.0
    return sum(call.forward_s for call in prediction.calls if call.node in again)


def _regions(modules: list[str], level: int) -> tuple[int, ...]:
    """A number for every call: that of the block it runs in, 0 for none."""
    blocks = [_block(module, level) for module in modules]
    found: list[int] = []
    number = start = 0
    for position in range(len(blocks) + 1):
        if position < len(blocks) and blocks[position] == blocks[start]:
            continue
        # A block that runs twice is two regions, and what interrupts it is none of it.
        length = position - start
        counts = bool(blocks[start]) and length >= SMALLEST_BLOCK
        number += counts
        found += [number if counts else 0] * length
        start = position
    return tuple(found)


@cache
def _block(module: str, level: int) -> str:
    """The path down to the numbered module at a level, or to the deepest; empty for none."""
    names = module.split(".")
    pure = [i for i, name in enumerate(names) if name.isdigit()]
    # `denselayer3` is numbered too, but only counts where no plain number is in the path
    numbered = pure or [i for i, name in enumerate(names) if _NUMBERED.fullmatch(name)]
    if not numbered:
        return ""
    return ".".join(names[: numbered[min(level, len(numbered) - 1)] + 1])
