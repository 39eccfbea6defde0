"""Which models can be traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from torch import nn

from experiments.tracing_tables.common import Row, attempt
from tracing import OpGraph, trace, zoo

_TRANSFORMERS = (
    "albert align altclip aria_text bamba bart beit bert bert-small big_bird bit blenderbot-small "
    "blip_vision_model bloom canine chinese_clip clap clip clipseg codegen cohere "
    "conditional_detr convbert convnext convnextv2 cvt data2vec-text deberta deberta-v2 "
    "deepseek_v3 deit detr dinov2 distilbert dpt efficientnet electra encodec ernie falcon "
    "falcon_mamba flava_text_model fnet focalnet funnel gemma gemma2 gemma3_text git glm glpn "
    "gpt2 gpt_bigcode gpt_neo gpt_neox gptj granite groupvit hiera hubert ibert imagegpt layoutlm "
    "led levit lfm2 llama longformer longt5 luke lxmert mamba mamba2 marian mbart megatron-bert "
    "mistral mixtral mobilebert mobilenet_v2 mobilevit mpnet mpt mvp nystromformer olmo olmoe opt "
    "owlvit pegasus perceiver persimmon phi phi3 plbart poolformer prophetnet pvt qwen2 qwen2_moe "
    "qwen3 regnet rembert resnet roberta roformer rwkv segformer siglip speech_to_text splinter "
    "squeezebert stablelm starcoder2 swin swinv2 t5 timesformer umt5 videomae vilt vit vit_mae "
    "vivit wav2vec2 wavlm whisper xglm xlnet yolos"
)
TRANSFORMERS = _TRANSFORMERS.split()
# Short sequences: what is tested is whether a model can be traced.
SEQUENCE = 128


def _facts(graph: OpGraph, seconds: float) -> Row:
    return {
        "nodes": len(graph.nodes),
        "forward_flops": graph.total_flops,
        "parameters": graph.total_params,
        "unknown_ops": " ".join(graph.unknown_ops),
        "seconds": round(seconds, 2),
    }


def _named(name: str) -> Row:
    length = SEQUENCE if name.startswith("transformers") else None
    model, args, kwargs = zoo.build(name, batch_size=2, seq_len=length, mode="train")
    start = perf_counter()
    graph = trace(model, args, kwargs, backend="record", unknown_ops="ignore")
    return _facts(graph, perf_counter() - start)


def _built(build: Callable[[], tuple[nn.Module, tuple[Any, ...]]]) -> Row:
    model, args = build()
    start = perf_counter()
    return _facts(trace(model, args, unknown_ops="ignore"), perf_counter() - start)


def _geometric() -> dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]]:
    import torch_geometric.nn as gnn

    x, edges = torch.randn(6, 8), torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
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
    }
    return {
        f"geometric:{name}": lambda layer=layer: (layer(), (x, edges))  # type: ignore[misc]
        for name, layer in layers.items()
    }


def _recurrent() -> dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]]:
    text = torch.randn(2, 5, 16)
    layers: dict[str, Callable[[], nn.Module]] = {
        "RNN": lambda: nn.RNN(16, 8, batch_first=True),
        "LSTM": lambda: nn.LSTM(16, 8, 2, batch_first=True),
        "GRU": lambda: nn.GRU(16, 8, bidirectional=True, batch_first=True),
        "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
    }
    found: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
        f"nn:{name}": lambda layer=layer: (layer(), (text,))  # type: ignore[misc]
        for name, layer in layers.items()
    }
    found["nn:Transformer"] = lambda: (
        nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
        (text, text),
    )
    found["nn:MultiheadAttention"] = lambda: (
        nn.MultiheadAttention(16, 2, batch_first=True),
        (text, text, text),
    )
    return found


def rows() -> Iterator[Row]:
    """One row for each model, group by group."""
    for name, build in {**_recurrent(), **_geometric()}.items():
        yield attempt(lambda build=build: _built(build), model=name)  # type: ignore[misc]
    names = zoo.names("torchvision:") + [f"transformers:{name}" for name in TRANSFORMERS]
    for name in names:
        yield attempt(lambda name=name: _named(name), model=name)  # type: ignore[misc]


def summary(table: list[Row]) -> list[str]:
    """How many models of each group were traced."""
    groups: dict[str, list[bool]] = {}
    for row in table:
        groups.setdefault(row["model"].split(":")[0], []).append(not row["error"])
    return [
        f"{name}: {sum(ok)} of {len(ok)} ({sum(ok) / len(ok):.1%})" for name, ok in groups.items()
    ]
