"""Calls that run other programs: branches, loops and maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from tracing.capture.arguments import flat
from tracing.capture.builder import Builder
from tracing.costs.node import node_cost

# Operators that repeat a program as often as values or a dimension say.
_LOOPS = ("while_loop", "scan", "map_impl", "associative_scan")
# Adds the calls of a program, given its arguments, and gives what it returns.
Walk = Callable[[Builder, fx.GraphModule, list[Any]], list[Any]]


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
        best = _costliest(builder, bodies, operands, walk)
        return walk(builder, best, operands[: _takes(best)])
    if operator in _LOOPS:
        builder.notes.add(f"torch {operator.removesuffix('_impl')} counts as one step")
    elif len(bodies) > 1:
        return None
    body = bodies[-1] if operator == "while_loop" else bodies[0]
    if operator == "scan" and isinstance(args[0], fx.GraphModule):
        operands = [a for a in flat(list(args[1:])) if not isinstance(a, bool)]
    return walk(builder, body, operands[: _takes(body)])


def _takes(body: fx.GraphModule) -> int:
    return len([node for node in body.graph.nodes if node.op == "placeholder"])


def _costliest(
    builder: Builder, bodies: Sequence[fx.GraphModule], operands: list[Any], walk: Walk
) -> fx.GraphModule:
    costs = []
    for body in bodies:
        trial = builder.fork()
        walk(trial, body, operands[: _takes(body)])
        made = [node_cost(node) for node in trial.flow.nodes[len(builder.flow.nodes) :]]
        costs.append((sum(c.forward_flops for c in made), sum(c.forward_bytes for c in made)))
    return bodies[costs.index(max(costs))]
