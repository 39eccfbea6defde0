"""Records a real run where a model's Python depends on the values of its tensors."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch import nn
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

MAX_PARAMETER_BYTES = 8 * 2**30


def record_run(
    flat: nn.Module,
    tensors: list[torch.Tensor],
    error: Exception,
    explain: Callable[[Exception, nn.Module], NoReturn],
) -> Any:
    """Runs a copy of the model once on the CPU and records its operators.

    Only where inputs and parameters are real (not on `meta`); otherwise, and where the run fails
    as well, the first error is explained.

    Returns:
        An object with the parts of an `ExportedProgram` that the tracer reads.
    """
    state = [*flat.parameters(), *flat.buffers(), *tensors]
    size = sum(t.numel() * t.element_size() for t in state)
    if any(t.device.type != "cpu" or type(t).__name__ == "FakeTensor" for t in state):
        explain(error, flat.model)  # type: ignore[arg-type]
    if size > MAX_PARAMETER_BYTES:
        explain(error, flat.model)  # type: ignore[arg-type]
    try:
        return _record(copy.deepcopy(flat), tensors)
    except Exception:
        explain(error, flat.model)  # type: ignore[arg-type]


@contextlib.contextmanager
def _paths(model: nn.Module) -> Iterator[None]:
    handles = []
    stack: list[Any] = []

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            context = traceback.annotate({"prenet_module": path})
            context.__enter__()
            stack.append(context)

        return hook

    def leave(*_: Any) -> None:
        stack.pop().__exit__(None, None, None)

    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(path)))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _record(flat: nn.Module, tensors: list[torch.Tensor]) -> Any:
    names = [n for n, _ in flat.named_parameters()]
    buffers = [n for n, _ in flat.named_buffers()]
    weights = [p.detach().clone() for p in flat.parameters()]
    states = [b.detach().clone() for b in flat.buffers()]
    out_names: list[str] = []

    def run(weights: list[torch.Tensor], states: list[torch.Tensor], *inputs: torch.Tensor) -> Any:
        values = dict(zip(names, weights, strict=True)) | dict(zip(buffers, states, strict=True))
        out = torch.func.functional_call(flat, values, inputs, tie_weights=True)
        out_names.extend(out)
        return pytree.tree_leaves(out)

    with _paths(flat):
        module = make_fx(run, tracing_mode="real", pre_dispatch=True)(weights, states, *tensors)
    kinds = ["PARAMETER"] * len(names) + ["BUFFER"] * len(buffers) + ["USER_INPUT"] * len(tensors)
    targets = [*names, *buffers, *[None] * len(tensors)]
    specs = [
        SimpleNamespace(kind=SimpleNamespace(name=kind), target=target)
        for kind, target in zip(kinds, targets, strict=True)
    ]
    return SimpleNamespace(
        graph_module=module,
        graph_signature=SimpleNamespace(input_specs=specs, output_specs=()),
        constants={},
        out_names=out_names,
    )
