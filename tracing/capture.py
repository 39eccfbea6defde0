"""Traces a model into a graph of operators, without running it."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tracing._export import Builder, _Context, check_dtypes, mark_used, spec_of
from tracing.errors import TraceError, UnsupportedOpError
from tracing.graph import TRACER_VERSION, OpGraph
from tracing.loss import add_loss
from tracing.patches import patched
from tracing.specs import ParamSpec, Source, TensorSpec

log = logging.getLogger("tracing")

INNER = "model"


def unwrap(model: nn.Module) -> nn.Module:
    """The user's module inside `torch.compile` and data-parallel wrappers."""
    while True:
        if isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


class _Flat(nn.Module):
    """Calls a model with flattened tensors and returns only tensors."""

    def __init__(self, model: nn.Module, leaves: list[Any], tree: pytree.TreeSpec) -> None:
        """Keeps what the flat tensors have to be put back into."""
        super().__init__()
        self.model = model
        self.training = model.training
        self._leaves, self._tree = leaves, tree

    def forward(self, *tensors: torch.Tensor) -> dict[str, Any]:
        """Rebuilds the call, runs it and picks the tensors out of whatever comes back."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(v, torch.Tensor) else v for v in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        out = self.model(*args, **kwargs)
        loss = _find_loss(out)
        if loss is not None and self.training:
            return {"loss": loss}
        return {"out": _tensors(out)}


def _find_loss(out: Any) -> torch.Tensor | None:
    loss = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.dim() == 0:
        return loss
    if isinstance(out, Mapping) and out:
        # detection models return one scalar loss per part
        parts = list(out.values())
        if all(isinstance(v, torch.Tensor) and v.dim() == 0 for v in parts):
            return torch.stack(parts).sum()
    return None


def _tensors(value: Any, seen: set[int] | None = None) -> list[torch.Tensor]:
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        return [value]
    if value is None or isinstance(value, str | int | float | bool | torch.dtype | torch.device):
        return []
    if id(value) in seen or isinstance(value, nn.Module):
        return []
    seen.add(id(value))
    if isinstance(value, Mapping):
        return [t for item in value.values() for t in _tensors(item, seen)]
    if isinstance(value, list | tuple | set):
        return [t for item in value for t in _tensors(item, seen)]
    fields = getattr(value, "__dict__", None)
    if fields is None:
        slots = getattr(value, "__slots__", ())
        fields = {name: getattr(value, name, None) for name in slots}
    return [t for item in fields.values() for t in _tensors(item, seen)]


def _parameters(model: nn.Module) -> tuple[ParamSpec, ...]:
    seen: dict[int, str] = {}
    specs = []
    for is_buffer, pairs in (
        (False, model.named_parameters(remove_duplicate=False)),
        (True, model.named_buffers(remove_duplicate=False)),
    ):
        for name, tensor in pairs:
            if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
                raise TraceError(
                    f"parameter '{name}' has no shape yet (a lazy module): run the model once with "
                    "real inputs before tracing it"
                )
            unique = id(tensor) not in seen
            seen.setdefault(id(tensor), name)
            specs.append(ParamSpec(name, spec_of(tensor), tensor.requires_grad, is_buffer, unique))
    return tuple(specs)


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


def _check_inputs(args: Any, kwargs: Any) -> tuple[list[Any], pytree.TreeSpec]:
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, tuple | list):
        raise TraceError(
            f"args must be a tuple of the model's inputs, not {type(args).__name__}; write (x,) for one"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TraceError(f"kwargs must be a dict of named inputs, not {type(kwargs).__name__}")
    leaves, tree = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
    return leaves, tree


def batch_size_of(leaves: list[Any]) -> int:
    """The first dimension of the first tensor input; 0 when there is none."""
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            return int(leaf.shape[0])
    return 0


def _resized(leaves: list[Any], old: int, new: int) -> list[Any]:
    def change(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == old:
            return torch.empty(
                (new, *leaf.shape[1:]), dtype=leaf.dtype, device=leaf.device
            ) if leaf.device.type == "meta" else leaf[:1].expand(new, *leaf.shape[1:])
        return leaf

    return [change(leaf) for leaf in leaves]


def _names(tree: pytree.TreeSpec, leaves: list[Any]) -> list[str]:
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(leaves, tree))
    names = []
    for path, leaf in paths:
        if isinstance(leaf, torch.Tensor):
            names.append("".join(str(key) for key in path[1:]).strip("[]'\"") or "input")
    return names


def _explain(error: Exception, model: nn.Module) -> NoReturn:
    frame, trace = None, error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if "/torch/" not in filename and "/tracing/" not in filename:
            frame = trace
        trace = trace.tb_next
    where = ""
    if frame is not None:
        where = f" at {frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"
    text = " ".join(str(error).split())[:300]
    raise TraceError(
        f"cannot trace {type(model).__name__}{where}: {type(error).__name__}: {text}"
    ) from error


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
    are. Where the model's Python depends on values, a run on the CPU is recorded instead.

    Args:
        model: A module on any device, `meta` included. Wrappers of `torch.compile` and data
            parallelism are looked through.
        args: Positional inputs.
        kwargs: Named inputs.
        loss: `auto` adds the loss a training step needs where the model returns none (cross-entropy
            over classes, else a mean); `none` leaves it out.
        unknown_ops: What an operator without cost formula does: `warn`, `error` or `ignore`.
        attention_backend: `flash` or `math`, the kernel that fused attention is billed as.
        backend: `export` (torch.export) or `record` (one run on meta tensors under a dispatch mode:
            the same operators in a third of the time, for models that run on `meta`).
        name: Name of the model, kept in the graph.

    Returns:
        The graph at the batch size of the inputs.

    Raises:
        TraceError: The model or its inputs cannot be traced; the text names file and line.
        UnsupportedOpError: An operator has no formula and `unknown_ops` is `error`.
    """
    if not isinstance(model, nn.Module):
        raise TraceError(f"trace takes a torch.nn.Module, not {type(model).__name__}")
    for given, allowed, what in (
        (loss, ("auto", "none"), "loss"),
        (unknown_ops, ("warn", "error", "ignore"), "unknown_ops"),
        (attention_backend, ("flash", "math"), "attention_backend"),
        (backend, ("export", "record"), "backend"),
    ):
        if given not in allowed:
            raise TraceError(f"{what} must be one of {', '.join(allowed)}, not {given!r}")
    model = unwrap(model)
    leaves, tree = _check_inputs(args, kwargs)
    options = _Options(backend, loss, unknown_ops, attention_backend, name)
    graph = _trace(model, leaves, tree, options)
    batch = graph.batch_size

    def retrace(size: int) -> OpGraph:
        quiet = replace(options, unknown_ops="ignore")
        return _trace(model, _resized(leaves, batch, size), tree, quiet)

    return graph.replace(retrace=retrace)


@dataclass(frozen=True)
class _Options:
    """How to trace; see `trace`."""

    backend: str
    loss: str
    unknown_ops: str
    attention_backend: str
    name: str


def _trace(
    model: nn.Module, leaves: list[Any], tree: pytree.TreeSpec, options: _Options
) -> OpGraph:
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    parameters = _parameters(model)
    bad = check_dtypes([p.spec for p in parameters] + [spec_of(t) for t in tensors])
    if bad:
        raise TraceError(f"tensors of type {', '.join(sorted(bad))} have no known size")
    names = _names(tree, leaves)
    builder = Builder(
        {p.name: p for p in parameters}, prefix=INNER, attentions=options.attention_backend
    )
    capture = _recorded if options.backend == "record" else _exported
    with _untouched(model), patched():
        results, own_loss = capture(_Flat(model, leaves, tree), builder, tensors, names)
    training = model.training
    if training and options.loss == "auto" and not own_loss:
        results = add_loss(builder, results)
    nodes = mark_used(builder.nodes, [s.node for s, _ in results if s.kind == "node"])
    graph = OpGraph(
        nodes=tuple(nodes),
        parameters=parameters,
        inputs={n: spec_of(t) for n, t in zip(names, tensors, strict=True)},
        outputs=tuple(s for s, _ in results),
        batch_size=batch_size_of(leaves),
        mode="train" if training else "infer",
        meta={
            "model": options.name or type(model).__name__,
            "torch": torch.__version__,
            "tracer": TRACER_VERSION,
            "attention": options.attention_backend,
            "unknown_ops": builder.unknown,
        },
    )
    _report_unknown(graph, options.unknown_ops)
    return graph


def _exported(
    flat: _Flat, builder: Builder, tensors: list[torch.Tensor], names: list[str]
) -> tuple[list[tuple[Source, TensorSpec]], bool]:
    """Fills the builder from `torch.export`; returns the results and whether they are a loss."""
    try:
        program = torch.export.export(flat, tuple(tensors), strict=False)
    except Exception as error:
        from tracing.fallback import record_run

        program = record_run(flat, tensors, error, _explain)
    values = _placeholders(program, tuple(builder.parameters.values()), tensors, names)
    with torch.no_grad():
        outputs = builder.walk(program.graph_module, values, _Context())
    results = [v for v in outputs if isinstance(v, tuple) and isinstance(v[0], Source)]
    return results[_mutations(program) :], _has_own_loss(program)


def _recorded(
    flat: _Flat, builder: Builder, tensors: list[torch.Tensor], names: list[str]
) -> tuple[list[tuple[Source, TensorSpec]], bool]:
    """Fills the builder from a run on meta tensors."""
    from tracing._record import on_meta, record

    twins = [t.to("meta") if t.device.type != "meta" else t for t in tensors]
    try:
        with on_meta(flat.model):
            return record(flat, builder, twins, names)
    except Exception as error:
        _explain(error, flat.model)


def _mutations(program: Any) -> int:
    kinds = getattr(program.graph_signature, "output_specs", ())
    return sum(1 for spec in kinds if "MUTATION" in str(spec.kind))


def _has_own_loss(program: Any) -> bool:
    names = getattr(program, "out_names", None)
    if names is not None:
        return list(names) == ["loss"]
    return "'loss'" in str(program.call_spec.out_spec)


def _placeholders(
    program: Any, parameters: tuple[ParamSpec, ...], tensors: list[torch.Tensor], names: list[str]
) -> list[Any]:
    known = {p.name: p for p in parameters}
    given = iter(zip(names, tensors, strict=True))
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        target = (spec.target or "").removeprefix(INNER + ".")
        if kind == "USER_INPUT":
            name, tensor = next(given)
            flag = int(tensor.requires_grad)
            values.append((Source("input", slot=flag, name=name), spec_of(tensor)))
        elif target in known:
            parameter = known[target]
            values.append(
                (Source("buffer" if parameter.is_buffer else "param", name=target), parameter.spec)
            )
        else:
            constant = program.constants.get(spec.target)
            if isinstance(constant, torch.Tensor):
                values.append((Source("const", name=target), spec_of(constant)))
            else:
                values.append(constant)
    return values


def _report_unknown(graph: OpGraph, policy: str) -> None:
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
