"""Decoders with low-rank adapters, as litgpt fine-tunes them: frozen bfloat16 weights."""

from __future__ import annotations

import torch
from torch import nn

from tracing import OpGraph, trace

RANK = 8
# Name in memory.csv.gz -> hidden, MLP, layers, heads, key-value heads, vocabulary (public configs).
DECODERS = {
    "meta-llama/Llama-2-7b-hf": (4096, 11008, 32, 32, 32, 32000),
    "meta-llama/Llama-2-13b-hf": (5120, 13824, 40, 40, 40, 32000),
    "meta-llama/Meta-Llama-3-8B": (4096, 14336, 32, 32, 8, 128256),
    "meta-llama/Llama-3.1-8B": (4096, 14336, 32, 32, 8, 128256),
    "meta-llama/Llama-3.2-1B": (2048, 8192, 16, 32, 8, 128256),
    "meta-llama/Llama-3.2-3B": (3072, 8192, 28, 24, 8, 128256),
    "mistralai/Mistral-7B-v0.1": (4096, 14336, 32, 32, 8, 32000),
    "mistralai/Mistral-7B-v0.2": (4096, 14336, 32, 32, 8, 32000),
    "TinyLlama/TinyLlama-1.1B": (2048, 5632, 22, 32, 4, 32000),
}
TIED = ("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B")


class Adapted(nn.Module):
    """A frozen linear layer and a low-rank path beside it, with dropout before as in litgpt."""

    def __init__(self, base: nn.Linear) -> None:
        """Puts adapters beside `base`."""
        super().__init__()
        self.base, self.dropout = base, nn.Dropout(0.05)
        kind = {"bias": False, "device": base.weight.device, "dtype": base.weight.dtype}
        self.down = nn.Linear(base.in_features, RANK, **kind)
        self.up = nn.Linear(RANK, base.out_features, **kind)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both paths."""
        return self.base(x) + self.up(self.down(self.dropout(x))) * 2.0


def decoder(name: str) -> nn.Module:
    """A decoder on the meta device, in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, inner, layers, heads, groups, words = DECODERS[name]
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        vocab_size=words,
        tie_word_embeddings=name in TIED,
        use_cache=False,
    )
    with torch.device("meta"):
        model: nn.Module = LlamaForCausalLM(config).to(torch.bfloat16)
    return model


def decoder_graph(name: str, batch_size: int, seq_len: int, method: str) -> OpGraph:
    """Graph of one training step; `method` is `lora` or `full`."""
    model = decoder(name)
    tokens = torch.zeros(batch_size, seq_len, dtype=torch.int64, device="meta")
    if method == "lora":
        model.requires_grad_(False)
        for layer in model.model.layers:
            layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj)
            layer.self_attn.v_proj = Adapted(layer.self_attn.v_proj)
    return trace(model.train(), (), {"input_ids": tokens, "labels": tokens})
