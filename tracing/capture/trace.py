"""Traces a model into a graph of operators, without running it."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, is_lazy

from tracing.capture.builder import Builder
from tracing.capture.calls import Call, Flat, batch_size_of, unwrap
from tracing.capture.checks import sound
from tracing.capture.explain import explain, quiet
from tracing.capture.export import INNER, export, walk
from tracing.capture.fallback import has_values, record_run
from tracing.capture.loss import add_loss
from tracing.capture.packed import padded
from tracing.capture.patches import patched
from tracing.capture.record import Known, on_meta, record
from tracing.capture.values import spec_of
from tracing.errors import TraceError, UnsupportedOpError
from tracing.graph.aliases import mark_used, settle_copies, unknown_dtypes
from tracing.graph.op_graph import TRACER_VERSION, OpGraph
from tracing.graph.specs import ParamSpec

log = logging.getLogger("tracing")

_CHOICES = {
    "loss": ("auto", "none"),
    "unknown_ops": ("warn", "error", "ignore"),
    "attention_backend": ("flash", "math"),
    "backend": ("export", "record"),
}


@dataclass(frozen=True)
class _Options:
    """How to trace; see `trace`."""

    backend: str
    loss: str
    unknown_ops: str
    attention_backend: str
    name: str

    def check(self) -> None:
        """Refuses a choice that does not exist."""
        for what, allowed in _CHOICES.items():
            given = getattr(self, what)
            if given not in allowed:
                raise TraceError(f"{what} must be one of {', '.join(allowed)}, not {given!r}")


def trace(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: str = "auto",
    unknown_ops: str = "warn",
    attention_backend: str = "flash",
    backend: str = "export",
    name: str = "",
) -> OpGraph:
    """Traces a model into a graph of operators without running it.

    `torch.export` (non-strict) records the forward pass on fake tensors: nothing is computed, no
    memory is needed, and the model, its gradients, its mode and the random state stay as they
    are. Where the model's Python depends on values, a run on the CPU is recorded instead. Sizes
    that depend on values (`nonzero`, boolean masks, packed sequences) count as large as they can
    get; a warning says so.

    Args:
        model: A module on any device, `meta` included. Wrappers of `torch.compile` and data
            parallelism are looked through.
        args: Positional inputs.
        kwargs: Named inputs.
        loss: `auto` adds the loss a training step needs where the model returns none (cross-entropy
            over classes, else a mean); `none` leaves it out.
        unknown_ops: What an operator without cost formula does: `warn`, `error` or `ignore`.
        attention_backend: `flash` or `math`, the kernel that fused attention is billed as. Causal
            attention is billed as the full square, like `torch.utils.flop_counter` does.
        backend: `export` (torch.export) or `record` (one run on meta tensors under a dispatch
            mode: the same operators in a third of the time, for models that run on `meta`).
        name: Name of the model, kept in the graph.

    Returns:
        The graph at the batch size of the inputs.

    Raises:
        TraceError: The model or its inputs cannot be traced; the text names file and line.
        UnsupportedOpError: An operator has no formula and `unknown_ops` is `error`.
    """
    if not isinstance(model, nn.Module):
        raise TraceError(f"trace takes a torch.nn.Module, not {type(model).__name__}")
    options = _Options(backend, loss, unknown_ops, attention_backend, name)
    options.check()
    model = unwrap(model)
    call = Call(args, kwargs)
    if any(is_lazy(t) for t in (*model.parameters(), *model.buffers())):
        model = _with_shapes(model, call)
    graph = _trace(model, call, call.tensors, options)
    _report(graph, unknown_ops)

    def retrace(size: int) -> OpGraph:
        return _trace(model, call, call.resized(size), options)

    return graph.replace(retrace=retrace)


def _trace(model: nn.Module, call: Call, tensors: list[torch.Tensor], options: _Options) -> OpGraph:
    parameters = _parameters(model)
    bad = unknown_dtypes([p.spec for p in parameters] + [spec_of(t) for t in tensors])
    if bad:
        raise TraceError(f"tensors of type {', '.join(sorted(bad))} have no known size")
    facts: dict[str, Any] = {}
    builder = Builder(
        {p.name: p for p in parameters}, prefix=INNER, attentions=options.attention_backend
    )
    capture = _recorded if options.backend == "record" else _exported
    with (
        _untouched(model),
        quiet(),
        patched(lambda text: builder.notes.add(text)),
        padded(lambda: facts.update(packed=True)),
    ):
        flat = Flat(model, call.template)
        results, own_loss = capture(flat, builder, tensors, call.names, facts)
    if model.training and options.loss == "auto" and not own_loss:
        results = add_loss(builder, results)
    nodes = mark_used(builder.nodes, [s.node for s, _ in results if s.kind == "node"])
    return OpGraph(
        nodes=settle_copies(nodes),
        parameters=parameters,
        inputs={n: spec_of(t) for n, t in zip(call.names, tensors, strict=True)},
        outputs=tuple(s for s, _ in results),
        batch_size=batch_size_of(tensors),
        mode="train" if model.training else "infer",
        meta=_meta(model, builder, options, facts),
    )


def _meta(
    model: nn.Module, builder: Builder, options: _Options, facts: dict[str, Any]
) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "model": options.name or type(model).__name__,
        "torch": torch.__version__,
        "tracer": TRACER_VERSION,
        "attention": options.attention_backend,
        "unknown_ops": builder.unknown,
    }
    if facts.get("recorded"):
        meta["recorded_run"] = True
    bounds = [*(["packed sequences"] if facts.get("packed") else [])]
    bounds += ["sizes that depend on values"] if builder.open_sizes else []
    if bounds:
        meta["upper_bounds"] = bounds
    if builder.notes:
        meta["approximated"] = sorted(builder.notes)
    return meta


def _exported(
    flat: Flat,
    builder: Builder,
    tensors: list[torch.Tensor],
    names: list[str],
    facts: dict[str, Any],
) -> tuple[list[Known], bool]:
    """Fills the builder from `torch.export`, or from a real run where values decide what runs."""
    try:
        program = sound(lambda: export(flat, tensors), once=has_values(flat, tensors))
    except TraceError:
        raise
    except Exception as error:
        facts["recorded"] = True
        return record_run(flat, builder, tensors, names, error)
    return walk(program, builder, tensors, names)


def _recorded(
    flat: Flat,
    builder: Builder,
    tensors: list[torch.Tensor],
    names: list[str],
    facts: dict[str, Any],
) -> tuple[list[Known], bool]:
    """Fills the builder from a run on meta tensors."""
    twins = [_on_meta(t) for t in tensors]

    def run() -> tuple[list[Known], bool]:
        builder.clear()
        return record(flat, builder, twins, names)

    try:
        with on_meta(flat.model):
            return sound(run)
    except Exception:
        # code that asks a meta tensor for its value: the exporter knows ways around some of that
        builder.clear()
        return _exported(flat, builder, tensors, names, facts)


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "meta":
        return tensor
    return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)


def _with_shapes(model: nn.Module, call: Call) -> nn.Module:
    """A copy of a model with lazy layers, run once so that they know their shapes."""
    # an uninitialized buffer does not know how to copy itself
    uninitialized: Any = UninitializedBuffer  # its stub lacks the arguments
    memo = {
        id(buffer): uninitialized(device=buffer.device, dtype=buffer.dtype)
        for buffer in model.buffers()
        if isinstance(buffer, UninitializedBuffer)
    }
    model = copy.deepcopy(model, memo)
    args, kwargs = call.template.fill(call.tensors)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(*args, **kwargs)
    except Exception as error:
        explain(error, model, hint="its lazy layers have no shapes yet")
    return model


def _parameters(model: nn.Module) -> tuple[ParamSpec, ...]:
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
def _untouched(model: nn.Module) -> Iterator[None]:
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


def _report(graph: OpGraph, policy: str) -> None:
    """Says what is not exact about a graph."""
    bounds = graph.meta.get("upper_bounds")
    if bounds:
        log.warning("counted as an upper bound: %s", ", ".join(bounds))
    for note in graph.meta.get("approximated", ()):
        log.warning("approximated: %s", note)
    if not graph.unknown_ops or policy == "ignore":
        return
    name = next(iter(graph.unknown_ops))
    first = next((node.module for node in graph.nodes if node.target == name), "")
    if policy == "error":
        raise UnsupportedOpError(
            f"no cost formula for operator '{name}' (first seen in module '{first}'). Add one with "
            "@register_cost, or call trace(..., unknown_ops='warn')."
        )
    listed = ", ".join(f"{op} x{count}" for op, count in graph.unknown_ops.items())
    log.warning("operators without a cost formula, billed for memory traffic only: %s", listed)
