"""Models of transformers, from a named size, a model type, a class name or a config file."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tracing.zoo.common import Request, ZooError, missing_extra, on_meta, one_line, suggest
from tracing.zoo.transformers_experts import fix_shapes
from tracing.zoo.transformers_inputs import example_inputs
from tracing.zoo.transformers_sizes import NEUSIGHT, SIZES, find

# Model classes by task, in the order in which a model type's class is looked for.
TASKS = (
    "MASKED_LM",
    "CAUSAL_LM",
    "IMAGE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION",
    "CTC",
    "AUDIO_CLASSIFICATION",
    "SEMANTIC_SEGMENTATION",
    "DEPTH_ESTIMATION",
    "OBJECT_DETECTION",
)
# Model types whose forward pass reads values: they are built on the CPU.
READ_VALUES = ("encodec", "ibert", "led", "longformer", "prophetnet", "vilt")
SEQ2SEQ_TASKS = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")


def build(name: str, request: Request) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Builds a transformers model on the meta device; see `tracing.zoo.build`.

    `NAME@CLASS` asks for a class of its own, such as `bert-large@BertForQuestionAnswering`.
    Models that also take images with their text get text alone unless both are required.
    """
    config, class_name = _resolve(name, request)
    model_class = _model_class(config, class_name)
    _settle(config, model_class, request)
    options = {} if request.attention is None else {"attn_implementation": request.attention}
    reads = config.model_type in READ_VALUES

    def make() -> nn.Module:
        made: nn.Module = model_class._from_config(config, dtype=torch.float32, **options)
        return made

    try:
        model = make() if reads else on_meta(make)
    except Exception as error:
        text = f"transformers cannot build '{name}' ({model_class.__name__})"
        raise ZooError(f"{text}: {one_line(error)}") from error
    fix_shapes(model)
    inputs = example_inputs(model, request)
    if reads:
        inputs = {name: torch.zeros_like(each, device="cpu") for name, each in inputs.items()}
    return model, (), inputs


def names() -> list[str]:
    """Named sizes and model types."""
    mapping = _transformers().CONFIG_MAPPING
    return sorted({*SIZES, *NEUSIGHT, *mapping.keys()})


def family(name: str) -> str:
    """The model type."""
    size = find(name.partition("@")[0])
    if size is not None:
        return size.model_type
    config, _ = _resolve(name, Request())
    return str(config.model_type)


def _transformers() -> Any:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise missing_extra("transformers") from error
    transformers.utils.logging.set_verbosity_error()
    return transformers


def _resolve(name: str, request: Request) -> tuple[Any, str]:
    """The config and the class (empty: to be chosen by model type) that a name stands for."""
    base, _, wanted = name.partition("@")
    transformers = _transformers()
    size = find(base)
    if base.endswith(".json"):
        config, class_name = _read(Path(base).expanduser())
    elif size is not None:
        config = _config(size.model_type, size.config)
        infer = size.infer_class or size.train_class
        class_name = size.train_class if request.training else infer
    elif base in transformers.CONFIG_MAPPING:
        config, class_name = _config(base, {}), ""
    else:
        config, class_name = _from_class(base), base
    return config, wanted or class_name


def _config(model_type: str, options: dict[str, Any]) -> Any:
    transformers = _transformers()
    try:
        return transformers.AutoConfig.for_model(model_type, **options)
    except Exception as error:
        raise ZooError(f"transformers has no config '{model_type}': {one_line(error)}") from error


def _from_class(name: str) -> Any:
    transformers = _transformers()
    model_class = getattr(transformers, name, None) if name.isidentifier() else None
    config_class = getattr(model_class, "config_class", None)
    if config_class is None:
        known = [*names(), *(each for each in dir(transformers) if "For" in each)]
        raise ZooError(
            f"transformers has no size, model type or class '{name}'.{suggest(name, known)}"
            " The path of a config.json works too."
        )
    try:
        return config_class()
    except Exception as error:
        raise ZooError(f"{name} has no usable default config: {one_line(error)}") from error


def _read(path: Path) -> tuple[Any, str]:
    """Reads a config file; its `architectures` names the class."""
    if not path.is_file():
        raise ZooError(f"Config file '{path}' does not exist.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ZooError(f"Config file '{path}' is not readable JSON: {one_line(error)}") from error
    if not isinstance(values, dict) or "model_type" not in values:
        raise ZooError(f"Config file '{path}' has no 'model_type', so its model is unknown.")
    model_type = str(values.pop("model_type"))
    known = list(_transformers().CONFIG_MAPPING.keys())
    if model_type not in known:
        raise ZooError(
            f"Config file '{path}': model_type '{model_type}' is not known to the installed"
            f" transformers.{suggest(model_type, known)}"
        )
    values.pop("transformers_version", None)
    architectures = values.get("architectures") or [""]
    return _config(model_type, values), str(architectures[0])


def _settle(config: Any, model_class: Any, request: Request) -> None:
    """Sets what a trace needs: no cache, no random skipping, no weights from the hub."""
    parts = [config]
    for each in getattr(config, "sub_configs", None) or {}:
        parts.append(getattr(config, each, None))
    for part in parts:
        if part is None or isinstance(part, dict):
            continue
        settings = {
            "use_cache": False,
            "layerdrop": 0.0,
            "encoder_layerdrop": 0.0,
            "decoder_layerdrop": 0.0,
            "apply_spec_augment": False,
            "use_pretrained_backbone": False,
        }
        for key, value in settings.items():
            if getattr(part, key, None) is not None:
                setattr(part, key, value)
        if request.image_size and getattr(part, "image_size", None) is not None:
            part.image_size = request.image_size
    shifts = getattr(config, "is_encoder_decoder", False)
    pools = model_class.__name__.endswith("ForSequenceClassification")
    for key, wanted in (("pad_token_id", shifts or pools), ("decoder_start_token_id", shifts)):
        if wanted and hasattr(config, "vocab_size") and getattr(config, key, None) is None:
            setattr(config, key, 0)


def _model_class(config: Any, class_name: str) -> Any:
    transformers = _transformers()
    if class_name:
        found = getattr(transformers, class_name, None)
        if not hasattr(found, "_from_config"):
            raise ZooError(f"transformers has no model class '{class_name}'.")
        return found
    from transformers.models.auto import modeling_auto

    seq2seq = bool(getattr(config, "is_encoder_decoder", False))
    for task in (*SEQ2SEQ_TASKS, *TASKS) if seq2seq else TASKS:
        mapping = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {})
        if config.model_type in mapping:
            found = mapping[config.model_type]
            return getattr(transformers, found if isinstance(found, str) else found[0])
    try:
        return modeling_auto.MODEL_MAPPING[type(config)]
    except KeyError:
        # parts of larger models, such as the image tower of BLIP
        part = getattr(transformers, type(config).__name__.removesuffix("Config") + "Model", None)
        if hasattr(part, "_from_config"):
            return part
        text = f"transformers has no model class for model type '{config.model_type}'"
        raise ZooError(f"{text}; name the class itself.") from None
