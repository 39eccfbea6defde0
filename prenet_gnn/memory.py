"""Peak memory of one iteration, and whether it fits a device.

Three figures are told apart: `allocated_bytes` counts tensors (what
`torch.cuda.max_memory_allocated` reports), `reserved_bytes` the segments that PyTorch's allocator
holds for them, `device_bytes` adds the CUDA context, as `nvidia-smi` does. Only the last decides
whether an iteration fits. All are those of the second and later iterations, when gradients and
optimizer state exist.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prenet_gnn.precision import FULL_BYTES, SINGLE, Lowered, lower, policy

if TYPE_CHECKING:
    from prenet_gnn.hardware import Hardware
    from prenet_gnn.workload import Workload
    from tracing import OpGraph, OpNode, Source, TensorSpec

MIB = 2**20
# PyTorch's caching allocator rounds every tensor up to 512 bytes.
BLOCK_BYTES = 512
# Segments are asked for in steps of 2 MiB (c10/cuda/CUDACachingAllocator).
SEGMENT_BYTES = 2 * MIB
# cuBLAS workspace of one handle, CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 (aten/src/ATen/cuda).
CUBLAS_BYTES = 8_519_680
# Share of a convolution's tensors that cuDNN takes as workspace, and the most it takes; fitted.
CUDNN_SHARE = 0.5
CUDNN_LIMIT_BYTES = 1024 * MIB
# Reserved over allocated at the peak: blocks that are split or free but too small; fitted.
FRAGMENTATION = 1.04
# CUDA context with the kernels of PyTorch, cuDNN and cuBLAS. Kernels are loaded when first used
# since CUDA 11.7 (PyTorch 2.0 builds), all at once before.
CONTEXT_BYTES = 500 * MIB
EAGER_CONTEXT_BYTES = 1400 * MIB
# What the driver leaves of the memory on the data sheet: 23.70 of 24 GiB (RTX 3090), 39.59 of
# 40 GiB (A100), 15.78 of 16 GiB (V100).
USABLE_SHARE = 0.9875
# Bytes of optimizer state per byte of trained weight.
STATES = {"none": 0, "sgd": 0, "sgd_momentum": 1, "adam": 2, "adamw": 2}
# Gradients become None in zero_grad, and optimizers work on all tensors at once, since this.
SET_TO_NONE_SINCE = (2, 0)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory at the moment of the peak.

    Attributes:
        weights_bytes: Parameters and buffers.
        gradient_bytes: Gradients of parameters that exist at the peak.
        optimizer_bytes: Optimizer state.
        activation_bytes: The batch, tensors between calls, and what is saved for the backward pass.
        temporary_bytes: Tensors that live within one call or one optimizer step.
        workspace_bytes: Scratch memory of cuDNN and cuBLAS.
        allocated_bytes: All of the above; what `torch.cuda.max_memory_allocated` reports.
        reserved_bytes: What the caching allocator holds; `torch.cuda.max_memory_reserved`.
        device_bytes: With the CUDA context, as the driver counts; decides whether it fits.
        phase: When the peak is: `forward`, `backward` or `optimizer`.
    """

    weights_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    temporary_bytes: int
    workspace_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    phase: str

    @property
    def peak_memory_bytes(self) -> int:
        """The allocated peak, the figure that predictions and measurements are compared in."""
        return self.allocated_bytes


@dataclass(frozen=True, slots=True)
class _Peak:
    """One candidate for the peak."""

    phase: str
    activations: int
    gradients: int
    temporaries: int
    workspace: int

    @property
    def total(self) -> int:
        return self.activations + self.gradients + self.temporaries + self.workspace


_Store = dict[int, tuple[Any, dict["tuple[Workload, str]", MemoryEstimate]]]
_known: _Store = {}


def peak_memory(graph: OpGraph, workload: Workload, *, device: str = "cuda") -> MemoryEstimate:
    """Estimates the peak memory of one iteration after the first.

    Args:
        graph: The model at its batch size.
        workload: How it is run.
        device: `cuda`, or `cpu` for plain tensor bytes without rounding, workspaces and context.
    """
    key = id(graph)
    if key not in _known or _known[key][0]() is not graph:
        _known[key] = (weakref.ref(graph, lambda _: _known.pop(key, None)), {})
    estimates = _known[key][1]
    if (workload, device) not in estimates:
        estimates[workload, device] = _estimate(graph, workload, device)
    return estimates[workload, device]


def fits(estimate: MemoryEstimate, hardware: Hardware) -> bool:
    """Whether an iteration fits the memory that the driver leaves to programs."""
    return estimate.device_bytes <= usable_bytes(hardware)


def usable_bytes(hardware: Hardware) -> int:
    """Memory of a device that programs can use."""
    return int(hardware.memory_bytes * USABLE_SHARE)


def _estimate(graph: OpGraph, workload: Workload, device: str) -> MemoryEstimate:
    graph = _in_mode(graph, workload.mode)
    formats = _Formats(graph, workload.precision, BLOCK_BYTES if device == "cuda" else 1)
    state = _State(graph, workload, formats, device)
    peak = max(_peaks(graph, workload, formats, state, device), key=lambda peak: peak.total)
    optimizer = state.trained * STATES[workload.optimizer] if graph.mode == "train" else 0
    allocated = state.weights + optimizer + peak.total
    reserved, context = allocated, 0
    if device == "cuda":
        reserved = int(allocated * FRAGMENTATION)
        reserved += -reserved % SEGMENT_BYTES
        context = CONTEXT_BYTES if state.modern else EAGER_CONTEXT_BYTES
    return MemoryEstimate(
        weights_bytes=state.weights,
        gradient_bytes=peak.gradients,
        optimizer_bytes=optimizer,
        activation_bytes=peak.activations,
        temporary_bytes=peak.temporaries,
        workspace_bytes=peak.workspace,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=reserved + context,
        phase=peak.phase,
    )


def _in_mode(graph: OpGraph, mode: str) -> OpGraph:
    """The graph as the workload runs it."""
    if graph.mode == mode:
        return graph
    if mode == "infer":
        return graph.replace(mode="infer")
    from prenet_gnn.features.template import as_training
    from tracing.loss import with_loss

    return with_loss(as_training(graph))


class _Formats:
    """Bytes of every tensor under a precision."""

    def __init__(self, graph: OpGraph, precision: str, block: int) -> None:
        self.lowered: list[Lowered] = lower(graph.nodes, precision)
        self.single = SINGLE if policy(precision) == "amp" else FULL_BYTES[precision]
        self.autocast = policy(precision) == "amp"
        self._block = block

    def rounded(self, size: int) -> int:
        """Bytes of the block that the allocator gives for some bytes."""
        return size + -size % self._block

    def stored(self, spec: TensorSpec) -> int:
        """Bytes of a weight or input."""
        size = spec.bytes
        if spec.dtype in ("float32", "complex64"):
            size = size * self.single // SINGLE
        return self.rounded(size)

    def size(self, source: Source, spec: TensorSpec) -> int:
        """Bytes of any tensor of the graph."""
        if source.kind == "node":
            return self.rounded(self.lowered[source.node].item_out[source.slot] * spec.numel)
        return self.stored(spec)

    def cast(self, node: OpNode, position: int) -> int:
        """Bytes of the copy that autocast makes of an input; 0 for none."""
        low = self.lowered[node.index]
        if position not in low.casts:
            return 0
        return self.rounded(low.item_in[position] * node.input_specs[position].numel)


class _State:
    """Sizes that do not change within an iteration."""

    def __init__(
        self, graph: OpGraph, workload: Workload, formats: _Formats, device: str
    ) -> None:
        unique = [p for p in graph.parameters if p.unique]
        sizes = [formats.stored(p.spec) for p in unique]
        trained = [
            size
            for p, size in zip(unique, sizes, strict=True)
            if p.requires_grad and not p.is_buffer
        ]
        self.weights, self.trained = sum(sizes), sum(trained)
        self.largest = max(trained, default=0)
        version = workload.framework_version
        self.modern = version is None or version >= SET_TO_NONE_SINCE
        self.foreach = self.modern and device == "cuda"

    def step_temporaries(self, optimizer: str) -> int:
        """Adam's denominator: of all weights at once, or root and quotient of one at a time."""
        if not optimizer.startswith("adam"):
            return 0
        return self.trained if self.foreach else 2 * self.largest


def _peaks(
    graph: OpGraph, workload: Workload, formats: _Formats, state: _State, device: str
) -> list[_Peak]:
    from tracing.memory import activation_timeline

    timeline = activation_timeline(
        graph, formats.size, device=device, casts=formats.cast if formats.autocast else None
    )
    batch = timeline.input_bytes
    workspace = _workspace(graph, formats) if device == "cuda" else lambda node, phase: 0
    lasting = 0 if state.modern or graph.mode == "infer" else state.trained
    cached, peaks = 0, []
    for moment in timeline.moments:
        node = graph.nodes[moment.node]
        temporary, weights = _casts(graph, formats, node, moment.phase)
        cached += weights
        temporary += cached if moment.phase == "forward" else 0
        fresh = moment.gradient_bytes
        if lasting:
            temporary += _own_gradients(node, formats) if moment.phase == "backward" else 0
            fresh = lasting
        scratch = workspace(node, moment.phase)
        peaks.append(
            _Peak(moment.phase, batch + moment.activation_bytes, fresh, temporary, scratch)
        )
    if graph.mode == "train" and workload.optimizer != "none":
        step = state.step_temporaries(workload.optimizer)
        peaks.append(_Peak("optimizer", batch, state.trained, step, 0))
    return peaks or [_Peak("forward", batch, 0, 0, 0)]


def _own_gradients(node: OpNode, formats: _Formats) -> int:
    """New gradients of a call's weights, before they are added to those that exist."""
    inputs = zip(node.sources, node.input_specs, node.needs_grad, strict=True)
    return sum(formats.stored(spec) for source, spec, need in inputs if need and source.kind == "param")


def _casts(graph: OpGraph, formats: _Formats, node: OpNode, phase: str) -> tuple[int, int]:
    """Converted copies that live for one call, and those of weights that live on.

    Autocast keeps converted weights until its region ends. What the backward pass needs is in the
    timeline already. A converted weight's gradient exists in both formats for a moment.
    """
    passing = lasting = 0
    for position in formats.lowered[node.index].casts if formats.autocast else ():
        size = formats.cast(node, position)
        is_weight = node.sources[position].kind == "param"
        if phase == "backward":
            passing += size if is_weight and node.needs_grad[position] else 0
        elif graph.mode == "infer":
            passing += 0 if is_weight else size
            lasting += size if is_weight else 0
    return passing, lasting


def _workspace(graph: OpGraph, formats: _Formats) -> Callable[[OpNode, str], int]:
    """Scratch memory of a call: cuBLAS holds its own for good, cuDNN per convolution."""
    products = ("linear", "matmul", "attention")
    cublas = CUBLAS_BYTES if any(node.kind in products for node in graph.nodes) else 0

    def scratch(node: OpNode, phase: str) -> int:
        if node.kind not in ("conv", "conv_transpose"):
            return cublas
        low = formats.lowered[node.index]
        moved = sum(
            item * spec.numel
            for item, spec in zip(
                (*low.item_in, *low.item_out), (*node.input_specs, *node.output_specs), strict=True
            )
        )
        return cublas + min(int(CUDNN_SHARE * moved), CUDNN_LIMIT_BYTES)

    return scratch
