"""Turns an exported program into operator nodes."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tracing.specs import ITEM_BYTES, OpNode, ParamSpec, Source, TensorSpec
from tracing.vocab import MAY_COPY, kind_of

Value = list[tuple[Source, TensorSpec]]


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape and dtype of a (fake) tensor; an unbacked size counts as its upper hint or 1."""
    shape = []
    for size in tensor.shape:
        try:
            shape.append(int(size))
        except Exception:
            shape.append(1)
    return TensorSpec(tuple(shape), str(tensor.dtype).removeprefix("torch."))


@dataclass
class _Context:
    """What a region of the program passes down to its calls."""

    grad: bool = True
    autocast: str = ""
    module: str = ""


@dataclass
class Builder:
    """Collects nodes while walking a program and the sub-programs it calls."""

    parameters: dict[str, ParamSpec]
    prefix: str = ""
    nodes: list[OpNode] = field(default_factory=list)
    needs: list[bool] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    attentions: str = "flash"

    def source_needs_grad(self, source: Source) -> bool:
        """Whether a gradient flows to this tensor."""
        if source.kind == "node":
            return self.needs[source.node]
        if source.kind == "param":
            return self.parameters[source.name].requires_grad
        return source.kind == "input" and source.slot == 1

    def walk(self, module: fx.GraphModule, arguments: list[Any], context: _Context) -> list[Any]:
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
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, node)
            elif node.op == "call_function":
                env[node] = self._call(module, node, env, context)
            elif node.op == "output":
                return _flat(fx.node.map_arg(node.args[0], lambda n: env[n]))
        return []

    def _attribute(self, module: fx.GraphModule, node: fx.Node) -> Any:
        value: Any = module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            return (Source("const", name=str(node.target)), spec_of(value))
        return value

    def _call(self, module: fx.GraphModule, node: fx.Node, env: dict[fx.Node, Any], ctx: _Context) -> Any:
        args = fx.node.map_arg(node.args, lambda n: env[n])
        kwargs = fx.node.map_arg(node.kwargs, lambda n: env[n])
        if node.target is operator.getitem:
            container = args[0]
            return container[args[1]] if isinstance(container, list | tuple | dict) else container
        name = _target_name(node.target)
        if "wrap_with_set_grad_enabled" in name:
            inner = _Context(ctx.grad and bool(args[0]), ctx.autocast, ctx.module)
            return self.walk(args[1], list(args[2:]), inner)
        if "wrap_with_autocast" in name:
            dtype = str(args[1]).removeprefix("torch.") if args[2] else "off"
            return self.walk(args[4], list(args[5:]), _Context(ctx.grad, dtype, ctx.module))
        bodies = [a for a in args if isinstance(a, fx.GraphModule)]
        if bodies and len(bodies) == 1:
            operands = [a for a in _flat(args[1:]) if not isinstance(a, fx.GraphModule)]
            count = len([n for n in bodies[0].graph.nodes if n.op == "placeholder"])
            return self.walk(bodies[0], operands[:count], ctx)
        if bodies:
            self.unknown[name] = self.unknown.get(name, 0) + 1
        return self._record(node, name, args, kwargs, ctx)

    def _record(self, node: fx.Node, name: str, args: Any, kwargs: Any, ctx: _Context) -> Any:
        tensors, attrs = _split(node.target, args, kwargs)
        value = node.meta.get("val", node.meta.get("example_value"))
        outputs = [v for v in _flat(value) if isinstance(v, torch.Tensor)]
        if not outputs and not tensors:
            return value
        kind, known = kind_of(name, node.target)
        if not known:
            self.unknown[name] = self.unknown.get(name, 0) + 1
        op = name.split(".")[1].rstrip("_") if "." in name else name
        if op in MAY_COPY and outputs and kind == "view" and _copies(node):
            attrs["copies"] = True
        if op == "to" and kind == "copy" and outputs and tensors:
            if not _to_copies(node, tensors[0][1], outputs[0]):
                kind = "view"
        if op in ("contiguous",) and not _copies(node):
            kind = "view"
        if kind == "attention":
            attrs["backend"] = self.attentions
        sources, specs = tuple(t[0] for t in tensors), tuple(t[1] for t in tensors)
        index = len(self.nodes)
        out_specs = tuple(spec_of(v) for v in outputs)
        grads = tuple(
            ctx.grad and spec.is_floating and self.source_needs_grad(source)
            for source, spec in zip(sources, specs, strict=True)
        )
        flows = any(grads) and any(s.is_floating for s in out_specs) and op not in _NO_GRADIENT
        self.nodes.append(
            OpNode(
                index=index,
                name=node.name,
                target=name,
                kind=kind,
                module=self._module(node, ctx),
                sources=sources,
                input_specs=specs,
                output_specs=out_specs,
                attrs=attrs,
                needs_grad=grads if flows else (False,) * len(grads),
                differentiable=flows,
                region=_region(node),
                autocast=ctx.autocast,
            )
        )
        self.needs.append(flows)
        results = [(Source("node", index, i), spec) for i, spec in enumerate(out_specs)]
        if isinstance(value, torch.Tensor):
            return results[0]
        return _like(value, iter(results))

    def _module(self, node: fx.Node, ctx: _Context) -> str:
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


# Calls through which no gradient flows although their inputs have one.
_NO_GRADIENT = frozenset(
    "detach zeros_like ones_like full_like empty_like rand_like randn_like argmax argmin sign floor "
    "ceil round trunc bernoulli new_zeros new_ones new_full new_empty eq ne lt le gt ge isnan "
    "isinf isfinite alias_no_grad multinomial nonzero item".split()
)


def _region(node: fx.Node) -> int:
    return int((node.meta.get("custom") or {}).get("prenet_region", 0))


def _target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    name = getattr(target, "name", None)
    text = name() if callable(name) else getattr(target, "__name__", str(target))
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{text}.default"
    return f"{getattr(target, '__module__', 'python').split('.')[0]}.{text}.default"


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Source):
        return [value]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flat(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _flat(item)]
    return [value]


def _like(value: Any, results: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return next(results)
    if isinstance(value, list | tuple):
        return [_like(item, results) for item in value]
    return value


def _is_tensor(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Source)


def _split(target: Any, args: Any, kwargs: Any) -> tuple[Value, dict[str, Any]]:
    """Separates the tensors of a call from its other arguments, which get their schema names."""
    schema = getattr(target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else []
    tensors: Value = []
    attrs: dict[str, Any] = {}
    named = [(names[i] if i < len(names) else f"arg{i}", a) for i, a in enumerate(args)]
    for name, value in [*named, *kwargs.items()]:
        if _is_tensor(value):
            tensors.append(value)
        elif isinstance(value, list | tuple) and any(_is_tensor(v) for v in value):
            tensors.extend(v for v in value if _is_tensor(v))
        elif value is not None and not name.startswith("cudnn_enable"):
            plain = _plain(value)
            if plain is not None:
                attrs[name] = plain
    return tensors, attrs


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value if not isinstance(value, float) or math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return None


def _copies(node: fx.Node) -> bool:
    """Whether a reshape or contiguous call has to copy, judged by the strides of its input."""
    source = next((a for a in node.args if isinstance(a, fx.Node)), None)
    value, out = source.meta.get("val") if source is not None else None, node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(out, torch.Tensor):
        return False
    try:
        if value.is_contiguous():
            return False
        if value.shape == out.shape:
            return value.stride() != out.stride()
        strides = tuple(int(s) for s in value.stride())
        shape = tuple(int(s) for s in value.shape)
        meta = torch.empty_strided(shape, strides, device="meta")
        meta.view(tuple(int(s) for s in out.shape))
    except RuntimeError:
        return True
    return False


def _to_copies(node: fx.Node, source: TensorSpec, out: torch.Tensor) -> bool:
    return source.dtype != str(out.dtype).removeprefix("torch.") or bool(node.kwargs.get("copy"))


def mark_used(nodes: Iterable[OpNode], roots: Iterable[int]) -> list[OpNode]:
    """Takes the gradient from calls that no differentiated output depends on."""
    listed = list(nodes)
    used = set(roots)
    for node in reversed(listed):
        if node.index in used:
            used.update(s.node for s in node.sources if s.kind == "node")
            continue
        if node.inplace and any(s.node in used for s in node.sources if s.kind == "node"):
            continue
    from dataclasses import replace

    return [
        node
        if node.index in used or not node.differentiable
        else replace(node, differentiable=False, needs_grad=(False,) * len(node.needs_grad))
        for node in listed
    ]


def check_dtypes(specs: Iterable[TensorSpec]) -> set[str]:
    """Number formats whose size is not known."""
    return {spec.dtype for spec in specs} - set(ITEM_BYTES)
