"""Hand-written models: diffusion, experts, scans, control flow, custom operators, graph layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from experiments.tracing_tables.kinds.layers import IMAGE, ROWS, TEXT, Built, Fn, call, linear


class Block(nn.Module):
    """A residual block of a diffusion model, with the time step added."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """Makes the layers."""
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(2, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time, self.skip = nn.Linear(16, outputs), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Adds the block's change to its input."""
        return self.skip(x) + self.conv(F.silu(self.norm(x))) + self.time(time)[:, :, None, None]


class UNet(nn.Module):
    """A U-Net that removes noise: time embedding, self- and cross-attention, skip connections."""

    def __init__(self) -> None:
        """Makes the layers."""
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
        self.down, self.middle, self.up = Block(8, 16), Block(16, 16), Block(24, 8)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(16, 2, kdim=12, vdim=12, batch_first=True)

    def forward(self, x: torch.Tensor, step: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Predicts the noise of a picture at a step, given a text."""
        rates = torch.exp(-torch.arange(8, device=x.device) / 8.0)
        angles = step[:, None].float() * rates
        time = torch.cat([angles.sin(), angles.cos()], 1)
        first = self.first(x)
        hidden = self.middle(F.avg_pool2d(self.down(first, time), 2), time)
        rows = hidden.flatten(2).transpose(1, 2)
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        rows = rows + self.cross(rows, text, text, need_weights=False)[0]
        hidden = F.interpolate(rows.transpose(1, 2).view_as(hidden), scale_factor=2.0)
        return self.last(self.up(torch.cat([hidden, first], 1), time))


class Experts(nn.Module):
    """A mixture of experts that sends every token to its best two."""

    def __init__(self) -> None:
        """Makes gate and experts."""
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Runs each expert on the tokens that chose it."""
        tokens = x.reshape(-1, 16)
        weights, chosen = self.gate(tokens).softmax(-1).topk(2)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            out = out.index_add(0, rows, expert(tokens[rows]) * weights[rows, place, None])
        return out.view_as(x)


class Scan(nn.Module):
    """A selective state-space layer as a loop over time."""

    def __init__(self) -> None:
        """Makes the projections."""
        super().__init__()
        self.inputs, self.rates = nn.Linear(16, 16), nn.Linear(16, 8)
        self.log = nn.Parameter(torch.zeros(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Updates a state step by step."""
        left, right = self.rates(x).chunk(2, -1)
        step = F.softplus(self.inputs(x))
        state, outs = x.new_zeros(x.shape[0], 16, 4), []
        for i in range(x.shape[1]):
            decay = torch.exp(-step[:, i, :, None] * self.log.exp())
            state = decay * state + step[:, i, :, None] * left[:, i, None, :] * x[:, i, :, None]
            outs.append((state * right[:, i, None, :]).sum(-1))
        return torch.stack(outs, 1)


class Square(torch.autograd.Function):
    """A function with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """The square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        """Its derivative."""
        return 2 * ctx.saved_tensors[0] * grads[0]


def _custom_operator() -> Built:
    if not hasattr(torch.ops.prenet_tables, "double"):

        @torch.library.custom_op("prenet_tables::double", mutates_args=())
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        double.register_fake(torch.empty_like)
        double.register_autograd(lambda _, grad: grad * 2)
    run = lambda s, x: torch.ops.prenet_tables.double(s.lin(x))  # noqa: E731
    return Fn(run, lin=linear()), (torch.randn(ROWS),), {}


def _variational(self: Any, x: torch.Tensor) -> Any:
    mean, log_variance = self.encode(x).chunk(2, -1)
    sample = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
    return {"loss": F.mse_loss(self.decode(sample), x) + divergence}


def _branches(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.a(x) if x.sum() > 0 else self.b(x)


def _until_small(self: Any, x: torch.Tensor) -> torch.Tensor:
    while x.norm() > 1:
        x = self.a(x) * 0.1
    return x


def _condition(self: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda y: self.a(y), lambda y: self.a(y).relu(), (x,))


def _flexible(self: Any, x: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    query = self.a(x).view(2, 6, 2, 8).transpose(1, 2)
    out = flex_attention(query, query, query, score_mod=lambda s, b, h, q, k: s + (q - k))
    assert isinstance(out, torch.Tensor)
    return out


def _mapped(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: self.a(row))(x)


def _by_jacobian(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.func.vjp(lambda y: self.a(y), x)[0]


def _penalised(self: Any, x: torch.Tensor) -> Any:
    x = x.detach().requires_grad_()
    score = self.a(x).sum()
    (slope,) = torch.autograd.grad(score, x, create_graph=True)
    return {"loss": score + ((slope.norm(dim=1) - 1) ** 2).mean()}


def _skipping(self: Any, x: torch.Tensor) -> torch.Tensor:
    keep = torch.bernoulli(torch.full((x.shape[0], 1), 0.9, device=x.device))
    return x + self.a(x) * keep / 0.9


def _adversarial(self: Any, x: torch.Tensor) -> Any:
    fake = self.a(torch.randn_like(x))
    real, made = self.b(x), self.b(fake)
    score = F.binary_cross_entropy_with_logits
    return {"loss": score(real, torch.ones_like(real)) + score(made, torch.zeros_like(made))}


MODELS: dict[str, Callable[[], Built]] = {
    "diffusion U-Net": lambda: (
        UNet(),
        (torch.randn(2, 4, 8, 8), torch.tensor([1, 2]), torch.randn(2, 5, 12)),
        {},
    ),
    "experts": call(lambda s, x: s.moe(x), TEXT, moe=Experts),
    "state-space scan": call(lambda s, x: s.scan(x), TEXT, scan=Scan),
    "autograd.Function": call(lambda s, x: Square.apply(s.a(x)), ROWS, a=linear),
    "custom operator": _custom_operator,
    "variational autoencoder": call(
        _variational, ROWS, encode=lambda: nn.Linear(16, 8), decode=lambda: nn.Linear(4, 16)
    ),
    "generative adversarial": call(_adversarial, ROWS, a=linear, b=linear),
    "siamese": call(lambda s, x, y: F.cosine_similarity(s.a(x), s.a(y)), ROWS, ROWS, a=linear),
    "stochastic depth": call(_skipping, ROWS, a=linear),
    "branch on values": call(_branches, ROWS, a=linear, b=linear),
    "loop until small": call(_until_small, ROWS, a=linear),
    "torch.cond": call(_condition, ROWS, a=linear),
    "flex_attention": call(_flexible, TEXT, a=linear),
    "torch.vmap": call(_mapped, ROWS, a=linear),
    "torch.func": call(_by_jacobian, ROWS, a=linear),
    "gradient penalty": call(_penalised, ROWS, a=linear),
    "boolean mask": call(lambda s, x: s.a(x[x.sum(1) > 0]), ROWS, a=linear),
    "channels last": lambda: (
        nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)).to(memory_format=torch.channels_last),
        (torch.randn(IMAGE).to(memory_format=torch.channels_last),),
        {},
    ),
}


def geometric() -> dict[str, Callable[[], Built]]:
    """Layers of torch-geometric on a ring of six nodes."""
    import torch_geometric.nn as gnn

    ring = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    layers: dict[str, Callable[[], nn.Module]] = {
        "GCNConv": lambda: gnn.GCNConv(8, 4),
        "SAGEConv": lambda: gnn.SAGEConv(8, 4),
        "GATConv": lambda: gnn.GATConv(8, 4, heads=2),
        "GATv2Conv": lambda: gnn.GATv2Conv(8, 4, heads=2),
        "GINConv": lambda: gnn.GINConv(nn.Linear(8, 4)),
        "TransformerConv": lambda: gnn.TransformerConv(8, 4, heads=2),
        "GraphConv": lambda: gnn.GraphConv(8, 4),
        "ChebConv": lambda: gnn.ChebConv(8, 4, 3),
        "TAGConv": lambda: gnn.TAGConv(8, 4),
        "ARMAConv": lambda: gnn.ARMAConv(8, 4),
        "SGConv": lambda: gnn.SGConv(8, 4, K=2),
        "GENConv": lambda: gnn.GENConv(8, 4),
        "PNAConv": lambda: gnn.PNAConv(8, 4, ["mean", "max"], ["identity"], torch.tensor([0, 6])),
        "ResGatedGraphConv": lambda: gnn.ResGatedGraphConv(8, 4),
        "EdgeConv": lambda: gnn.EdgeConv(nn.Linear(16, 4)),
        "GCN": lambda: gnn.GCN(8, 16, 2, 4, dropout=0.1),
        "GIN": lambda: gnn.GIN(8, 16, 2, 4),
    }
    return {
        name: lambda layer=layer: (layer(), (torch.randn(6, 8), ring), {})  # type: ignore[misc]
        for name, layer in layers.items()
    }
