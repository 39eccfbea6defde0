"""Well-known transformer sizes: the published dimensions, as arguments of the model's config."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Size:
    """One named configuration.

    Attributes:
        model_type: The model type of transformers.
        config: Arguments of its config class; what is absent keeps the class's default.
        train_class: Class in training mode; empty takes the model type's usual class.
        infer_class: Class in inference mode; empty takes the one of training.
    """

    model_type: str
    config: dict[str, Any] = field(default_factory=dict)
    train_class: str = ""
    infer_class: str = ""


def _bert(hidden: int, layers: int, model_type: str = "bert", **more: Any) -> Size:
    config = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
    }
    return Size(model_type, config | more)


def _gpt2(width: int, layers: int, heads: int, positions: int = 1024) -> Size:
    config = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": positions}
    return Size("gpt2", config)


def _opt(hidden: int, layers: int, heads: int, **more: Any) -> Size:
    config = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "ffn_dim": 4 * hidden,
        "word_embed_proj_dim": hidden,
        "max_position_embeddings": 2048,
    }
    return Size("opt", config | more)


def _decoder(
    model_type: str,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocab: int,
    positions: int,
    **more: Any,
) -> Size:
    config = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": positions,
    }
    return Size(model_type, config | more)


def _mpt(width: int, layers: int, heads: int) -> Size:
    config = {"d_model": width, "n_layers": layers, "n_heads": heads, "vocab_size": 50368}
    return Size("mpt", config | {"max_seq_len": 2048})


def _neox(hidden: int, layers: int, heads: int, vocab: int, positions: int = 2048) -> Size:
    config = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "vocab_size": vocab,
        "max_position_embeddings": positions,
    }
    return Size("gpt_neox", config)


def _t5(width: int, kv: int, ffn: int, layers: int, heads: int, **more: Any) -> Size:
    config = {"d_model": width, "d_kv": kv, "d_ff": ffn, "num_layers": layers, "num_heads": heads}
    return Size("t5", config | more)


def _v1_1(width: int, ffn: int, layers: int, heads: int) -> Size:
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    return _t5(width, 64, ffn, layers, heads, **gated)


def _vit(hidden: int, layers: int, heads: int, patch: int = 16, image: int = 224) -> Size:
    config = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "patch_size": patch,
        "image_size": image,
    }
    return Size("vit", config)


def _whisper(width: int, layers: int, heads: int, mels: int = 80) -> Size:
    config = {
        "d_model": width,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "num_mel_bins": mels,
        "vocab_size": 51865 if mels == 80 else 51866,
    }
    return Size("whisper", config)


_GEMMA = {"head_dim": 256, "tie_word_embeddings": True}
_LLAMA32 = {"tie_word_embeddings": True, "rope_theta": 500000.0}

SIZES: dict[str, Size] = {
    "bert-tiny": _bert(128, 2),
    "bert-mini": _bert(256, 4),
    "bert-small": _bert(512, 4),
    "bert-medium": _bert(512, 8),
    "bert-base": _bert(768, 12),
    "bert-large": _bert(1024, 24),
    "roberta-base": _bert(768, 12, "roberta", vocab_size=50265, max_position_embeddings=514),
    "roberta-large": _bert(1024, 24, "roberta", vocab_size=50265, max_position_embeddings=514),
    "xlm-roberta-base": _bert(
        768, 12, "xlm-roberta", vocab_size=250002, max_position_embeddings=514
    ),
    "xlm-roberta-large": _bert(
        1024, 24, "xlm-roberta", vocab_size=250002, max_position_embeddings=514
    ),
    "distilbert": Size("distilbert", {"dim": 768, "n_layers": 6, "n_heads": 12}),
    "distilgpt2": _gpt2(768, 6, 12),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "gpt-j-6b": Size("gptj", {"n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64}),
    "gpt-neox-20b": _neox(6144, 44, 64, 50432),
    "pythia-160m": _neox(768, 12, 12, 50304),
    "pythia-410m": _neox(1024, 24, 16, 50304),
    "pythia-1b": _neox(2048, 16, 8, 50304),
    "pythia-1.4b": _neox(2048, 24, 16, 50304),
    "pythia-2.8b": _neox(2560, 32, 32, 50304),
    "pythia-6.9b": _neox(4096, 32, 32, 50432),
    "pythia-12b": _neox(5120, 36, 40, 50688),
    "stablelm-base-alpha-3b": _neox(4096, 16, 32, 50688, 4096),
    "stablelm-base-alpha-7b": _neox(6144, 16, 48, 50432, 4096),
    "opt-125m": _opt(768, 12, 12),
    "opt-350m": _opt(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False),
    "opt-1.3b": _opt(2048, 24, 32),
    "opt-2.7b": _opt(2560, 32, 32),
    "opt-6.7b": _opt(4096, 32, 32),
    "opt-13b": _opt(5120, 40, 40),
    "opt-30b": _opt(7168, 48, 56),
    "opt-66b": _opt(9216, 64, 72),
    "mpt-125m": _mpt(768, 12, 12),
    "mpt-350m": _mpt(1024, 24, 16),
    "mpt-1b": _mpt(2048, 24, 16),
    "mpt-3b": _mpt(2560, 32, 20),
    "mpt-7b": _mpt(4096, 32, 32),
    "mpt-13b": _mpt(5120, 40, 40),
    "mpt-30b": _mpt(7168, 48, 56),
    "falcon-7b": Size(
        "falcon",
        {
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "vocab_size": 65024,
        },
    ),
    "llama-7b": _decoder("llama", 4096, 32, 32, 32, 11008, 32000, 2048),
    "llama-2-7b": _decoder("llama", 4096, 32, 32, 32, 11008, 32000, 4096),
    "llama-2-13b": _decoder("llama", 5120, 40, 40, 40, 13824, 32000, 4096),
    "llama-2-70b": _decoder("llama", 8192, 80, 64, 8, 28672, 32000, 4096),
    "llama-3-8b": _decoder("llama", 4096, 32, 32, 8, 14336, 128256, 8192),
    "llama-3-70b": _decoder("llama", 8192, 80, 64, 8, 28672, 128256, 8192),
    "llama-3-405b": _decoder("llama", 16384, 126, 128, 8, 53248, 128256, 131072),
    "llama-3.1-8b": _decoder("llama", 4096, 32, 32, 8, 14336, 128256, 131072),
    "llama-3.1-70b": _decoder("llama", 8192, 80, 64, 8, 28672, 128256, 131072),
    "llama-3.1-405b": _decoder("llama", 16384, 126, 128, 8, 53248, 128256, 131072),
    "llama-3.2-1b": _decoder(
        "llama", 2048, 16, 32, 8, 8192, 128256, 131072, head_dim=64, **_LLAMA32
    ),
    "llama-3.2-3b": _decoder(
        "llama", 3072, 28, 24, 8, 8192, 128256, 131072, head_dim=128, **_LLAMA32
    ),
    "tinyllama-1.1b": _decoder("llama", 2048, 22, 32, 4, 5632, 32000, 2048),
    "mistral-7b": _decoder("mistral", 4096, 32, 32, 8, 14336, 32000, 32768),
    "mixtral-8x7b": _decoder("mixtral", 4096, 32, 32, 8, 14336, 32000, 32768),
    "qwen2-0.5b": _decoder("qwen2", 896, 24, 14, 2, 4864, 151936, 32768, tie_word_embeddings=True),
    "qwen2-1.5b": _decoder("qwen2", 1536, 28, 12, 2, 8960, 151936, 32768, tie_word_embeddings=True),
    "qwen2-7b": _decoder("qwen2", 3584, 28, 28, 4, 18944, 152064, 32768),
    "gemma-2b": _decoder("gemma", 2048, 18, 8, 1, 16384, 256000, 8192, **_GEMMA),
    "gemma-7b": _decoder("gemma", 3072, 28, 16, 16, 24576, 256000, 8192, **_GEMMA),
    "gemma-2-2b": _decoder("gemma2", 2304, 26, 8, 4, 9216, 256000, 8192, **_GEMMA),
    "gemma-2-9b": _decoder("gemma2", 3584, 42, 16, 8, 14336, 256000, 8192, **_GEMMA),
    "t5-small": _t5(512, 64, 2048, 6, 8),
    "t5-base": _t5(768, 64, 3072, 12, 12),
    "t5-large": _t5(1024, 64, 4096, 24, 16),
    "t5-3b": _t5(1024, 128, 16384, 24, 32),
    "t5-11b": _t5(1024, 128, 65536, 24, 128),
    "flan-t5-base": _v1_1(768, 2048, 12, 12),
    "flan-t5-large": _v1_1(1024, 2816, 24, 16),
    "bart-large": Size("bart"),
    "vit-tiny": _vit(192, 12, 3),
    "vit-small": _vit(384, 12, 6),
    "vit-base": _vit(768, 12, 12),
    "vit-large": _vit(1024, 24, 16),
    "vit-huge": _vit(1280, 32, 16, patch=14),
    "whisper-tiny": _whisper(384, 4, 6),
    "whisper-base": _whisper(512, 6, 8),
    "whisper-small": _whisper(768, 12, 12),
    "whisper-medium": _whisper(1024, 24, 16),
    "whisper-large-v3": _whisper(1280, 32, 20, mels=128),
}

# Sizes by the names the NeuSight study gave them, with the heads it ran.
NEUSIGHT: dict[str, Size] = {
    "bert_large": Size(
        "bert", SIZES["bert-large"].config, "BertForPreTraining", "BertForSequenceClassification"
    ),
    "gpt2_med": SIZES["gpt2-medium"],
    "gpt2_large": SIZES["gpt2-large"],
    "gpt2_xl": SIZES["gpt2-xl"],
    "gpt3_xl": _gpt2(3072, 24, 24, 2048),
    "gpt3_67": _gpt2(4096, 32, 32, 2048),
    "gpt3_13": _gpt2(5120, 40, 40, 2048),
    "opt_13": SIZES["opt-1.3b"],
    "switchxl4": Size(
        "switch_transformers",
        {
            "d_model": 1024,
            "d_kv": 128,
            "d_ff": 16384,
            "num_layers": 24,
            "num_decoder_layers": 24,
            "num_heads": 32,
            "num_experts": 4,
            "expert_capacity": 64,
            "num_sparse_encoder_layers": 12,
            "num_sparse_decoder_layers": 12,
        },
    ),
}

_TAIL = re.compile(r"(-hf|-uncased|-cased|-v0\.\d|-patch\d+-\d+.*|-fp16)$")


def find(name: str) -> Size | None:
    """Finds a size by name; takes hub spellings such as `meta-llama/Llama-2-7b-hf` as well."""
    if name in NEUSIGHT:
        return NEUSIGHT[name]
    key = name.rpartition("/")[2].lower().removeprefix("meta-")
    if key.startswith("distilbert"):
        key = "distilbert"
    while key not in SIZES and _TAIL.search(key):
        key = _TAIL.sub("", key)
    return SIZES.get(key)
