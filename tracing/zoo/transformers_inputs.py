"""Example inputs for models of transformers, by what their forward pass takes."""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch
from torch import nn

from tracing.zoo.common import Request, ZooError

DEFAULT_SEQ_LEN = 512
DEFAULT_IMAGE_SIZE = 224
DEFAULT_SOUND_SAMPLES = 16000
DEFAULT_FRAMES = 16
# What the detector in front of LXMERT keeps of each image.
IMAGE_REGIONS = 36
_ABSOLUTE = re.compile(r"(^|\.)(wpe|embed_positions|position_embeddings?)$")
# Position tables of images, which say nothing about the length of a text.
_OF_IMAGES = re.compile(r"vision|visual|image|pixel")
# Model types that cannot be traced without an attention mask.
_NEED_MASK = ("switch_transformers",)
_PER_TOKEN = re.compile(
    r"(ForCausalLM|LMHeadModel|ForMaskedLM|ForConditionalGeneration|ForTokenClassification"
    r"|ForPreTraining|LMHead|WithLMHeadModel)$"
)


def example_inputs(model: nn.Module, request: Request) -> dict[str, Any]:
    """Keyword arguments of one forward pass, with labels for training where it takes them."""
    takes = inspect.signature(model.forward).parameters
    inputs = _main_inputs(model, takes, request)
    inputs |= _labels(model, inputs, takes, request)
    if _needs_decoder_tokens(model, inputs, takes):
        inputs["decoder_input_ids"] = _tokens(request.batch_size, _length(model, request))
    for name in _beside_tokens(model, takes):
        inputs[name] = torch.ones_like(inputs["input_ids"])
    return inputs


def _beside_tokens(model: nn.Module, takes: Any) -> list[str]:
    """Inputs of the shape of the tokens; question and text are one padded pair of texts."""
    if type(model).__name__.endswith("ForQuestionAnswering"):
        return [name for name in ("attention_mask", "token_type_ids") if name in takes]
    need_mask = getattr(_config(model), "model_type", "") in _NEED_MASK
    return ["attention_mask"] if need_mask else []


def _main_inputs(model: nn.Module, takes: Any, request: Request) -> dict[str, torch.Tensor]:
    """What the model sees: text, images, video, sound or several of them."""
    main = str(getattr(model, "main_input_name", "input_ids"))
    kind = main
    if main == "inputs":  # the Perceiver takes anything; its class says what
        kind = "input_ids" if _PER_TOKEN.search(type(model).__name__) else "pixel_values"
    if kind == "pixel_values_videos" or (kind == "pixel_values" and _is_video(model)):
        return {main: _video(model, request)}
    if kind == "pixel_values":
        return {main: _images(model, request)}
    if kind in ("input_values", "input_features"):
        return {main: _sound(model, main, request)}
    if kind != "input_ids":
        raise ZooError(
            f"{type(model).__name__} takes '{main}', which the zoo cannot make up."
            " Write a factory of your own and name it as 'file.py:factory'."
        )
    tokens = {main: _tokens(request.batch_size, _length(model, request))}
    return tokens | _beside_text(model, takes, request)


def _beside_text(model: nn.Module, takes: Any, request: Request) -> dict[str, torch.Tensor]:
    """What models of several kinds of input need beside their text."""
    inputs = {}
    if _needs_images(model, takes):
        inputs["pixel_values"] = _images(model, request)
    if _needs_sound(model, takes):
        inputs["input_features"] = _spectrogram(model, request)
    if "visual_feats" in takes:
        inputs |= _regions(model, request)
    return inputs


def _config(model: nn.Module) -> Any:
    return model.config


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.int64, device="meta")


def _text_config(model: nn.Module) -> Any:
    config = _config(model)
    return getattr(config, "text_config", None) or config


def _length(model: nn.Module, request: Request) -> int:
    """Sequence length; longer than a learned table of positions is an error."""
    limit = _table_length(model)
    if limit is not None and request.seq_len is not None and request.seq_len > limit:
        raise ZooError(
            f"seq_len {request.seq_len} is longer than the {limit} positions of"
            f" {type(model).__name__}. Use at most {limit}."
        )
    if request.seq_len is not None:
        return request.seq_len
    stated = getattr(_text_config(model), "max_position_embeddings", None)
    lengths = [value for value in (limit, stated) if isinstance(value, int) and value > 0]
    return min(DEFAULT_SEQ_LEN, *lengths) if lengths else DEFAULT_SEQ_LEN


def _table_length(model: nn.Module) -> int | None:
    """Usable rows of the model's learned position table, where it has one."""
    rows = []
    for name, module in model.named_modules():
        if _OF_IMAGES.search(name):
            continue
        if isinstance(module, nn.Embedding) and _ABSOLUTE.search(name):
            offset = getattr(module, "offset", None)
            if offset is None:
                offset = 0 if module.padding_idx is None else module.padding_idx + 1
            rows.append(module.num_embeddings - int(offset))
    return min(rows) if rows else None


def _vision_config(model: nn.Module) -> Any:
    config = _config(model)
    return getattr(config, "vision_config", None) or config


def _image_shape(model: nn.Module, request: Request) -> tuple[int, int, int]:
    config = _vision_config(model)
    channels = getattr(config, "num_channels", None)
    size = request.image_size or getattr(config, "image_size", None) or DEFAULT_IMAGE_SIZE
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return channels if isinstance(channels, int) else 3, int(height), int(width)


def _images(model: nn.Module, request: Request) -> torch.Tensor:
    return torch.empty(request.batch_size, *_image_shape(model, request), device="meta")


def _is_video(model: nn.Module) -> bool:
    return isinstance(getattr(_config(model), "num_frames", None), int)


def _video(model: nn.Module, request: Request) -> torch.Tensor:
    config = _config(model)
    frames = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", None)
    shape = _image_shape(model, request)
    return torch.empty(request.batch_size, frames or DEFAULT_FRAMES, *shape, device="meta")


def _sound(model: nn.Module, main: str, request: Request) -> torch.Tensor:
    """Raw sound, or its spectrogram in the layout the model takes."""
    config, batch = _config(model), request.batch_size
    length: Any
    bins: Any = getattr(config, "num_mel_bins", None)
    channels = getattr(config, "audio_channels", None)
    if main == "input_values" and isinstance(channels, int):
        length = request.seq_len or DEFAULT_SOUND_SAMPLES
        return torch.empty(batch, channels, length, device="meta")
    if main == "input_values" and not isinstance(bins, int):
        return torch.empty(batch, request.seq_len or DEFAULT_SOUND_SAMPLES, device="meta")
    if main == "input_values":
        length = request.seq_len or getattr(config, "max_length", 1024)
        return torch.empty(batch, length, bins, device="meta")
    positions = getattr(config, "max_source_positions", None)
    if isinstance(bins, int) and isinstance(positions, int):
        return torch.empty(batch, bins, 2 * positions, device="meta")
    width = getattr(config, "input_feat_per_channel", None) or getattr(
        config, "feature_projection_input_dim", None
    )
    return torch.empty(batch, request.seq_len or 1000, width or bins or 80, device="meta")


def _needs_sound(model: nn.Module, takes: Any) -> bool:
    """Two-tower models of sound and text (CLAP) need both inputs; chat models run on text."""
    config = _config(model)
    towers = hasattr(config, "audio_config") and hasattr(config, "text_config")
    return "input_features" in takes and towers and not hasattr(config, "audio_token_id")


def _spectrogram(model: nn.Module, request: Request) -> torch.Tensor:
    """One clip as the image that the audio tower folds it into."""
    config: Any = _config(model).audio_config
    bins = int(config.num_mel_bins)
    frames = int(config.spec_size) ** 2 // bins
    return torch.empty(request.batch_size, 1, frames, bins, device="meta")


def _regions(model: nn.Module, request: Request) -> dict[str, torch.Tensor]:
    """Features and boxes of image regions, as a detector finds them."""
    config, shape = _config(model), (request.batch_size, IMAGE_REGIONS)
    return {
        "visual_feats": torch.empty(*shape, int(config.visual_feat_dim), device="meta"),
        "visual_pos": torch.empty(*shape, int(config.visual_pos_dim), device="meta"),
    }


def _needs_images(model: nn.Module, takes: Any) -> bool:
    """Models of text and images (CLIP, ViLT) need both; chat models run on text alone."""
    config = _config(model)
    towers = hasattr(config, "vision_config") or hasattr(config, "image_size")
    chat = hasattr(config, "image_token_id") or hasattr(config, "image_token_index")
    return "pixel_values" in takes and towers and not chat


def _needs_decoder_tokens(model: nn.Module, inputs: dict[str, Any], takes: Any) -> bool:
    encoder_decoder = bool(getattr(_config(model), "is_encoder_decoder", False))
    return encoder_decoder and "decoder_input_ids" in takes and "labels" not in inputs


def _labels(
    model: nn.Module, inputs: dict[str, Any], takes: Any, request: Request
) -> dict[str, torch.Tensor]:
    """Targets in the shape the model's own loss wants; none where that loss reads values."""
    name, batch = type(model).__name__, request.batch_size
    if not request.training:
        return {}
    one_each = torch.zeros(batch, dtype=torch.int64, device="meta")
    if "start_positions" in takes and "end_positions" in takes:
        return {"start_positions": one_each, "end_positions": one_each.clone()}
    if "labels" not in takes:
        return {}
    if name.endswith(("ForSemanticSegmentation",)):
        height, width = inputs["pixel_values"].shape[-2:]
        return {"labels": torch.zeros(batch, height, width, dtype=torch.int64, device="meta")}
    if name.endswith("Classification") and not name.endswith("TokenClassification"):
        return {"labels": one_each}
    if not _PER_TOKEN.search(name):
        return {}
    tokens = inputs.get("input_ids")
    length = tokens.shape[1] if tokens is not None else _length(model, request)
    if "inputs" in inputs:  # the Perceiver decodes every position that it has
        length = int(_config(model).max_position_embeddings)
    labels = {"labels": _tokens(batch, length)}
    for extra in ("next_sentence_label", "sentence_order_label"):
        if extra in takes:
            labels[extra] = one_each
    return labels
