"""Records a real run where a model's Python depends on the values of its tensors."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import torch

from tracing.capture.builder import Builder, Returned
from tracing.capture.explain import explain
from tracing.capture.model_call import Flat
from tracing.capture.recorder import record

# Beyond this a run on the CPU takes minutes.
MAX_STATE_BYTES = 8 * 2**30


def has_values(flat: Flat, inputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether inputs and parameters are real, so that a run on the CPU can be recorded."""
    state = (*flat.parameters(), *flat.buffers(), *inputs.values())
    return all(t.device.type == "cpu" and type(t).__name__ != "FakeTensor" for t in state)


def record_real_run(
    flat: Flat, builder: Builder, inputs: Mapping[str, torch.Tensor], error: Exception
) -> Returned:
    """Runs a copy of the model once on the CPU and records its operators.

    Only where inputs and parameters are real (not on `meta`); otherwise, and where the run fails
    as well, an error is explained.

    Args:
        flat: The model in its wrapper.
        builder: Receives the calls.
        inputs: Inputs by name.
        error: What went wrong when the model was exported.
    """
    if not has_values(flat, inputs):
        explain(error, flat.model)
    state = [*flat.parameters(), *flat.buffers(), *inputs.values()]
    if sum(t.numel() * t.element_size() for t in state) > MAX_STATE_BYTES:
        explain(error, flat.model, hint="and the model is too large to record a run on the CPU")
    copies = {
        name: t.detach().clone().requires_grad_(t.requires_grad) for name, t in inputs.items()
    }
    try:
        return replace(record(copy.deepcopy(flat), builder, copies, strict=False), real_run=True)
    except Exception as second:
        explain(second, flat.model)
