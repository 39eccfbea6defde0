"""Turns an exported program into operator nodes."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from tracing.capture.bodies import Hidden, run_bodies
from tracing.capture.values import (
    Value,
    copies,
    flat,
    is_open,
    like,
    spec_of,
    split_arguments,
    target_name,
)
from tracing.costs.formulas import has_formula
from tracing.costs.vocab import CONVERSIONS, MAY_COPY, kind_of, words
from tracing.graph.aliases import base_of
from tracing.graph.specs import OpNode, ParamSpec, Source, TensorSpec

# Calls through which no gradient flows although their inputs have one.
NO_GRADIENT = words(
    "detach zeros_like ones_like full_like empty_like rand_like randn_like argmax argmin sign "
    "floor ceil round trunc bernoulli new_zeros new_ones new_full new_empty eq ne lt le gt ge "
    "isnan isinf isfinite alias_no_grad multinomial nonzero item"
)


@dataclass
class Context:
    """What a region of the program passes down to its calls."""

    grad: bool = True
    autocast: str = ""
    module: str = ""


@dataclass(frozen=True)
class Recorded:
    """Names of one call and the region it runs in."""

    target: str
    name: str
    module: str
    region: int
    autocast: str


# What a builder collects; the rest of it are settings.
_RECORDED = words("nodes needs unknown open_sizes bases overwritten notes hidden")


@dataclass
class Builder:
    """Collects nodes while walking a program and the sub-programs it calls."""

    parameters: dict[str, ParamSpec]
    prefix: str = ""
    nodes: list[OpNode] = field(default_factory=list)
    needs: list[bool] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    attentions: str = "flash"
    open_sizes: int = 0
    bases: list[int] = field(default_factory=list)
    overwritten: set[int] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)
    hidden: Hidden = field(default_factory=Hidden)

    def clear(self) -> None:
        """Forgets everything recorded so far."""
        self.restore(Builder({}))

    def state(self) -> Builder:
        """A copy of what is recorded so far, for `restore`."""
        copies = {name: copy.copy(getattr(self, name)) for name in _RECORDED}
        return replace(self, **copies)

    def restore(self, state: Builder) -> None:
        """Goes back to what was recorded then."""
        for name in _RECORDED:
            setattr(self, name, getattr(state, name))

    def source_needs_grad(self, source: Source) -> bool:
        """Whether a gradient flows to this tensor."""
        if source.kind == "node":
            return self.needs[source.node] or self.bases[source.node] in self.overwritten
        if source.kind == "param":
            return self.parameters[source.name].requires_grad
        return source.kind == "input" and source.slot == 1

    def walk(self, module: fx.GraphModule, arguments: list[Any], context: Context) -> list[Any]:
        """Adds the calls of one (sub-)program.

        Args:
            module: The program.
            arguments: One value for every placeholder, in order.
            context: Gradient mode and autocast of the surrounding region.

        Returns:
            The values the program returns, in the form this method takes them.
        """
        env: dict[fx.Node, Any] = {}
        given = iter(arguments)
        context = replace(context)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, node)
            elif node.op == "call_function":
                env[node] = self._call(node, env, context)
            elif node.op == "output":
                return flat(fx.node.map_arg(node.args[0], lambda n: env[n]))
        return []

    def _attribute(self, module: fx.GraphModule, node: fx.Node) -> Any:
        value: Any = module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            return (Source("const", name=str(node.target)), spec_of(value))
        return value

    def _call(self, node: fx.Node, env: dict[fx.Node, Any], ctx: Context) -> Any:
        args: Any = fx.node.map_arg(node.args, lambda n: env[n])
        kwargs: Any = fx.node.map_arg(node.kwargs, lambda n: env[n])
        if node.target is operator.getitem:
            container = args[0]
            return container[args[1]] if isinstance(container, list | tuple | dict) else container
        name = target_name(node.target)
        if _switches(name, args, ctx):
            return None
        if "wrap_with_set_grad_enabled" in name:
            inner = replace(ctx, grad=ctx.grad and bool(args[0]))
            return self.walk(args[1], list(args[2:]), inner)
        if "wrap_with_autocast" in name:
            inner = replace(ctx, autocast=_autocast(args[1], args[2]))
            return self.walk(args[4], list(args[5:]), inner)
        results = run_bodies(self, name, args, lambda body, given: self.walk(body, given, ctx))
        if results is not None:
            return results
        return self._record(node, name, args, kwargs, ctx)

    def _record(self, node: fx.Node, name: str, args: Any, kwargs: Any, ctx: Context) -> Any:
        tensors, attrs = split_arguments(node.target, args, kwargs)
        value = node.meta.get("val", node.meta.get("example_value"))
        outputs = [v for v in flat(value) if isinstance(v, torch.Tensor)]
        if not outputs and not tensors:
            return value
        call = Recorded(name, node.name, self._module(node, ctx), _region(node), ctx.autocast)
        kind = _kind(kind_of(name, node.target)[0], node, tensors, outputs, attrs)
        results = self.add(call, node.target, kind, tensors, attrs, outputs, ctx.grad)
        if isinstance(value, torch.Tensor):
            return results[0]
        return like(value, iter(results)) if value is not None else None

    def add(
        self,
        call: Recorded,
        operator: Any,
        kind: str,
        tensors: Value,
        attrs: dict[str, Any],
        outputs: Sequence[torch.Tensor],
        grad: bool,
    ) -> Value:
        """Appends one operator call.

        Args:
            call: Names and region.
            operator: What PyTorch calls.
            kind: Kind of work, see `tracing.costs.vocab`.
            tensors: Source and shape of every input.
            attrs: Arguments that are no tensors.
            outputs: What the call returned.
            grad: Whether autograd is on.

        Returns:
            Source and shape of every output.
        """
        if not kind_of(call.target, operator)[1] and not has_formula(call.target):
            self.unknown[call.target] = self.unknown.get(call.target, 0) + 1
        if kind == "attention":
            attrs["backend"] = self.attentions
        self.open_sizes += any(is_open(v) for v in outputs)
        index = len(self.nodes)
        shapes = [spec_of(v) for v in outputs]
        out_specs = tuple(self.hidden.restore(index, call.target, tensors, attrs, shapes))
        needs = tuple(
            grad and spec.is_floating and self.source_needs_grad(source) for source, spec in tensors
        )
        flows = any(needs) and any(s.is_floating for s in out_specs)
        flows = flows and op_name(call.target) not in NO_GRADIENT
        self.append(
            OpNode(
                index=index,
                name=call.name or f"{op_name(call.target)}_{index}",
                target=call.target,
                kind=kind,
                module=call.module,
                sources=tuple(source for source, _ in tensors),
                input_specs=tuple(spec for _, spec in tensors),
                output_specs=out_specs,
                attrs=attrs,
                needs_grad=needs if flows else (False,) * len(needs),
                differentiable=flows,
                region=call.region,
                autocast=call.autocast,
            )
        )
        return [(Source("node", index, i), spec) for i, spec in enumerate(out_specs)]

    def append(self, node: OpNode) -> None:
        """Appends a node and notes which memory it writes."""
        base = base_of(node, self.bases)
        self.nodes.append(node)
        self.needs.append(node.differentiable)
        self.bases.append(base)
        if node.inplace and node.differentiable and base != node.index:
            # what was written into depends on what was written, and so do all its views
            self.overwritten.add(base)

    def _module(self, node: fx.Node, ctx: Context) -> str:
        stack = node.meta.get("nn_module_stack")
        path = ctx.module
        if stack:
            last = list(stack.values())[-1]
            path = str(last[0] if isinstance(last, tuple) else last)
        custom = node.meta.get("custom") or {}
        path = str(custom.get("prenet_module", path))
        if self.prefix and (path == self.prefix or path.startswith(self.prefix + ".")):
            path = path[len(self.prefix) + 1 :]
        return path.replace("slice(None, None, None)", ":")


def op_name(name: str) -> str:
    """Operator name without namespace, overload and in-place underscore."""
    return name.split(".")[1].rstrip("_") if "." in name else name


def _region(node: fx.Node) -> int:
    return int((node.meta.get("custom") or {}).get("prenet_region", 0))


def _autocast(dtype: Any, enabled: Any) -> str:
    return str(dtype).removeprefix("torch.") if enabled else "off"


def _switches(name: str, args: Any, ctx: Context) -> bool:
    """Applies a call that turns gradients or autocast on or off for what follows."""
    if name.endswith("_set_grad_enabled.default") and "wrap_with" not in name:
        ctx.grad = bool(args[0])
    elif "_enter_autocast" in name:
        dtype = args[1] if len(args) > 1 and args[1] is not None else torch.bfloat16
        ctx.autocast = _autocast(dtype, args[2] if len(args) > 2 else True)
    elif "_exit_autocast" in name:
        ctx.autocast = ""
    else:
        return False
    return True


def _kind(
    kind: str,
    node: fx.Node,
    tensors: Value,
    outputs: Sequence[torch.Tensor],
    attrs: dict[str, Any],
) -> str:
    """Views that had to copy are marked; conversions that changed nothing become views."""
    op = op_name(target_name(node.target))
    if op in MAY_COPY and outputs and kind == "view" and copies(node):
        attrs["copies"] = True
    if op in CONVERSIONS and kind == "copy" and outputs and tensors:
        return kind if _to_copies(node, tensors[0][1], outputs[0]) else "view"
    if op == "contiguous" and not copies(node):
        return "view"
    return kind


def _to_copies(node: fx.Node, source: TensorSpec, out: torch.Tensor) -> bool:
    return source.dtype != str(out.dtype).removeprefix("torch.") or bool(node.kwargs.get("copy"))
