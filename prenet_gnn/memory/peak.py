"""Peak memory of one iteration, and whether it fits a device.

Three figures are told apart: `allocated_bytes` counts tensors (what
`torch.cuda.max_memory_allocated` reports), `reserved_bytes` the segments that PyTorch's allocator
holds for them, `device_bytes` adds the CUDA context, as `nvidia-smi` does. Only the last decides
whether an iteration fits. All are those of the second and later iterations, when gradients and
optimizer state exist.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prenet_gnn.memory.tensors import Formats
from prenet_gnn.workload.optimizers import OPTIMIZERS, Optimizer, is_foreach

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph, OpNode

MIB = 2**20
# PyTorch's caching allocator rounds every tensor up to 512 bytes.
BLOCK_BYTES = 512
# Segments are asked for in steps of 2 MiB (c10/cuda/CUDACachingAllocator).
SEGMENT_BYTES = 2 * MIB
# cuBLAS workspace of one handle, CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 (aten/src/ATen/cuda).
CUBLAS_BYTES = 8_519_680
# What the driver leaves of the memory on the data sheet: 23.70 of 24 GiB (RTX 3090), 39.59 of
# 40 GiB (A100), 15.78 of 16 GiB (V100).
USABLE_SHARE = 0.9875
# Precisions whose tensors are as large as those of another.
SAME_SIZES = {"tf32": "fp32", "bf16": "fp16", "amp_bf16": "amp_fp16"}
# Calls that cuBLAS computes.
PRODUCTS = ("linear", "matmul", "attention", "rnn")


@dataclass(frozen=True, slots=True)
class Allowance:
    """Memory that no tensor explains; fitted by `experiments/memory_verdict.py`.

    Attributes:
        cudnn_share: Workspace of cuDNN over the bytes that a convolution reads and writes. In NCHW
            it copies half-precision tensors to NHWC, the layout of its tensor-core kernels.
        cudnn_share_channels_last: The same for tensors that are NHWC already.
        cudnn_limit_bytes: The most that cuDNN takes; above it slower algorithms are chosen.
        fragmentation: Reserved over allocated at the peak: blocks that are split, or too small.
        context_bytes: CUDA context with the kernels of PyTorch, cuDNN and cuBLAS, which are loaded
            when first used (CUDA 11.7 and later, so the builds of PyTorch 2.0 and later).
        eager_context_bytes: The same for older builds, which load all kernels at once.
    """

    cudnn_share: float = 0.5
    cudnn_share_channels_last: float = 0.1
    cudnn_limit_bytes: int = 1024 * MIB
    fragmentation: float = 1.03
    context_bytes: int = 500 * MIB
    eager_context_bytes: int = 1400 * MIB


ALLOWANCE = Allowance()


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
class MemoryMoment:
    """Allocated memory while one call or the optimizer step runs."""

    phase: str
    lasting_bytes: int
    gradient_bytes: int
    activation_bytes: int
    temporary_bytes: int

    @property
    def allocated_bytes(self) -> int:
        """All parts together."""
        parts = (self.lasting_bytes, self.gradient_bytes, self.activation_bytes)
        return sum(parts) + self.temporary_bytes


@dataclass(frozen=True, slots=True)
class _Peak:
    """One candidate for the peak; `moved` are the bytes that a convolution reads and writes."""

    phase: str
    activations: int
    gradients: int
    temporaries: int
    moved: int = 0

    @property
    def tensors(self) -> int:
        return self.activations + self.gradients + self.temporaries


@dataclass(frozen=True, slots=True)
class _Followed:
    """What the memory of one graph under one workload is made of."""

    weights: int
    optimizer: int
    cublas: int
    modern: bool
    peaks: tuple[_Peak, ...]


# By the identity of a graph: a reference that tells whether it still lives, and what was found.
_known: dict[int, tuple[weakref.ref[OpGraph], dict[tuple[Workload, str], _Followed]]] = {}


def peak_memory(
    graph: OpGraph,
    workload: Workload,
    *,
    device: str = "cuda",
    allowance: Allowance = ALLOWANCE,
) -> MemoryEstimate:
    """Estimates the peak memory of one iteration after the first.

    Args:
        graph: The model at its batch size.
        workload: How it is run.
        device: `cuda`, or `cpu` for plain tensor bytes without rounding, workspaces and context.
        allowance: Memory that no tensor explains; used on `cuda` alone.
    """
    return _estimate(_followed(graph, workload, device), workload, device, allowance)


def memory_curve(graph: OpGraph, workload: Workload) -> list[MemoryMoment]:
    """Follows the allocated memory of one iteration call by call, without workspaces."""
    found = _followed(graph, workload, "cuda")
    lasting = found.weights + found.optimizer
    return [
        MemoryMoment(p.phase, lasting, p.gradients, p.activations, p.temporaries)
        for p in found.peaks
    ]


def _followed(graph: OpGraph, workload: Workload, device: str) -> _Followed:
    key = id(graph)
    if key not in _known or _known[key][0]() is not graph:
        _known[key] = (weakref.ref(graph, lambda _: _known.pop(key, None)), {})
    found = _known[key][1]
    # What has no influence on the tensors of an iteration must not make it count twice.
    workload = replace(
        workload,
        precision=SAME_SIZES.get(workload.precision, workload.precision),
        channels_last=False,
        compiled=False,
        cudnn_benchmark=True,
        timed="",
    )
    if (workload, device) not in found:
        found[workload, device] = _follow(graph, workload, device)
    return found[workload, device]


def fits(estimate: MemoryEstimate, hardware: Hardware) -> bool:
    """Whether an iteration fits the memory that the driver leaves to programs."""
    return estimate.device_bytes <= usable_bytes(hardware)


def usable_bytes(hardware: Hardware) -> int:
    """Memory of a device that programs can use."""
    return int(hardware.memory_bytes * USABLE_SHARE)


def _estimate(
    found: _Followed, workload: Workload, device: str, allowance: Allowance
) -> MemoryEstimate:
    share = allowance.cudnn_share
    if workload.channels_last:
        share = allowance.cudnn_share_channels_last
    share = share if device == "cuda" else 0.0

    def workspace(peak: _Peak) -> int:
        return found.cublas + min(int(share * peak.moved), allowance.cudnn_limit_bytes)

    peak = max(found.peaks, key=lambda peak: peak.tensors + workspace(peak))
    allocated = found.weights + found.optimizer + peak.tensors + workspace(peak)
    reserved, context = allocated, 0
    if device == "cuda":
        reserved = int(allocated * allowance.fragmentation)
        reserved += -reserved % SEGMENT_BYTES
        context = allowance.context_bytes if found.modern else allowance.eager_context_bytes
    return MemoryEstimate(
        weights_bytes=found.weights,
        gradient_bytes=peak.gradients,
        optimizer_bytes=found.optimizer,
        activation_bytes=peak.activations,
        temporary_bytes=peak.temporaries,
        workspace_bytes=workspace(peak),
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=reserved + context,
        phase=peak.phase,
    )


def _follow(graph: OpGraph, workload: Workload, device: str) -> _Followed:
    graph = _in_mode(graph, workload.mode)
    formats = Formats(graph, workload.precision, BLOCK_BYTES if device == "cuda" else 1)
    graph = formats.with_own_extras(graph)
    state = _State(graph, workload, formats, device)
    products = device == "cuda" and any(node.kind in PRODUCTS for node in graph.nodes)
    optimizer = OPTIMIZERS[workload.optimizer]
    return _Followed(
        weights=state.weights,
        optimizer=state.trained * optimizer.states if graph.mode == "train" else 0,
        cublas=CUBLAS_BYTES if products else 0,
        modern=state.modern,
        peaks=tuple(_peaks(graph, workload, formats, state, device)),
    )


def _in_mode(graph: OpGraph, mode: str) -> OpGraph:
    """The graph as the workload runs it."""
    if graph.mode == mode:
        return graph
    if mode == "infer":
        return graph.replace(mode="infer")
    from prenet_gnn.encoding.template import as_training
    from tracing.capture.loss import with_loss

    return with_loss(as_training(graph))


class _State:
    """Sizes that do not change within an iteration."""

    def __init__(self, graph: OpGraph, workload: Workload, formats: Formats, device: str) -> None:
        unique = [p for p in graph.parameters if p.unique]
        sizes = [formats.stored(p.spec) for p in unique]
        trained = [
            size
            for p, size in zip(unique, sizes, strict=True)
            if p.requires_grad and not p.is_buffer
        ]
        self.weights, self.trained = sum(sizes), sum(trained)
        self.largest = max(trained, default=0)
        self.modern = is_foreach(workload.framework_version)
        self.foreach = self.modern and device == "cuda"

    def step_temporaries(self, optimizer: Optimizer) -> int:
        """Of all weights at once, or of one at a time."""
        if self.foreach:
            return optimizer.temporaries * self.trained
        return optimizer.loop_temporaries * self.largest


def _peaks(
    graph: OpGraph, workload: Workload, formats: Formats, state: _State, device: str
) -> Iterator[_Peak]:
    from tracing.costs.timeline import activation_timeline

    timeline = activation_timeline(
        graph, formats.size, device=device, casts=formats.cast if formats.autocast else None
    )
    batch = timeline.input_bytes
    lasting = 0 if state.modern or graph.mode == "infer" else state.trained
    cached = 0
    yield _Peak("forward", batch, lasting, 0)
    for moment in timeline.moments:
        node = graph.nodes[moment.node]
        temporary, weights = _casts(graph, formats, node, moment.phase)
        cached += weights
        temporary += cached if moment.phase == "forward" else 0
        if lasting and moment.phase == "backward":
            temporary += _own_gradients(node, formats)
        yield _Peak(
            moment.phase,
            batch + moment.activation_bytes,
            lasting or moment.gradient_bytes,
            temporary,
            formats.moved(node) if node.kind in ("conv", "conv_transpose") else 0,
        )
    if graph.mode == "train" and workload.optimizer != "none":
        step = state.step_temporaries(OPTIMIZERS[workload.optimizer])
        yield _Peak("optimizer", batch, state.trained, step)


def _own_gradients(node: OpNode, formats: Formats) -> int:
    """New gradients of a call's weights, before they are added to those that exist."""
    inputs = zip(node.sources, node.input_specs, node.needs_grad, strict=True)
    return sum(
        formats.stored(spec) for source, spec, need in inputs if need and source.kind == "param"
    )


def _casts(graph: OpGraph, formats: Formats, node: OpNode, phase: str) -> tuple[int, int]:
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
