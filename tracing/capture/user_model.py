"""The user's model: what it is, and how it is looked at without being changed."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, is_lazy

from tracing.capture.arguments import spec_of
from tracing.capture.explain import explain
from tracing.capture.model_call import ModelCall
from tracing.errors import TraceError
from tracing.graph.specs import ParamSpec


def unwrap(model: nn.Module) -> nn.Module:
    """The user's module inside `torch.compile` and data-parallel wrappers."""
    while True:
        if isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


def with_shapes(model: nn.Module, call: ModelCall) -> nn.Module:
    """A model whose layers know their shapes: of one with lazy layers a copy that has run once."""
    if not any(is_lazy(t) for t in (*model.parameters(), *model.buffers())):
        return model
    # an uninitialized buffer does not know how to copy itself
    uninitialized: Any = UninitializedBuffer  # its stub lacks the arguments
    memo = {
        id(buffer): uninitialized(device=buffer.device, dtype=buffer.dtype)
        for buffer in model.buffers()
        if isinstance(buffer, UninitializedBuffer)
    }
    model = copy.deepcopy(model, memo)
    args, kwargs = call.shell.fill(call.tensors)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(*args, **kwargs)
    except Exception as error:
        explain(error, model, hint="its lazy layers have no shapes yet")
    return model


def parameters_of(model: nn.Module) -> tuple[ParamSpec, ...]:
    """Parameters and buffers, in this order."""
    seen: set[int] = set()
    specs = []
    for is_buffer, pairs in (
        (False, model.named_parameters(remove_duplicate=False)),
        (True, model.named_buffers(remove_duplicate=False)),
    ):
        for name, tensor in pairs:
            if is_lazy(tensor):
                raise TraceError(
                    f"parameter '{name}' has no shape yet (a lazy module that this call does not "
                    "reach): run the model once with real inputs before tracing it"
                )
            unique = id(tensor) not in seen
            seen.add(id(tensor))
            spec, logical = spec_of(tensor), _logical_numel(tensor)
            specs.append(ParamSpec(name, spec, tensor.requires_grad, is_buffer, unique, logical))
    return tuple(specs)


def _logical_numel(tensor: torch.Tensor) -> int:
    """Elements of a weight that is stored packed (4-bit), 0 where storage says it all."""
    shape = getattr(getattr(tensor, "quant_state", None), "shape", None)
    return int(torch.Size(shape).numel()) if shape is not None else 0


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Leaves random state, training flags and gradients of the model as they were."""
    state = torch.random.get_rng_state()
    flags = {module: module.training for module in model.modules()}
    grads = {p: p.grad for p in model.parameters()}
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.random.set_rng_state(state)
        for module, flag in flags.items():
            module.training = flag
        for parameter, grad in grads.items():
            parameter.grad = grad


@contextlib.contextmanager
def state_on_meta(model: nn.Module) -> Iterator[None]:
    """Puts meta tensors in place of a model's parameters and buffers while the block runs.

    Ties between parameters are kept, and so are the identities of everything afterwards.
    """
    if all(t.device.type == "meta" for t in (*model.parameters(), *model.buffers())):
        yield
        return
    changed: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    twins: dict[int, torch.Tensor] = {}
    for module in model.modules():
        stores: list[dict[str, Any]] = [module._parameters, module._buffers]
        for store in stores:
            for name, tensor in store.items():
                if tensor is None or tensor.device.type == "meta":
                    continue
                if id(tensor) not in twins:
                    twin = torch.empty_like(tensor, device="meta")
                    if isinstance(tensor, nn.Parameter):
                        twin = nn.Parameter(twin, requires_grad=tensor.requires_grad)
                    twins[id(tensor)] = twin
                changed.append((store, name, tensor))
    try:
        for store, name, kept in changed:
            store[name] = twins[id(kept)]
        yield
    finally:
        for store, name, kept in changed:
            store[name] = kept


def on_meta(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without values."""
    if tensor.device.type == "meta":
        return tensor
    return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)
