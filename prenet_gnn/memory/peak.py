"""Peak memory of one iteration, and whether it fits a device.

Three figures are told apart: `allocated_bytes` counts tensors (what
`torch.cuda.max_memory_allocated` reports), `reserved_bytes` the segments that PyTorch's allocator
holds for them, `device_bytes` adds the CUDA context, as `nvidia-smi` does. Only the last decides
whether an iteration fits. All are those of the second and later iterations, when gradients and
optimizer state exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prenet_gnn.memory.iteration import Followed, MemoryMoment, follow

if TYPE_CHECKING:
    from prenet_gnn.catalogue.spec import Hardware
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph

MIB = 2**20
# Segments are asked for in steps of 2 MiB (c10/cuda/CUDACachingAllocator).
SEGMENT_BYTES = 2 * MIB
# cuBLAS workspace of one handle, CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 (aten/src/ATen/cuda).
CUBLAS_BYTES = 8_519_680
# What the driver leaves of the memory on the data sheet: 23.70 of 24 GiB (RTX 3090), 39.59 of
# 40 GiB (A100), 15.78 of 16 GiB (V100).
USABLE_SHARE = 0.9875


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
    return estimate(follow(graph, workload, device), workload, allowance)


def estimate(
    followed: Followed, workload: Workload, allowance: Allowance = ALLOWANCE
) -> MemoryEstimate:
    """Adds to an iteration's tensors what no tensor explains, and finds the peak."""
    on_gpu = followed.device == "cuda"
    cublas = CUBLAS_BYTES if on_gpu and followed.has_products else 0
    share = allowance.cudnn_share
    if workload.channels_last:
        share = allowance.cudnn_share_channels_last
    share = share if on_gpu else 0.0

    def workspace(moment: MemoryMoment) -> int:
        return cublas + min(int(share * moment.moved_bytes), allowance.cudnn_limit_bytes)

    peak = max(followed.moments, key=lambda moment: moment.allocated_bytes + workspace(moment))
    allocated = peak.allocated_bytes + workspace(peak)
    reserved, context = allocated, 0
    if on_gpu:
        reserved = int(allocated * allowance.fragmentation)
        reserved += -reserved % SEGMENT_BYTES
        context = allowance.context_bytes if followed.is_modern else allowance.eager_context_bytes
    return MemoryEstimate(
        weights_bytes=followed.weights_bytes,
        gradient_bytes=peak.gradient_bytes,
        optimizer_bytes=followed.optimizer_bytes,
        activation_bytes=peak.activation_bytes,
        temporary_bytes=peak.temporary_bytes,
        workspace_bytes=workspace(peak),
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=reserved + context,
        phase=peak.phase,
    )


def fits(estimate: MemoryEstimate, hardware: Hardware) -> bool:
    """Whether an iteration fits the memory that the driver leaves to programs."""
    return estimate.device_bytes <= usable_bytes(hardware)


def usable_bytes(hardware: Hardware) -> int:
    """Memory of a device that programs can use."""
    return int(hardware.memory_bytes * USABLE_SHARE)
