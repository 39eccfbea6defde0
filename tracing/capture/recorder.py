"""Records a model's operators from one run on meta (or real) tensors.

A dispatch mode in front of autograd sees the same composite operators that `torch.export` keeps, at
a fraction of its cost; on real tensors it serves where the model's Python depends on values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch._dispatch.python import enable_pre_dispatch, enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.utils._python_dispatch import TorchDispatchMode

from tracing.capture.arguments import flat, spec_of, split_arguments
from tracing.capture.builder import Builder, OpCall, Returned, op_name, settled_kind
from tracing.capture.checkpoints import ACTIVE
from tracing.capture.inlining import eager, inlined
from tracing.capture.model_call import Flat
from tracing.costs.vocab import kind_of
from tracing.graph.specs import Operand, Source

_mode: Any = TorchDispatchMode


class HiddenError(RuntimeError):
    """Something ran that the recorder did not see."""


class Recorder(ProxyTorchDispatchMode):  # type: ignore[no-untyped-call]
    """Appends every operator call to a builder.

    Only subclasses of the proxy mode may sit in front of autograd (`torch._ops`), so this is one,
    with none of its behaviour.
    """

    def __init__(self, builder: Builder, model: nn.Module, strict: bool) -> None:
        """Starts with no tensor known; see `record` for `strict`."""
        _mode.__init__(self, torch._C.DispatchKey.PreDispatch)
        self.enter_stack: list[Any] = []
        self.builder, self.strict = builder, strict
        self.known: dict[int, Operand] = {}
        self.alive: list[torch.Tensor] = []
        self.stack: list[str] = [""]
        self.paths = {id(m): path for path, m in model.named_modules()}

    def add(self, tensor: torch.Tensor, source: Source) -> None:
        """Declares where a tensor comes from."""
        self.known.setdefault(id(tensor), (source, spec_of(tensor)))
        self.alive.append(tensor)

    def __enter__(self) -> Recorder:
        """Puts the mode in front of autograd."""
        _mode.__enter__(self)
        return self

    def __exit__(self, *error: Any) -> None:
        """Takes the mode away again."""
        _mode.__exit__(self, *error)

    def find(self, tensor: torch.Tensor) -> Operand:
        """The source of a tensor; one that nobody declared is a constant."""
        found = self.known.get(id(tensor))
        if found is None:
            source = Source("const", name=f"constant_{len(self.alive)}")
            self.add(tensor, self._base(tensor) or source)
            found = self.known[id(tensor)]
        return found

    def _base(self, tensor: torch.Tensor) -> Source | None:
        """What a tensor looks at that autograd made out of sight, such as a saved transpose."""
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise HiddenError("a function transform (torch.func) hides operators from the recorder")
        if tensor.grad_fn is None:
            return None
        for other in self.alive:
            if _same_storage(tensor, other):
                return self.known[id(other)][0]
        if self.strict:
            raise HiddenError(f"an operator with {tensor.grad_fn} was not seen by the recorder")
        return None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs one operator and records it."""
        kwargs = kwargs or {}
        # shapes in C++, where PyTorch has them: what runs inside an operator is not looked at
        with torch._C._DisablePythonDispatcher():
            out = func(*args, **kwargs)
        tensors = [v for v in flat(out) if isinstance(v, torch.Tensor)]
        inputs = [v for v in flat([*args, *kwargs.values()]) if isinstance(v, torch.Tensor)]
        if tensors or inputs:
            self._append(func, args, kwargs, inputs, tensors)
        return out

    def _append(
        self,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
    ) -> None:
        name = str(func)
        found, attrs = split_arguments(func, _known(args, self), _known(kwargs, self))
        kind = kind_of(name, func)[0]
        if inputs and outputs:
            kind = settled_kind(
                kind, op_name(name), attrs, lambda: not _same_storage(inputs[0], outputs[0])
            )
        results = self.builder.add(
            OpCall(
                name,
                func,
                kind,
                found,
                attrs,
                outputs,
                torch.is_grad_enabled(),
                module=self.stack[-1],
                region=ACTIVE[-1] if ACTIVE else 0,
                autocast=_autocast(inputs, outputs),
            )
        )
        for tensor, known in zip(outputs, results, strict=True):
            self.known[id(tensor)] = known
            self.alive.append(tensor)

    @contextlib.contextmanager
    def paths_of(self) -> Iterator[None]:
        """Follows which module is running, through hooks that touch no module."""

        def enter(module: nn.Module, _: Any) -> None:
            self.stack.append(self.paths.get(id(module), self.stack[-1]))

        def leave(_module: nn.Module, _args: Any, _out: Any) -> None:
            self.stack.pop()

        hooks = torch.nn.modules.module
        handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _known(value: Any, recorder: Recorder) -> Any:
    """Arguments with every tensor replaced by its source."""
    if isinstance(value, torch.Tensor):
        return recorder.find(value)
    if isinstance(value, list | tuple):
        return [_known(item, recorder) for item in value]
    if isinstance(value, dict):
        return {name: _known(item, recorder) for name, item in value.items()}
    return value


def _same_storage(first: torch.Tensor, second: torch.Tensor) -> bool:
    try:
        return bool(first.untyped_storage()._cdata == second.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return False


def _autocast(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> str:
    device = (inputs or outputs)[0].device.type
    device = "cpu" if device == "meta" else device
    if not torch.is_autocast_enabled(device):
        return ""
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def record(
    model: Flat, builder: Builder, inputs: Mapping[str, torch.Tensor], *, strict: bool = True
) -> Returned:
    """Runs a model once and fills the builder.

    Args:
        model: The model in its wrapper: takes tensors, returns a dict of tensors.
        builder: Receives the calls.
        inputs: Inputs by name, on the device of the parameters.
        strict: Refuse a run in which differentiable operators stay unseen.
    """
    recorder = Recorder(builder, model.model, strict)
    for name, parameter in model.model.named_parameters(remove_duplicate=False):
        recorder.add(parameter, Source("param", name=name))
    for name, buffer in model.model.named_buffers(remove_duplicate=False):
        recorder.add(buffer, Source("buffer", name=name))
    for name, tensor in inputs.items():
        recorder.add(tensor, Source("input", slot=int(tensor.requires_grad), name=name))
    seen = contextlib.ExitStack()
    for context in (recorder.paths_of(), eager(), inlined()):
        seen.enter_context(context)
    with seen, enable_pre_dispatch(), enable_python_dispatcher(), recorder:
        out = model(*inputs.values())
    results = [v for v in flat(out) if isinstance(v, torch.Tensor)]
    return Returned([recorder.find(tensor) for tensor in results], list(out) == ["loss"])
