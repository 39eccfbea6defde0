"""Small models with unusual inputs, and with wrappers and regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import checkpoint as checkpoints

from experiments.tracing_tables.kinds.layers import ROWS, TEXT, Built, Fn, linear


class Output(dict[str, torch.Tensor]):
    """A mapping that also has its entries as attributes, as model libraries return them."""

    __getattr__ = dict.__getitem__


class Cache:
    """Keys and values of earlier steps."""

    def __init__(self, keys: list[torch.Tensor]) -> None:
        """Keeps the keys."""
        self.keys = keys

    def update(self, new: torch.Tensor) -> torch.Tensor:
        """Appends and returns all."""
        self.keys.append(new)
        return torch.cat(self.keys, 1)


def _cached(self: Any, x: torch.Tensor, cache: Cache) -> Any:
    keys = cache.update(self.lin(x))
    return self.lin(x) @ keys.transpose(1, 2), cache


def _nested(self: Any, batch: dict[str, Any]) -> Any:
    first, (second, flag) = batch["pair"]
    return {"out": [self.lin(first), (self.lin(second),)], "flag": flag}


def _several_losses(self: Any, x: torch.Tensor) -> Any:
    y = self.lin(x)
    parts = {
        "mse": F.mse_loss(y, x),
        "kl": F.kl_div(y.log_softmax(-1), x.softmax(-1), reduction="batchmean"),
        "huber": F.smooth_l1_loss(y, x),
        "bce": F.binary_cross_entropy_with_logits(y, torch.ones_like(y)),
        "hinge": F.margin_ranking_loss(y[:, 0], x[:, 0], torch.ones_like(x[:, 0])),
        "cosine": F.cosine_embedding_loss(y, x, torch.ones_like(x[:, 0])),
        "triplet": F.triplet_margin_loss(y, x, x.flip(0)),
    }
    return {**parts, "loss": torch.stack(list(parts.values())).sum()}


def _ctc(self: Any, x: torch.Tensor) -> Any:
    scores = self.lin(x).log_softmax(-1).transpose(0, 1)
    targets = torch.ones(x.shape[0], 2, dtype=torch.long)
    lengths = torch.full((x.shape[0],), x.shape[1]), torch.full((x.shape[0],), 2)
    return {"loss": F.ctc_loss(scores, targets.to(x.device), *lengths)}


INPUTS: dict[str, Callable[[], Built]] = {
    "dict": lambda: (Fn(lambda s, d: {"y": s.lin(d["x"])}, lin=linear()), ({"x": _rows()},), {}),
    "keyword only": lambda: (Fn(lambda s, *, x: s.lin(x), lin=linear()), (), {"x": _rows()}),
    "nested": lambda: (
        Fn(_nested, lin=linear()),
        ({"pair": (_rows(), [_rows(), True])},),
        {},
    ),
    "optional": lambda: (
        Fn(lambda s, x, mask=None: s.lin(x) if mask is None else x, lin=linear()),
        (_rows(), None),
        {},
    ),
    "output class": lambda: (
        Fn(lambda s, x: Output(logits=s.lin(x), hidden=x), lin=linear()),
        (_rows(),),
        {},
    ),
    "cache": lambda: (Fn(_cached, lin=linear()), (_text(), Cache([_text()])), {}),
    "several losses": lambda: (Fn(_several_losses, lin=linear()), (_rows(),), {}),
    "ctc loss": lambda: (Fn(_ctc, lin=linear()), (_text(),), {}),
}


def _rows() -> torch.Tensor:
    return torch.randn(ROWS)


def _text() -> torch.Tensor:
    return torch.randn(TEXT)


def _one(model: nn.Module, *shape: int) -> Built:
    return model, (torch.randn(shape or ROWS),), {}


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


def _distributed() -> nn.Module:
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return nn.parallel.DistributedDataParallel(_mlp())


def _adapter(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.base(x) + self.up(self.down(x)) * 2.0


def _lora() -> nn.Module:
    base = linear().requires_grad_(False)
    return Fn(_adapter, base=base, down=nn.Linear(16, 2, False), up=nn.Linear(2, 16, False))


def _frozen() -> nn.Module:
    model = _mlp()
    model[0].requires_grad_(False)
    return model


def _tied() -> nn.Module:
    embedding, head = nn.Embedding(32, 16), nn.Linear(16, 32, bias=False)
    head.weight = embedding.weight
    return Fn(lambda s, ids: s.head(s.embedding(ids)), embedding=embedding, head=head)


def _checkpointed(reentrant: bool) -> nn.Module:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoints.checkpoint(self.body, self.first(x), use_reentrant=reentrant)
        assert isinstance(hidden, torch.Tensor)
        return self.last(hidden)

    return Fn(run, first=linear(), body=_mlp(), last=linear())


def _in_segments(self: Any, x: torch.Tensor) -> Any:
    return checkpoints.checkpoint_sequential(self.body, 2, x, use_reentrant=False)


def _autocast(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = self.a(x)
        with torch.autocast("cpu", enabled=False):
            y = self.b(y.float())
    return y


def _no_grad(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x = self.a(x)
    return self.b(x.detach())


def _distilled(self: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        wanted = self.a(x)
    return {"loss": F.mse_loss(self.b(x), wanted)}


def _exits(self: Any, x: torch.Tensor) -> Any:
    outs = []
    for layer in (self.a, self.b):
        x = layer(x)
        outs.append(self.head(x))
    return tuple(outs)


REGIONS: dict[str, Callable[[], Built]] = {
    "torch.compile": lambda: _one(torch.compile(_mlp())),  # type: ignore[arg-type]
    "compiled part": lambda: _one(nn.Sequential(torch.compile(_mlp()), linear())),  # type: ignore[arg-type]
    "DataParallel": lambda: _one(nn.DataParallel(_mlp())),
    "DistributedDataParallel": lambda: _one(_distributed()),
    "LoRA": lambda: _one(_lora()),
    "frozen": lambda: _one(_frozen()),
    "tied": lambda: (_tied(), (torch.zeros(2, 6, dtype=torch.long),), {}),
    "shared layer": lambda: _one((lambda lin: nn.Sequential(lin, nn.ReLU(), lin))(linear())),
    "checkpoint": lambda: _one(_checkpointed(False)),
    "checkpoint, reentrant": lambda: _one(_checkpointed(True)),
    "checkpoint_sequential": lambda: _one(Fn(_in_segments, body=nn.Sequential(_mlp(), _mlp()))),
    "autocast": lambda: _one(Fn(_autocast, a=linear(), b=linear())),
    "no_grad": lambda: _one(Fn(_no_grad, a=linear(), b=linear())),
    "distillation": lambda: _one(Fn(_distilled, a=linear(), b=linear())),
    "several exits": lambda: _one(Fn(_exits, a=linear(), b=linear(), head=linear())),
    "evaluation": lambda: _one(_mlp().eval()),
    "bfloat16": lambda: (_mlp().bfloat16(), (_rows().bfloat16(),), {}),
    "float64": lambda: (_mlp().double(), (_rows().double(),), {}),
    "input with gradient": lambda: (_mlp(), (_rows().requires_grad_(),), {}),
    "in place": lambda: _one(nn.Sequential(linear(), nn.ReLU(True), nn.Dropout(0.1, True))),
    "weight norm": lambda: _one(nn.utils.parametrizations.weight_norm(linear())),
    "spectral norm": lambda: _one(nn.utils.parametrizations.spectral_norm(linear())),
    "lazy": lambda: _one(nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d())),
}
