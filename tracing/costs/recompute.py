"""Which calls activation checkpointing runs again in the backward pass."""

from __future__ import annotations

from collections.abc import Sequence

from tracing.costs.saved import saved_by
from tracing.graph.specs import OpNode


def recomputed(nodes: Sequence[OpNode]) -> list[int]:
    """Indices of the calls that run twice.

    A reentrant region (negative number) runs again as a whole. A non-reentrant one stops as soon
    as the last tensor that the backward needs is there again, so calls behind it do not rerun
    (`torch.utils.checkpoint`, `set_checkpoint_early_stop`).
    """
    regions: dict[int, list[OpNode]] = {}
    for node in nodes:
        if node.region and (node.differentiable or node.region < 0):
            regions.setdefault(node.region, []).append(node)
    again: list[int] = []
    for number, members in regions.items():
        last = len(members)
        if number > 0:
            last = _early_stop(members)
        again.extend(node.index for node in members[:last])
    return again


def _early_stop(members: list[OpNode]) -> int:
    """How many of the calls must run until everything that is saved exists again."""
    stop = 0
    for position, node in enumerate(members):
        kept = saved_by(node)
        if kept.outputs or kept.extra_bytes:
            stop = position + 1
        elif kept.inputs:
            stop = max(stop, position)
    return stop
