"""Devices of this machine that can be measured, and how they say that memory ran out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prenet_gnn.measuring.errors import MeasureError

if TYPE_CHECKING:
    import torch

# How allocators other than CUDA's own say it
OUT_OF_MEMORY = (
    "not enough memory",
    "can't allocate memory",
    "out of memory",
    "cudnn_status_alloc_failed",
    "cublas_status_alloc_failed",
)


def default_device() -> str:
    """The accelerator of this machine, or its CPU."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def resolve_device(device: str | torch.device | None) -> torch.device:
    """Turns a name into a device that is really there."""
    import torch

    try:
        found = torch.device(device if device is not None else default_device())
    except RuntimeError:
        raise MeasureError(
            f"device '{device}' is not known. Use cpu, cuda, cuda:1 or mps."
        ) from None
    if found.type not in ("cpu", "cuda", "mps"):
        raise MeasureError(f"device '{device}' cannot be measured. Use cpu, cuda, cuda:1 or mps.")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise MeasureError("this machine has no CUDA device that PyTorch can use; use device cpu.")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise MeasureError(
            f"no {found}: this machine has {torch.cuda.device_count()} CUDA devices."
        )
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise MeasureError("this machine has no MPS device; use device cpu.")
    return found


def is_out_of_memory(error: BaseException) -> bool:
    """An allocation failed, on whichever device."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in text for sign in OUT_OF_MEMORY)
