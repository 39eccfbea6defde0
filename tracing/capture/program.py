"""Walks an exported program and hands its calls to a builder."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx

from tracing.capture.arguments import copies, flat, like, spec_of, split_arguments, target_name
from tracing.capture.bodies import run_bodies
from tracing.capture.builder import Builder, OpCall, op_name, settled_kind
from tracing.capture.model_call import INNER
from tracing.costs.vocab import CONVERSIONS, kind_of
from tracing.graph.specs import Operand, Source


@dataclass
class Region:
    """What a region of a program passes down to its calls: gradient mode and autocast."""

    grad: bool = True
    autocast: str = ""


def walk(
    builder: Builder, module: fx.GraphModule, arguments: list[Any], region: Region
) -> list[Any]:
    """Adds the calls of one (sub-)program.

    Args:
        builder: Receives the calls.
        module: The program.
        arguments: One value for every placeholder, in order.
        region: Gradient mode and autocast of the surrounding region.

    Returns:
        The values the program returns, in the form this function takes them.
    """
    env: dict[fx.Node, Any] = {}
    given = iter(arguments)
    region = replace(region)  # calls change it for what follows
    for node in module.graph.nodes:
        if node.op == "placeholder":
            env[node] = next(given)
        elif node.op == "get_attr":
            env[node] = _attribute(module, str(node.target))
        elif node.op == "call_function":
            args: Any = fx.node.map_arg(node.args, lambda n: env[n])
            kwargs: Any = fx.node.map_arg(node.kwargs, lambda n: env[n])
            env[node] = _run(builder, node, args, kwargs, region)
        elif node.op == "output":
            return flat(fx.node.map_arg(node.args[0], lambda n: env[n]))
    return []


def _attribute(module: fx.GraphModule, target: str) -> Any:
    value: Any = module
    for part in target.split("."):
        value = getattr(value, part)
    if isinstance(value, torch.Tensor):
        return (Source("const", name=target), spec_of(value))
    return value


def _run(builder: Builder, node: fx.Node, args: Any, kwargs: Any, region: Region) -> Any:
    """What a call returns; most are added, some only steer what follows."""
    if node.target is operator.getitem:
        container = args[0]
        return container[args[1]] if isinstance(container, list | tuple | dict) else container
    name = target_name(node.target)
    if _switches(name, args, region):
        return None
    if "wrap_with_set_grad_enabled" in name:
        inner = replace(region, grad=region.grad and bool(args[0]))
        return walk(builder, args[1], list(args[2:]), inner)
    if "wrap_with_autocast" in name:
        inner = replace(region, autocast=_autocast(args[1], args[2]))
        return walk(builder, args[4], list(args[5:]), inner)
    results = run_bodies(builder, name, args, partial(walk, region=region))
    if results is not None:
        return results
    return _add(builder, node, args, kwargs, region)


def _add(builder: Builder, node: fx.Node, args: Any, kwargs: Any, region: Region) -> Any:
    tensors, attrs = split_arguments(node.target, args, kwargs)
    value = node.meta.get("val", node.meta.get("example_value"))
    outputs = [v for v in flat(value) if isinstance(v, torch.Tensor)]
    if not outputs and not tensors:
        return value
    name = target_name(node.target)
    kind, op = kind_of(name, node.target)[0], op_name(name)
    if outputs and tensors:
        kind = settled_kind(kind, op, attrs, lambda: _moves(node, op, tensors, outputs))
    custom = node.meta.get("custom") or {}
    results = builder.add(
        OpCall(
            name,
            node.target,
            kind,
            tensors,
            attrs,
            outputs,
            region.grad,
            module=_module(node, custom),
            name=node.name,
            region=int(custom.get("prenet_region", 0)),
            autocast=region.autocast,
        )
    )
    if isinstance(value, torch.Tensor):
        return results[0]
    return like(value, iter(results)) if value is not None else None


def _moves(
    node: fx.Node, op: str, tensors: Sequence[Operand], outputs: Sequence[torch.Tensor]
) -> bool:
    """Whether a view had to copy, or a conversion to convert."""
    if op not in CONVERSIONS:
        return copies(node)
    same = tensors[0][1].dtype == str(outputs[0].dtype).removeprefix("torch.")
    return not same or bool(node.kwargs.get("copy"))


def _module(node: fx.Node, custom: dict[str, Any]) -> str:
    """Path of the user's module that a call runs in."""
    path = ""
    stack = node.meta.get("nn_module_stack")
    if stack:
        last = list(stack.values())[-1]
        path = str(last[0] if isinstance(last, tuple) else last)
    path = str(custom.get("prenet_module", path))
    if path == INNER or path.startswith(INNER + "."):
        path = path[len(INNER) + 1 :]
    return path.replace("slice(None, None, None)", ":")


def _autocast(dtype: Any, enabled: Any) -> str:
    return str(dtype).removeprefix("torch.") if enabled else "off"


def _switches(name: str, args: Any, region: Region) -> bool:
    """Applies a call that turns gradients or autocast on or off for what follows."""
    if name.endswith("_set_grad_enabled.default") and "wrap_with" not in name:
        region.grad = bool(args[0])
    elif "_enter_autocast" in name:
        dtype = args[1] if len(args) > 1 and args[1] is not None else torch.bfloat16
        region.autocast = _autocast(dtype, args[2] if len(args) > 2 else True)
    elif "_exit_autocast" in name:
        region.autocast = ""
    else:
        return False
    return True
