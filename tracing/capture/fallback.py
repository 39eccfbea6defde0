"""Records a real run where a model's Python depends on the values of its tensors."""

from __future__ import annotations

import copy

import torch

from tracing.capture.builder import Builder
from tracing.capture.calls import Flat
from tracing.capture.explain import explain
from tracing.capture.record import Known, record

# Beyond this a run on the CPU takes minutes.
MAX_STATE_BYTES = 8 * 2**30


def has_values(flat: Flat, tensors: list[torch.Tensor]) -> bool:
    """Whether inputs and parameters are real, so that a run on the CPU can be recorded."""
    state = (*flat.parameters(), *flat.buffers(), *tensors)
    return all(t.device.type == "cpu" and type(t).__name__ != "FakeTensor" for t in state)


def record_run(
    flat: Flat, builder: Builder, tensors: list[torch.Tensor], names: list[str], error: Exception
) -> tuple[list[Known], bool]:
    """Runs a copy of the model once on the CPU and records its operators.

    Only where inputs and parameters are real (not on `meta`); otherwise, and where the run fails
    as well, an error is explained.

    Args:
        flat: The model in its wrapper.
        builder: Receives the nodes.
        tensors: Inputs.
        names: Names of the inputs.
        error: What went wrong when the model was exported.

    Returns:
        The tensors that the model returned, and whether they are its own loss.
    """
    if not has_values(flat, tensors):
        explain(error, flat.model)
    state = [*flat.parameters(), *flat.buffers(), *tensors]
    if sum(t.numel() * t.element_size() for t in state) > MAX_STATE_BYTES:
        explain(error, flat.model, hint="and the model is too large to record a run on the CPU")
    inputs = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
    try:
        return record(copy.deepcopy(flat), builder, inputs, names, strict=False)
    except Exception as second:
        explain(second, flat.model)
