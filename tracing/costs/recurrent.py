"""Layers and directions of a recurrent operator, and where a gradient flows through them."""

from __future__ import annotations

from dataclasses import dataclass

from tracing.graph.specs import OpNode


@dataclass(frozen=True, slots=True)
class Stack:
    """One direction of one layer.

    Attributes:
        layer: Number of the layer, from 0.
        matrices: Positions of its weights among the inputs: of the input, of the state, and that of
            a projection where there is one.
        input_flows: Whether the gradient of what it reads is needed.
        state_flows: Whether the gradient of its states is needed.
    """

    layer: int
    matrices: tuple[int, ...]
    input_flows: bool
    state_flows: bool


def is_cell(node: OpNode) -> bool:
    """Whether the call is one time step."""
    return node.op.endswith("_cell")


def stacks(node: OpNode) -> list[Stack]:
    """All directions of all layers, in the order of their weights."""
    weights = [
        i
        for i, (source, spec) in enumerate(zip(node.sources, node.input_specs, strict=True))
        if i > 0 and source.kind in ("param", "buffer", "const") and len(spec.shape) in (1, 2)
    ]
    matrices = [i for i in weights if len(node.input_specs[i].shape) == 2]
    directions = 1 + int(bool(node.attrs.get("bidirectional")))
    layers = 1 if is_cell(node) else int(node.attrs.get("num_layers", 1) or 1)
    each = max(len(matrices) // (layers * directions), 2)
    starts = [*matrices[::each], len(node.input_specs)]
    needs = node.needs_grad or (False,) * len(node.input_specs)
    states = any(needs[1 : starts[0]])
    below = needs[0] if needs else False
    found: list[Stack] = []
    for number, start in enumerate(starts[:-1]):
        layer = number // directions
        if number and number % directions == 0:
            below = any(s.state_flows for s in found[-directions:])
        trained = any(needs[i] for i in weights if start <= i < starts[number + 1])
        place = number * each
        flows = below or states or trained
        found.append(Stack(layer, tuple(matrices[place : place + each]), below, flows))
    return found
