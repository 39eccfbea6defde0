"""Follows the tensors of one iteration, call by call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prenet_gnn.memory.tensors import TensorBytes
from prenet_gnn.workload.frameworks import is_foreach
from prenet_gnn.workload.optimizers import OPTIMIZERS
from tracing.costs.vocab import CONVOLUTIONS, MATRIX_PRODUCTS, RECURRENT

if TYPE_CHECKING:
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph, OpNode

# PyTorch's caching allocator rounds every tensor up to 512 bytes.
BLOCK_BYTES = 512
# Precisions whose tensors are as large as those of another.
SAME_SIZES = {"tf32": "fp32", "bf16": "fp16", "amp_bf16": "amp_fp16"}
# Calls that cuBLAS computes.
CUBLAS = MATRIX_PRODUCTS | RECURRENT


@dataclass(frozen=True, slots=True)
class MemoryMoment:
    """Tensors that live while one call or the optimizer step runs.

    Attributes:
        phase: `forward`, `backward` or `optimizer`.
        lasting_bytes: Parameters, buffers and optimizer state.
        gradient_bytes: Gradients of parameters.
        activation_bytes: The batch, tensors between calls, and what is saved for the backward pass.
        temporary_bytes: Tensors that live within the call or step.
        moved_bytes: What a convolution reads and writes; 0 for other calls.
    """

    phase: str
    lasting_bytes: int
    gradient_bytes: int
    activation_bytes: int
    temporary_bytes: int
    moved_bytes: int = 0

    @property
    def allocated_bytes(self) -> int:
        """All parts together."""
        parts = (self.lasting_bytes, self.gradient_bytes, self.activation_bytes)
        return sum(parts) + self.temporary_bytes


@dataclass(frozen=True, slots=True)
class Followed:
    """What the memory of one graph under one workload is made of.

    Attributes:
        moments: Every call that may be the peak, in order.
        weights_bytes: Parameters and buffers.
        optimizer_bytes: Optimizer state.
        device: `cuda` or `cpu`.
        has_products: Whether cuBLAS is used.
        is_modern: Whether the framework has the defaults of PyTorch 2.0.
    """

    moments: tuple[MemoryMoment, ...]
    weights_bytes: int
    optimizer_bytes: int
    device: str
    has_products: bool
    is_modern: bool


def memory_key(workload: Workload) -> Workload:
    """The workload without what has no influence on the tensors of an iteration.

    One graph needs to be followed only once for workloads of equal keys.
    """
    return replace(
        workload,
        precision=SAME_SIZES.get(workload.precision, workload.precision),
        channels_last=False,
        compiled=False,
        cudnn_benchmark=True,
        timed="",
    )


def follow(graph: OpGraph, workload: Workload, device: str = "cuda") -> Followed:
    """Follows one iteration after the first, without workspaces.

    Args:
        graph: The model at its batch size.
        workload: How it is run.
        device: `cuda`, or `cpu` for plain tensor bytes without rounding.
    """
    graph = _in_mode(graph, workload.mode)
    sizes = TensorBytes(graph, workload.precision, BLOCK_BYTES if device == "cuda" else 1)
    graph = sizes.with_own_extras(graph)
    state = _State(graph, workload, sizes, device)
    return Followed(
        moments=tuple(_moments(graph, sizes, state, device)),
        weights_bytes=state.weights,
        optimizer_bytes=state.optimizer_bytes,
        device=device,
        has_products=any(node.kind in CUBLAS for node in graph.nodes),
        is_modern=state.is_modern,
    )


def _in_mode(graph: OpGraph, mode: str) -> OpGraph:
    """The graph as the workload runs it."""
    if graph.mode == mode:
        return graph
    if mode == "infer":
        return graph.replace(mode="infer")
    from prenet_gnn.encoding.template import as_training
    from tracing.graph.loss import with_loss

    return with_loss(as_training(graph))


class _State:
    """Sizes that do not change within an iteration."""

    def __init__(self, graph: OpGraph, workload: Workload, sizes: TensorBytes, device: str) -> None:
        unique = [p for p in graph.parameters if p.unique]
        trained = [p.spec for p in unique if p.requires_grad and not p.is_buffer]
        stored = [sizes.stored(spec) for spec in trained]
        self.weights = sum(sizes.stored(p.spec) for p in unique)
        self.trained, self.largest = sum(stored), max(stored, default=0)
        self.is_modern = is_foreach(workload.framework_version)
        self.foreach = self.is_modern and device == "cuda"
        self.optimizer = OPTIMIZERS[workload.optimizer if graph.mode == "train" else "none"]
        self.optimizer_bytes = sum(
            sizes.rounded(size)
            for spec in trained
            for size in self.optimizer.states(spec.shape, sizes.stored_item(spec))
        )
        # Gradients that are zeroed and not freed exist all the time
        self.kept_gradients = 0 if self.is_modern or graph.mode == "infer" else self.trained

    @property
    def step_temporaries(self) -> int:
        """Of all weights at once, or of one at a time."""
        if self.optimizer.takes_groups(self.foreach):
            return self.optimizer.temporaries * self.trained
        return self.optimizer.loop_temporaries * self.largest

    def moment(self, phase: str, activations: int, gradients: int, *rest: int) -> MemoryMoment:
        """A moment with what is there all the time."""
        lasting = self.weights + self.optimizer_bytes
        return MemoryMoment(phase, lasting, gradients, activations, *rest)


def _moments(
    graph: OpGraph, sizes: TensorBytes, state: _State, device: str
) -> Iterator[MemoryMoment]:
    from tracing.costs.timeline import activation_timeline

    timeline = activation_timeline(
        graph, sizes.size, device=device, casts=sizes.cast if sizes.autocast else None
    )
    batch, kept, cached = timeline.input_bytes, state.kept_gradients, 0
    yield state.moment("forward", batch, kept, 0)
    for moment in timeline.moments:
        node = graph.nodes[moment.node]
        temporary, weights = _casts(graph, sizes, node, moment.phase)
        cached += weights
        temporary += cached if moment.phase == "forward" else 0
        if kept and moment.phase == "backward":
            temporary += _own_gradients(node, sizes)
        yield state.moment(
            moment.phase,
            batch + moment.activation_bytes,
            kept or moment.gradient_bytes,
            temporary,
            sizes.moved(node) if node.kind in CONVOLUTIONS else 0,
        )
    if state.optimizer != OPTIMIZERS["none"]:
        yield state.moment("optimizer", batch, state.trained, state.step_temporaries)


def _own_gradients(node: OpNode, sizes: TensorBytes) -> int:
    """New gradients of a call's weights, before they are added to those that exist."""
    inputs = zip(node.sources, node.input_specs, node.needs_grad, strict=True)
    return sum(
        sizes.stored(spec) for source, spec, need in inputs if need and source.kind == "param"
    )


def _casts(graph: OpGraph, sizes: TensorBytes, node: OpNode, phase: str) -> tuple[int, int]:
    """Converted copies that live for one call, and those of weights that live on.

    Autocast keeps converted weights until its region ends. What the backward pass needs is in the
    timeline already. A converted weight's gradient exists in both formats for a moment.
    """
    passing = lasting = 0
    for position in sizes.lowered[node.index].casts if sizes.autocast else ():
        size = sizes.cast(node, position)
        is_weight = node.sources[position].kind == "param"
        if phase == "backward":
            passing += size if is_weight and node.needs_grad[position] else 0
        elif graph.mode == "infer":
            passing += 0 if is_weight else size
            lasting += size if is_weight else 0
    return passing, lasting
