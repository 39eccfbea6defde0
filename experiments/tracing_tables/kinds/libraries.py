"""Models of the libraries diffusers and peft, where these are installed."""

from __future__ import annotations

from typing import Any

import torch

DIFFUSION = (
    "diffusers:UNet2DModel",
    "diffusers:UNet2DConditionModel",
    "diffusers:UNet3DConditionModel",
    "diffusers:UNetSpatioTemporalConditionModel",
    "diffusers:AutoencoderKL",
    "diffusers:VQModel",
    "diffusers:ControlNetModel",
    "diffusers:DiTTransformer2DModel",
    "diffusers:SD3Transformer2DModel",
    "diffusers:FluxTransformer2DModel",
    "peft:gpt2 with LoRA",
)
_BLOCKS = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
_CROSS = ("CrossAttnDownBlock2D", "DownBlock2D"), ("UpBlock2D", "CrossAttnUpBlock2D")
_SPATIAL = {"block_out_channels": (32, 64), "norm_num_groups": 8}
OPTIONS: dict[str, dict[str, Any]] = {
    "UNet2DModel": {
        **_SPATIAL,
        "sample_size": 16,
        "down_block_types": _BLOCKS[0],
        "up_block_types": _BLOCKS[1],
    },
    "UNet2DConditionModel": {
        **_SPATIAL,
        "sample_size": 16,
        "cross_attention_dim": 32,
        "down_block_types": _CROSS[0],
        "up_block_types": _CROSS[1],
        "attention_head_dim": 8,
    },
    "UNet3DConditionModel": {
        **_SPATIAL,
        "sample_size": 16,
        "cross_attention_dim": 32,
        "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
        "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        "attention_head_dim": 8,
    },
    "UNetSpatioTemporalConditionModel": {
        "sample_size": 16,
        "block_out_channels": (32, 64),
        "cross_attention_dim": 32,
        "num_attention_heads": (2, 4),
        "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 24,
    },
    "AutoencoderKL": {
        **_SPATIAL,
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    },
    "VQModel": {"block_out_channels": (32,), "norm_num_groups": 8},
    "ControlNetModel": {
        **_SPATIAL,
        "cross_attention_dim": 32,
        "down_block_types": _CROSS[0],
        "attention_head_dim": 8,
        "conditioning_embedding_out_channels": (16, 32),
    },
    "DiTTransformer2DModel": {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "num_layers": 2,
        "sample_size": 16,
    },
    "SD3Transformer2DModel": {
        "sample_size": 16,
        "num_layers": 2,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "joint_attention_dim": 32,
        "caption_projection_dim": 32,
        "pooled_projection_dim": 64,
    },
    "FluxTransformer2DModel": {
        "num_layers": 2,
        "num_single_layers": 2,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 32,
        "pooled_projection_dim": 32,
        "axes_dims_rope": (4, 6, 6),
    },
}
_STEP = torch.tensor([1, 2])


def _picture(channels: int) -> torch.Tensor:
    return torch.randn(2, channels, 16, 16)


def _inputs(name: str) -> dict[str, Any]:
    text = torch.randn(2, 7, 32)
    if name == "UNet2DModel":
        return {"sample": _picture(3), "timestep": _STEP}
    if name in ("UNet2DConditionModel", "ControlNetModel"):
        inputs = {"sample": _picture(4), "timestep": _STEP, "encoder_hidden_states": text}
        hint = {"controlnet_cond": torch.randn(2, 3, 32, 32)}
        return {**inputs, **hint} if name == "ControlNetModel" else inputs
    if name == "UNet3DConditionModel":
        clip = torch.randn(2, 4, 3, 16, 16)
        return {"sample": clip, "timestep": _STEP, "encoder_hidden_states": text}
    if name == "UNetSpatioTemporalConditionModel":
        facts = {"encoder_hidden_states": text[:, :1], "added_time_ids": torch.ones(2, 3)}
        return {"sample": torch.randn(2, 3, 8, 16, 16), "timestep": _STEP, **facts}
    if name in ("AutoencoderKL", "VQModel"):
        return {"sample": _picture(3)}
    if name == "DiTTransformer2DModel":
        labels = {"class_labels": torch.tensor([3, 4])}
        return {"hidden_states": _picture(4), "timestep": _STEP, **labels}
    if name == "SD3Transformer2DModel":
        states = {"encoder_hidden_states": text, "pooled_projections": torch.randn(2, 64)}
        return {"hidden_states": _picture(16), "timestep": _STEP, **states}
    return {
        "hidden_states": torch.randn(2, 16, 64),
        "encoder_hidden_states": text,
        "pooled_projections": torch.randn(2, 32),
        "timestep": _STEP / 1000,
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(7, 3),
        "guidance": torch.ones(2),
    }


def _defaults(name: str) -> dict[str, Any]:
    guided = {"guidance_embeds": True} if name == "FluxTransformer2DModel" else {}
    return {**OPTIONS[name], **guided}


def library_model(name: str) -> tuple[Any, Any, Any]:
    """A small model with random weights, and its inputs."""
    if name not in OPTIONS:
        return _with_adapters()
    import diffusers

    model = getattr(diffusers, name)(**_defaults(name)).train()
    return model, (), _inputs(name)


def _with_adapters() -> tuple[Any, Any, Any]:
    import peft
    import transformers

    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, use_cache=False)
    adapter = peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    model = peft.get_peft_model(transformers.GPT2LMHeadModel(config), adapter)
    tokens = torch.zeros(2, 8, dtype=torch.long)
    return model.train(), (), {"input_ids": tokens, "labels": tokens.clone()}
