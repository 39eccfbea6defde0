"""How many bytes an iteration needs: saved for backward, and at its peak."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the unique storages behind some tensors; views and ties count once."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def saved_for_backward_bytes(model: torch.nn.Module, forward: Callable[[], object]) -> int:
    """Unique storages that autograd keeps of a forward pass, the model's own left out.

    Every saved tensor is held until the count is done, so no address is used twice. The graph holds
    the hooks, and so the list: it has to be emptied, or graph and tensors keep each other alive.
    """
    import torch

    kept: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> int:
        kept.append(tensor)
        return len(kept) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, kept.__getitem__):
        output = forward()  # held, as the graph lives as long as the output
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    saved = storage_bytes(t for t in kept if t.untyped_storage().data_ptr() not in own)
    kept.clear()
    del output
    return saved


def optimizer_tensors(optimizer: Any) -> list[torch.Tensor]:
    """Tensors in an optimizer's state."""
    import torch

    states = optimizer.state.values() if optimizer is not None else ()
    return [v for state in states for v in state.values() if isinstance(v, torch.Tensor)]


def quiet_profiler() -> None:
    """Stops the profiler's library from writing to standard error; works before its first use."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def cpu_peak_bytes(step: Callable[[], object], resident_bytes: int) -> int | None:
    """Peak of allocated CPU tensors in one iteration, from the profiler's allocation events.

    The profiler only knows what is allocated while it watches, so gradients must be gone before;
    weights, optimizer state and inputs are given as `resident_bytes`.
    """
    quiet_profiler()
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    # No public call returns single allocations in order; without it the peak stays unknown.
    results = getattr(getattr(profiler, "profiler", None), "kineto_results", None)
    if results is None:
        return None
    changes = [(e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]"]
    level = peak = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        level += change
        peak = max(peak, level)
    return resident_bytes + peak


def cuda_memory_bytes(device: torch.device) -> tuple[int, int, int]:
    """Peak allocated, peak reserved, and what the driver counts as used now."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    allocated = int(torch.cuda.max_memory_allocated(device))
    return allocated, int(torch.cuda.max_memory_reserved(device)), total - free
