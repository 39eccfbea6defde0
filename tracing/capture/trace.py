"""Traces a model into a graph of operators, without running it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tracing.capture.arguments import spec_of
from tracing.capture.builder import Builder, Returned
from tracing.capture.checkpoints import numbered_regions
from tracing.capture.explain import quiet
from tracing.capture.export import export, read_program
from tracing.capture.hidden_attention import shown_attention
from tracing.capture.model_call import Flat, ModelCall, Shell, batch_size_of
from tracing.capture.packed_sequences import padded
from tracing.capture.real_run import has_values, record_real_run
from tracing.capture.recorder import record
from tracing.capture.sound_run import sound
from tracing.capture.user_model import (
    on_meta,
    parameters_of,
    state_on_meta,
    untouched,
    unwrap,
    with_shapes,
)
from tracing.errors import TraceError, UnsupportedOpError
from tracing.graph.attention_copies import settle_copies
from tracing.graph.data import TRACER_VERSION
from tracing.graph.gradients import mark_used
from tracing.graph.loss import add_loss
from tracing.graph.specs import unknown_dtypes
from tracing.op_graph import OpGraph

log = logging.getLogger("tracing")

_CHOICES = {
    "loss": ("auto", "none"),
    "unknown_ops": ("warn", "error", "ignore"),
    "attention_backend": ("flash", "math"),
    "backend": ("record", "export"),
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
    backend: str = "record",
    name: str = "",
) -> OpGraph:
    """Traces a model into a graph of operators without running it.

    One forward pass on meta tensors is recorded: nothing is computed, no memory is needed, and the
    model, its gradients, its mode and the random state stay as they are. What cannot run so is
    exported (`torch.export`, non-strict, on fake tensors); where the model's Python depends on
    values, a run on the CPU is recorded instead. Sizes that depend on values (`nonzero`, boolean
    masks, packed sequences) count as large as they can get; a warning says so.

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
        backend: `record` (a run on meta tensors under a dispatch mode, and `torch.export` where
            that fails) or `export` (torch.export at once: the same operators in four times the
            time).
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
    call = ModelCall(args, kwargs)
    model = with_shapes(unwrap(model), call)
    graph = _trace(model, call.shell, call.inputs, options)
    _report(graph, unknown_ops)

    def retrace(size: int) -> OpGraph:
        return _trace(model, call.shell, call.resized(size), options)

    return graph.replace(retrace=retrace)


def _trace(
    model: nn.Module, shell: Shell, inputs: dict[str, torch.Tensor], options: _Options
) -> OpGraph:
    parameters = parameters_of(model)
    specs = {name: spec_of(tensor) for name, tensor in inputs.items()}
    bad = unknown_dtypes([*(p.spec for p in parameters), *specs.values()])
    if bad:
        raise TraceError(f"tensors of type {', '.join(sorted(bad))} have no known size")
    builder = Builder({p.name: p for p in parameters}, options.attention_backend)
    capture = _recorded if options.backend == "record" else _exported
    with (
        untouched(model),
        quiet(),
        numbered_regions(),
        shown_attention(lambda text: builder.notes.add(text)),
        padded(lambda: builder.bounds.add("packed sequences")),
    ):
        returned = capture(Flat(model, shell), builder, inputs)
    outputs = returned.tensors
    if model.training and options.loss == "auto" and not returned.is_loss:
        outputs = add_loss(builder.flow, outputs)
    nodes = mark_used(builder.flow.nodes, [s.node for s, _ in outputs if s.kind == "node"])
    return OpGraph(
        nodes=settle_copies(nodes),
        parameters=parameters,
        inputs=specs,
        outputs=tuple(source for source, _ in outputs),
        batch_size=batch_size_of(inputs.values()),
        mode="train" if model.training else "infer",
        meta={
            "model": options.name or type(model).__name__,
            "torch": torch.__version__,
            "tracer": TRACER_VERSION,
            "attention": options.attention_backend,
            "unknown_ops": builder.unknown,
            **({"recorded_run": True} if returned.real_run else {}),
            **({"upper_bounds": sorted(builder.bounds)} if builder.bounds else {}),
            **({"approximated": sorted(builder.notes)} if builder.notes else {}),
        },
    )


def _exported(flat: Flat, builder: Builder, inputs: dict[str, torch.Tensor]) -> Returned:
    """Fills the builder from `torch.export`, or from a real run where values decide what runs."""
    try:
        program = sound(lambda: export(flat, inputs), once=has_values(flat, inputs))
    except TraceError:
        raise
    except Exception as error:
        return record_real_run(flat, builder, inputs, error)
    return read_program(program, builder, inputs)


def _recorded(flat: Flat, builder: Builder, inputs: dict[str, torch.Tensor]) -> Returned:
    """Fills the builder from a run on meta tensors."""
    state = (*flat.parameters(), *flat.buffers(), *inputs.values())
    if len({tensor.device for tensor in state}) > 1:
        # on meta all would be on one device; the exporter knows which may be mixed
        return _exported(flat, builder, inputs)
    twins = {name: on_meta(tensor) for name, tensor in inputs.items()}

    def run() -> Returned:
        builder.clear()
        return record(flat, builder, twins)

    try:
        with state_on_meta(flat.model):
            return sound(run)
    except Exception:
        # code that asks a meta tensor for its value: the exporter knows ways around some of that
        builder.clear()
        return _exported(flat, builder, inputs)


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
