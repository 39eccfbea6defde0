"""Mixture-of-experts layers with fixed shapes, where the library's own read the routing.

The Switch Transformer's layer loops over the experts that were hit, which no trace can follow.
Here every expert takes its full capacity of tokens, padded with tokens that count zero: the
same result, and the work of a balanced routing.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn


def fix_shapes(model: nn.Module) -> None:
    """Gives the sparse layers of a Switch Transformer a forward pass of fixed shapes."""
    for module in model.modules():
        if type(module).__name__ == "SwitchTransformersSparseMLP":
            vars(module)["forward"] = types.MethodType(_switch_forward, module)


def _switch_forward(layer: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Routes each token to its best expert, up to the capacity per sequence and expert.

    Shape:
        hidden: (batch, tokens, width); the result has the same shape.
    """
    batch, tokens, width = hidden.shape
    routed, probability, _ = layer.router(hidden)
    capacity = min(tokens, int(layer.router.expert_capacity))
    weight = routed.to(hidden.dtype) * probability
    result = torch.zeros_like(hidden)
    for index, expert in enumerate(layer.experts.values()):
        gate, chosen = weight[..., index].topk(capacity, dim=1)
        place = chosen.unsqueeze(-1).expand(batch, capacity, width)
        output = expert(hidden.gather(1, place)) * gate.unsqueeze(-1)
        result = result.scatter_add(1, place, output.to(hidden.dtype))
    return result
