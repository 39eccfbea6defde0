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
    capacity = min(tokens, int(layer.router.expert_capacity))
    weight = _route(layer.router, hidden, capacity)
    result = torch.zeros_like(hidden)
    for index, expert in enumerate(layer.experts.values()):
        gate, chosen = weight[..., index].topk(capacity, dim=1)
        place = chosen.unsqueeze(-1).expand(batch, capacity, width)
        output = expert(hidden.gather(1, place)) * gate.unsqueeze(-1)
        result = result.scatter_add(1, place, output.to(hidden.dtype))
    return result


def _route(router: Any, hidden: torch.Tensor, capacity: int) -> torch.Tensor:
    """Probability of each token's best expert, zero for the others and beyond the capacity.

    The library's router casts its weights inside the forward pass, which a trace refuses.

    Shape:
        hidden: (batch, tokens, width); the result is (batch, tokens, experts).
    """
    inputs = hidden.to(router.dtype)
    if router.training and router.jitter_noise > 0:
        noise = router.jitter_noise
        inputs = inputs * torch.empty_like(inputs).uniform_(1.0 - noise, 1.0 + noise)
    logits = router.classifier(inputs.to(router.classifier.weight.dtype)).to(router.dtype)
    probability = logits.softmax(dim=-1).to(hidden.dtype)
    best = nn.functional.one_hot(probability.argmax(dim=-1), num_classes=router.num_experts)
    routed = best * (best.cumsum(dim=-2) <= capacity)
    chosen: torch.Tensor = routed.to(hidden.dtype) * probability.max(dim=-1, keepdim=True).values
    return chosen
