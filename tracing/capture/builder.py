"""Collects operator calls, whichever way they are seen, into the nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tracing.capture.arguments import is_open, spec_of
from tracing.capture.vmap import Hidden
from tracing.costs.formulas import has_formula
from tracing.costs.vocab import CONVERSIONS, MAY_COPY, kind_of, words
from tracing.graph.gradients import GradientFlow
from tracing.graph.specs import Operand, OpNode, ParamSpec, Source

# Calls through which no gradient flows although their inputs have one.
NO_GRADIENT = words(
    "detach zeros_like ones_like full_like empty_like rand_like randn_like argmax argmin sign "
    "floor ceil round trunc bernoulli new_zeros new_ones new_full new_empty eq ne lt le gt ge "
    "isnan isinf isfinite alias_no_grad multinomial nonzero item"
)


@dataclass(frozen=True)
class OpCall:
    """One operator call as it was seen.

    Attributes:
        target: Operator overload, such as `aten.conv2d.default`.
        operator: What PyTorch calls.
        kind: Kind of work, see `tracing.costs.vocab`.
        tensors: Source and shape of every input.
        attrs: Arguments that are no tensors.
        outputs: What the call returned.
        grad: Whether autograd is on.
        module: Path of the module it runs in.
        name: Its name in a program; empty where it has none.
        region: Checkpoint region, 0 for none.
        autocast: Autocast dtype of the region it runs in; empty for none.
    """

    target: str
    operator: Any
    kind: str
    tensors: Sequence[Operand]
    attrs: dict[str, Any]
    outputs: Sequence[torch.Tensor]
    grad: bool
    module: str
    name: str = ""
    region: int = 0
    autocast: str = ""


@dataclass(frozen=True)
class Returned:
    """What a model returned: its tensors, whether they are its own loss, how that was seen."""

    tensors: list[Operand]
    is_loss: bool
    real_run: bool = False


class Builder:
    """Turns calls into nodes.

    Attributes:
        parameters: Parameters and buffers of the model by name.
        flow: The nodes, and which tensors a gradient reaches.
        unknown: Operators without a cost formula and how often each is called.
        notes: What is counted in another way than it runs.
        bounds: What is counted as large as it can get.
    """

    def __init__(self, parameters: dict[str, ParamSpec], attention: str) -> None:
        """Starts empty; `attention` is the kernel that fused attention is billed as."""
        self.parameters, self._attention = parameters, attention
        self.clear()

    def clear(self) -> None:
        """Forgets everything collected so far."""
        self.flow = GradientFlow(self.parameters)
        self.unknown: dict[str, int] = {}
        self.notes: set[str] = set()
        self.bounds: set[str] = set()
        self._hidden = Hidden()

    def fork(self) -> Builder:
        """A builder that goes on from here on its own."""
        twin = Builder(self.parameters, self._attention)
        twin.flow = GradientFlow(self.parameters, self.flow.nodes)
        twin._hidden = self._hidden.copy()
        return twin

    def add(self, call: OpCall) -> list[Operand]:
        """Appends a call and gives source and shape of every output."""
        if not kind_of(call.target, call.operator)[1] and not has_formula(call.target):
            self.unknown[call.target] = self.unknown.get(call.target, 0) + 1
        attrs = call.attrs
        if call.kind == "attention":
            attrs = {**attrs, "backend": self._attention}
        if any(is_open(v) for v in call.outputs):
            self.bounds.add("sizes that depend on values")
        index = len(self.flow.nodes)
        shapes = [spec_of(v) for v in call.outputs]
        outs = self._hidden.restore(index, call.target, call.tensors, attrs, shapes)
        needs = tuple(
            call.grad and spec.is_floating and self.flow.reaches(source)
            for source, spec in call.tensors
        )
        flows = any(needs) and any(spec.is_floating for spec in outs)
        flows = flows and op_name(call.target) not in NO_GRADIENT
        self.flow.append(
            OpNode(
                index=index,
                name=call.name or f"{op_name(call.target)}_{index}",
                target=call.target,
                kind=call.kind,
                module=call.module,
                sources=tuple(source for source, _ in call.tensors),
                input_specs=tuple(spec for _, spec in call.tensors),
                output_specs=tuple(outs),
                attrs=attrs,
                needs_grad=needs if flows else (False,) * len(needs),
                differentiable=flows,
                region=call.region,
                autocast=call.autocast,
            )
        )
        return [(Source("node", index, i), spec) for i, spec in enumerate(outs)]


def op_name(name: str) -> str:
    """Operator name without namespace, overload and in-place underscore."""
    return name.split(".")[1].rstrip("_") if "." in name else name


def settled_kind(kind: str, op: str, attrs: dict[str, Any], moves: Callable[[], bool]) -> str:
    """Marks views that had to copy; conversions that changed nothing become views.

    Args:
        kind: What the operator is listed as.
        op: Its name.
        attrs: Its arguments, which get the mark.
        moves: Whether this call made new memory.
    """
    if kind == "view" and op in MAY_COPY and moves():
        attrs["copies"] = True
    if kind == "copy" and (op in CONVERSIONS or op == "contiguous") and not moves():
        return "view"
    return kind
