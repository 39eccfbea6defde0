"""What calls do that run other programs or see a tensor without its batch dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from tracing.capture.values import Value, flat
from tracing.costs.node import node_cost
from tracing.graph.specs import TensorSpec

if TYPE_CHECKING:
    from tracing.capture.builder import Builder

# Operators that repeat a program as often as values or a dimension say.
_LOOPS = ("while_loop", "scan", "map_impl", "associative_scan")
Walk = Callable[[fx.GraphModule, list[Any]], list[Any]]


def run_bodies(builder: Builder, name: str, args: Any, walk: Walk) -> list[Any] | None:
    """Adds the calls of the programs that an operator runs; None where it runs none.

    Of two branches the costlier counts, of a loop one step; `builder.notes` says so.
    """
    bodies = [value for value in args if isinstance(value, fx.GraphModule)]
    if not bodies:
        return None
    operands = [a for a in flat(list(args[1:])) if not isinstance(a, fx.GraphModule)]
    operator = name.split(".")[1]
    if operator == "cond":
        builder.notes.add("torch.cond counts as its costlier branch")
        return _costlier(builder, bodies, operands, walk)
    if operator in _LOOPS:
        builder.notes.add(f"torch {operator.removesuffix('_impl')} counts as one step")
    elif len(bodies) > 1:
        return None
    body = bodies[-1] if operator == "while_loop" else bodies[0]
    if operator == "scan" and isinstance(args[0], fx.GraphModule):
        operands = [a for a in flat(list(args[1:])) if not isinstance(a, bool)]
    return walk(body, operands[: _takes(body)])


def _takes(body: fx.GraphModule) -> int:
    return len([node for node in body.graph.nodes if node.op == "placeholder"])


def _costlier(
    builder: Builder, bodies: Sequence[fx.GraphModule], operands: list[Any], walk: Walk
) -> list[Any]:
    costs = []
    for body in bodies:
        kept = builder.state()
        walk(body, operands[: _takes(body)])
        made = [node_cost(node) for node in builder.nodes[len(kept.nodes) :]]
        costs.append((sum(c.forward_flops for c in made), sum(c.forward_bytes for c in made)))
        builder.restore(kept)
    best = bodies[costs.index(max(costs))]
    return walk(best, operands[: _takes(best)])


class Hidden:
    """Batch dimensions that `torch.vmap` hides from the operators inside it."""

    def __init__(self) -> None:
        """Starts outside of any vmap."""
        self.sizes: dict[int, dict[int, int]] = {}

    def restore(
        self, index: int, target: str, tensors: Value, attrs: dict[str, Any], outs: list[TensorSpec]
    ) -> list[TensorSpec]:
        """The outputs of a call with the hidden dimensions in front."""
        levels: dict[int, int] = {}
        for source, _ in tensors:
            levels |= self.sizes.get(source.node, {}) if source.kind == "node" else {}
        if "_add_batch_dim" in target:
            dim, level = int(attrs["arg1"]), int(attrs["arg2"])
            levels[level] = tensors[0][1].shape[len(levels) :][dim]
        elif "_remove_batch_dim" in target:
            levels.pop(int(attrs["arg1"]), None)
        if not levels:
            return outs
        self.sizes[index] = levels
        front = tuple(levels.values())
        return [TensorSpec((*front, *spec.shape), spec.dtype) for spec in outs]
