"""Models and figures that the tests of field cases share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tracing import trace


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any, **modules: Any) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def forward_flops(model: nn.Module, *args: Any, **kwargs: Any) -> int:
    return trace(model, args, kwargs, loss="none").total_flops


def attention(**options: Any) -> nn.Module:
    return Call(lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, **options))


def meta(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.empty(*shape, device="meta", requires_grad=grad)


def linear(*size: int, **options: Any) -> nn.Linear:
    return nn.Linear(*size, bias=False, **options)
